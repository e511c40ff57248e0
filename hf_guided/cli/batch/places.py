"""Inputs and outputs by their paths or URLs, which fsspec reads and writes as a whole.

On this machine a rename replaces an output at one moment, and no character of a path is special.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path, PurePath, PurePosixPath

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem

from ...errors import UsageError, cause


class Place:
    """A file or a folder.

    Args:
        text: a path, or a URL such as ``s3://bucket/rows.jsonl``.

    Attributes:
        local: its path if it is on this machine, as that of ``file:///folder/rows.jsonl`` is; else None.
        path: its path on the machine where it is.

    Raises:
        UsageError: nothing that is installed reads such URLs.
    """

    def __init__(self, text: str):
        self._text = text
        self.local: Path | None = None if "://" in text else Path(text)
        if self.local is None:
            with self._reaching():
                self._files, self._location = url_to_fs(text)
            if isinstance(self._files, LocalFileSystem):
                self.local = Path(self._location)
        else:
            self._files, self._location = LocalFileSystem(), str(self.local.absolute())
        self.path: PurePath = self.local or PurePosixPath(self._location)
        self.name = self.path.name

    def __str__(self) -> str:
        return self._text if self.local is None else str(self.local)

    @property
    def local_name(self) -> str:
        """A name that no other URL has, for what belongs to this one on this machine's disks."""
        return f"{self.name}.{hashlib.blake2b(self._text.encode(), digest_size=4).hexdigest()}"

    def with_name(self, name: str) -> Place:
        """The place beside this one."""
        if self.local is not None:
            return Place(str(self.local.with_name(name)))
        url = self._text.rstrip("/")
        if not url.endswith(self.name):
            raise UsageError(f"{self}: expected a URL that ends with the name of the answers; give another")
        return Place(url.removesuffix(self.name) + name)

    def exists(self) -> bool:
        """Return whether something is there."""
        with self._reaching():
            self._files.invalidate_cache()  # another machine may have written it
            return bool(self._files.exists(self._location))

    def names(self) -> list[str] | None:
        """List the folder that is there; None if it is none."""
        with self._reaching():
            self._files.invalidate_cache()
            if not self._files.isdir(self._location):
                return None
            return [PurePosixPath(path).name for path in self._files.ls(self._location, detail=False)]

    def is_same(self, other: Place) -> bool:
        """Return whether both are the same file or folder; on this machine it has to be there."""
        if self.local is None or other.local is None:
            return (self._files, self._location) == (other._files, other._location)
        return self.local.exists() and other.local.exists() and self.local.samefile(other.local)

    def fetch(self, folder: Path) -> Path:
        """Return its path on this machine: that of a copy in the folder, if it is on another one."""
        if self.local is not None:
            return self.local
        target = folder / self.name
        with self._reaching():
            self._files.get(self._location, str(target), recursive=self._files.isdir(self._location))
        return target

    def replace(self, made: Path) -> None:
        """Put a file or a folder from this machine there, in place of what is there; a copy stays for another machine.

        Raises:
            OSError: it cannot be written; the job can go on when the storage is back.
        """
        with self._reaching(OSError):
            if made.is_dir() and self._files.exists(self._location):
                self._files.rm(self._location, recursive=True)
            if self.local is not None:
                made.replace(self.local)
            elif made.is_dir():
                self._files.put(f"{made}/", f"{self._location}/", recursive=True)
            else:
                self._files.put_file(str(made), self._location)

    def remove(self) -> None:
        """Delete what is there, if anything is."""
        if self.exists():
            with self._reaching():
                self._files.rm(self._location, recursive=True)

    @contextmanager
    def _reaching(self, kind: type[Exception] = UsageError) -> Generator[None]:
        try:
            yield
        except ImportError as error:
            raise UsageError(f"{self._text}: {error}") from error
        except Exception as error:
            if self.local is not None:
                raise
            raise kind(f"cannot reach {self._text}: {cause(error)}") from error  # each storage has errors of its own


def digest(path: Path) -> str:
    """The content of a file, or of a folder that the package datasets has saved, in few letters."""
    hasher = hashlib.blake2b(digest_size=16)
    files = [path]
    if path.is_dir():  # where datasets may also keep caches
        files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("cache-"))
    for file in files:
        if path.is_dir():
            hasher.update(f"{file.name}\0{file.stat().st_size}\0".encode())
        with file.open("rb") as stream:
            while block := stream.read(1 << 20):
                hasher.update(block)
    return hasher.hexdigest()


def sync(file: Path) -> None:
    """Return when a file is on the disk."""
    with file.open("rb+") as stream:  # Windows syncs only what may be written
        os.fsync(stream.fileno())
