"""Watching a child process: its lines with a time limit, its memory; and one that takes jobs and may be killed."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from subprocess import PIPE
from typing import IO

ROOT = Path(__file__).parents[1]
STARTING = 180.0  # seconds for the imports of a process
LOOKING = 0.2  # seconds between two looks at its memory


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


def peak_bytes() -> int:
    """The most memory that this process has held since the last ``forget_peak``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def forget_peak() -> None:
    """Begin to look for the peak again."""
    Path("/proc/self/clear_refs").write_text("5")


class Killed(Exception):
    """A job went too far, and its process was ended.

    Args:
        outcome: "crash", "timeout" or "memory".
        returncode: what the process ended with.
    """

    def __init__(self, outcome: str, returncode: int | None):
        self.outcome, self.returncode = outcome, returncode
        super().__init__(f"{outcome}: process ended with {returncode}")


class JobProcess:
    """A Python process that answers each line with a line; started at the first, and again after one that went too far.

    The process says "ready" first.

    Args:
        command: the arguments of ``python -m``.
        limit_s: seconds for one job.
        limit_bytes: memory of the process, resident.
        python: which one; None means this one.
    """

    def __init__(
        self,
        command: Sequence[str],
        limit_s: float = 20.0,
        limit_bytes: int = 4 * 2**30,
        python: str | None = None,
    ):
        self._command = [python or sys.executable, "-m", *command]
        self._limit_s, self._limit_bytes = limit_s, limit_bytes
        self._process: subprocess.Popen[str] | None = None

    def ask(self, job: str, limit_s: float | None = None) -> str:
        """The answer to one job.

        Args:
            job: one line.
            limit_s: seconds for this one.

        Raises:
            Killed: it went beyond a limit, or the process died.
        """
        process, lines = self._running()
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has died since: its end is read below
            print(job, file=process.stdin, flush=True)
        ends = time.monotonic() + (self._limit_s if limit_s is None else limit_s)
        while True:
            line = lines.next(LOOKING)
            if line:
                return line
            outcome = ""
            if line is not None:
                outcome = "crash"
            elif time.monotonic() > ends:
                outcome = "timeout"
            elif resident_bytes(process.pid) > self._limit_bytes:
                outcome = "memory"
            if outcome:
                self.stop()
                raise Killed(outcome, process.returncode)

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._lines.join()
            if self._process.stdin is not None:
                with suppress(BrokenPipeError):  # a job that it has not read
                    self._process.stdin.close()
            self._process = None

    def _running(self) -> tuple[subprocess.Popen[str], Lines]:
        if self._process is None:
            # Its own stderr is of no interest: engines print there what they also say in their errors.
            process = subprocess.Popen(
                self._command, stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL, text=True, cwd=ROOT
            )
            self._process, self._lines = process, Lines(process.stdout)
            if self._lines.next(STARTING) != "ready":
                self.stop()
                raise SystemExit(f"could not be started: {' '.join(self._command)}")
        return self._process, self._lines
