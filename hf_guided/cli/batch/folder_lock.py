"""Locks between the processes that work in one folder, on one machine or over a shared disk."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

if os.name == "posix":
    import fcntl


class FolderLock:
    """A lock that ends with its process at the latest; on Windows it keeps nobody out.

    Args:
        folder: where its file is.
        name: of the file.
    """

    def __init__(self, folder: Path, name: str):
        self._file: Any = (folder / name).open("w")

    def take(self, *, shared: bool = False, wait: bool = False) -> bool:
        """Take the lock, alone or beside others who share it.

        Args:
            shared: whether others may share it. A lock that is held alone is shared from now on.
            wait: until it is free.

        Returns:
            Whether it was taken.
        """
        if os.name != "posix":
            return True
        try:
            fcntl.flock(self._file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Let others have it."""
        self._file.close()
