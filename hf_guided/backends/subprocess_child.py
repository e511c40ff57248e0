"""The child process of ``subprocess_worker``: one job after another, each within its limits, until the parent ends.

Only the standard library is imported here, and the modules that a job names. A job is one frame: eight bytes of length,
then a pickle. Its answer is one frame too; before it come reports of the limits that hold for the part that begins, so
that the parent knows what the process was doing when a limit ended it.

A timer of CPU time (ITIMER_PROF) ends the process with SIGPROF, in the middle of anything. The limit of memory is
RLIMIT_DATA: on Linux it counts all memory that is allocated, by mmap too. RLIMIT_AS counts libraries, stacks and memory
that allocators only reserve. Watching from outside comes too late for one huge allocation, and cannot attribute it.
macOS takes the limit and ignores it; Windows has neither.
"""

from __future__ import annotations

import math
import os
import pickle
import signal
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from typing import NamedTuple

if sys.platform != "win32":
    import resource

REPORT, DONE, DONE_LAST, FAILED, NO_MEMORY = "report", "done", "done, and full", "failed", "no memory"
ALARM = 14  # the number of SIGALRM on systems that have it
PROF = 27  # the number of SIGPROF
_KEPT = 2  # jobs may leave half of what one may allocate
_NICENESS = 10  # a tenth of the CPU time of a thread that is not nice
_LENGTH = struct.Struct("<Q")
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


class Limits(NamedTuple):
    """Bounds on one job, or on a part of it; None is no limit."""

    cpu_s: float | None = None  # CPU time of the process
    nbytes: int | None = None  # memory that it may allocate in addition to what it has; on Linux only
    wall_s: float | None = None  # time until the answer; a safety net for a machine that is busy with other work


_NO_LIMITS = Limits()


class Report(NamedTuple):
    """The part of a job that begins."""

    title: str
    used_s: float  # CPU time that the job has used before
    limits: Limits  # the limits of the part; those of the job, where it has none of its own
    advice: str = ""  # the next step for a user whose job exceeds them


class _Job:
    """The job that runs: its pipe to the parent, the CPU time at which it began, and the memory of its surroundings."""

    answers: FileIO | None = None
    began = 0.0
    memory = 0  # memory of the process that counts for no job


def write_frame(pipe: FileIO, data: bytes) -> None:
    """Send one frame."""
    rest = memoryview(_LENGTH.pack(len(data)) + data)
    while rest:
        rest = rest[pipe.write(rest) :]


def read_frame(pipe: FileIO) -> bytearray:
    """Wait for one frame; raises EOFError when the other side is gone."""
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
    """Answer jobs until the parent, the process of this id, is gone."""
    # On Linux the system ends this process when the parent ends, at any point; elsewhere it ends after its job.
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the call
            sys.exit()
    if sys.platform != "win32":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash of an engine is an expected answer here
        os.nice(_NICENESS)
    jobs, answers = FileIO(os.dup(0), "rb"), FileIO(os.dup(1), "wb")
    _Job.answers, _Job.memory = answers, _allocated()
    os.dup2(2, 1)  # an engine's output must not mix with the answers
    try:
        while True:
            write_frame(answers, _answer(read_frame(jobs)))
    except (EOFError, BrokenPipeError):
        return


def _answer(job: bytearray) -> bytes:
    limits, call = pickle.loads(job)
    if sys.platform != "win32" and limits.wall_s is not None:
        signal.alarm(math.ceil(limits.wall_s) + 1)  # the parent may not be there to see to it
    try:
        _Job.began = time.process_time()
        with _limited(limits, _Job.memory):
            function, args = pickle.loads(call)
            value = function(*args)
            # So much kept that the next jobs would have too little.
            is_full = limits.nbytes is not None and _allocated() > _Job.memory + limits.nbytes // _KEPT
            return pickle.dumps((DONE_LAST if is_full else DONE, value, used_s()), pickle.HIGHEST_PROTOCOL)
    except MemoryError:
        return pickle.dumps((NO_MEMORY, None, used_s()))
    except BaseException as error:  # a panic of a Rust library is no Exception
        return pickle.dumps((FAILED, _portable(error), used_s()))
    finally:
        if sys.platform != "win32":
            signal.alarm(0)


def used_s() -> float:
    """CPU time that the job has used so far."""
    return time.process_time() - _Job.began


def report(title: str, limits: Limits = _NO_LIMITS, advice: str = "") -> None:
    """Tell the parent which part of the job begins; see ``Report``."""
    if _Job.answers is not None:
        write_frame(_Job.answers, pickle.dumps((REPORT, Report(title, used_s(), limits, advice), 0.0)))


@contextmanager
def part(title: str, limits: Limits, advice: str = "") -> Iterator[None]:
    """A part of the job, within narrower limits; see ``Report``."""
    report(title, limits, advice)
    with _limited(limits, _allocated()):
        yield


@contextmanager
def not_counted(memory: bool = True) -> Iterator[None]:
    """A context for what is made once and kept: its time counts for no job, nor (with ``memory``) does its memory.

    The memory of a library counts, for it can be large, and the size of the process has a bound.
    """
    if sys.platform == "win32":
        yield
        return
    began = time.process_time()
    left = signal.setitimer(signal.ITIMER_PROF, 0)[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
    before = _allocated()
    try:
        yield
    finally:
        _Job.began += time.process_time() - began
        grown = max(0, _allocated() - before) if memory else 0
        _Job.memory += grown
        if soft != resource.RLIM_INFINITY:
            soft = _at_most(soft + grown, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        signal.setitimer(signal.ITIMER_PROF, left)


def _portable(error: BaseException) -> BaseException:
    """The error, if another process can read its pickle."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as unreadable:
        return RuntimeError(f"{error!r} (as text, because its pickle fails: {unreadable!r})")
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


@contextmanager
def _limited(limits: Limits, before: int) -> Iterator[None]:
    """Die of SIGPROF once the CPU time, or the rest of an outer limit, is used; bound the memory beyond ``before``."""
    if sys.platform == "win32":
        yield
        return
    began, outer_s = time.process_time(), signal.getitimer(signal.ITIMER_PROF)[0]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if limits.cpu_s is not None:
        signal.setitimer(signal.ITIMER_PROF, min(limits.cpu_s, outer_s) if outer_s else limits.cpu_s)
    if limits.nbytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (_at_most(_at_most(before + limits.nbytes, soft), hard), hard))
    try:
        yield
    finally:
        if limits.nbytes is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
        if limits.cpu_s is not None:
            left_s = max(outer_s - (time.process_time() - began), 1e-3) if outer_s else 0.0
            signal.setitimer(signal.ITIMER_PROF, left_s)


def _at_most(nbytes: int, limit: int) -> int:
    return nbytes if limit == resource.RLIM_INFINITY else min(nbytes, limit)


def _allocated() -> int:
    """The memory that RLIMIT_DATA counts, so far; 0 where the system does not say."""
    try:
        with open("/proc/self/status", "rb") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith(b"VmData"))
    except (OSError, StopIteration):
        return 0
