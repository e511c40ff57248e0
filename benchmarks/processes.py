"""Watching a child process: its lines with a time limit, its memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO


class Lines:
    """The lines of a stream, read by a thread, so that waiting for one can end."""

    def __init__(self, stream: IO[str] | None):
        self._lines: queue.Queue[str] = queue.Queue()
        self._thread = read_in_background(stream, self._lines.put)

    def next(self, seconds: float) -> str | None:
        """The next line; "" at the end of the stream, None when nothing came in time."""
        try:
            return self._lines.get(timeout=seconds).strip()
        except queue.Empty:
            return None

    def join(self) -> None:
        """Wait until the process has closed the stream."""
        self._thread.join()


def read_in_background(stream: IO[str] | None, take: Callable[[str], object]) -> threading.Thread:
    """Hand over every line as it comes, and "" at the end; then close the stream."""
    assert stream is not None, "the process was started without a pipe"

    def pump() -> None:
        with stream:
            for line in stream:
                take(line)
        take("")

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    return thread


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        return 0
