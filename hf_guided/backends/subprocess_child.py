"""The child process of ``subprocess_worker``: one job after another, each under a memory limit, until the parent ends.

Only the standard library is imported here, and the modules that a job names. A job and its answer are one frame each:
eight bytes of length, then a pickle.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO

if sys.platform != "win32":
    import resource

DONE, FAILED, NO_MEMORY = "done", "failed", "no memory"
ALARM = 14  # the number of SIGALRM on systems that have it
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def write_frame(pipe: FileIO, data: bytes) -> None:
    """Send one frame."""
    for part in _LENGTH.pack(len(data)), data:
        rest = memoryview(part)
        while rest:
            rest = rest[pipe.write(rest) :]


def read_frame(pipe: FileIO) -> bytearray:
    """Wait for one frame.

    Raises:
        EOFError: the other side is gone.
    """
    return _read(pipe, _LENGTH.unpack(_read(pipe, _LENGTH.size))[0])


def _read(pipe: FileIO, size: int) -> bytearray:
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = pipe.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return data


def serve(parent: int) -> None:
    """Answer jobs until the parent is gone.

    Args:
        parent: id of the process that started this one.
    """
    _die_with(parent)
    _no_core_dump()
    jobs, answers = FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb")
    os.dup2(2, 1)  # an engine's output must not mix with the answers
    try:
        while True:
            write_frame(answers, _answer(read_frame(jobs)))
    except (EOFError, BrokenPipeError):
        return


def _answer(job: bytearray) -> bytes:
    seconds, nbytes, call = pickle.loads(job)
    try:
        with _alarm(seconds), _memory(nbytes):
            function, args = pickle.loads(call)
            return pickle.dumps((DONE, function(*args)), pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        return pickle.dumps((NO_MEMORY, None))
    except BaseException as error:  # a panic of a Rust library is no Exception
        return pickle.dumps((FAILED, _portable(error)))


def _portable(error: BaseException) -> BaseException:
    """The error, if another process can read its pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as unreadable:
        return RuntimeError(f"{error!r} (as text, because its pickle fails: {unreadable!r})")
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def _die_with(parent: int) -> None:
    """Have the system end this process when the parent ends, at any point.

    On systems other than Linux it ends when the parent is gone: after its job, which the alarm bounds.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            sys.exit()


def _no_core_dump() -> None:
    """A crash of an engine is an expected answer here, so no core dump is written."""
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Die soon after the time limit, for a parent that is not there to see to it."""
    if sys.platform == "win32":
        yield
        return
    signal.alarm(math.ceil(seconds) + 1)
    try:
        yield
    finally:
        signal.alarm(0)


@contextmanager
def _memory(nbytes: int) -> Iterator[None]:
    """Bound what this process may allocate.

    By RLIMIT_DATA, because on Linux it counts all memory that is allocated, by mmap too. RLIMIT_AS counts libraries,
    stacks and memory that allocators only reserve. Watching from outside comes too late for one huge allocation, and
    cannot attribute it. macOS takes the limit and ignores it; Windows has none.
    """
    if sys.platform == "win32":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = nbytes if hard == resource.RLIM_INFINITY else min(nbytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
