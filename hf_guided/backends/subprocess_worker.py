"""A process that can be killed, for compiling with libraries that know no limits and cannot be interrupted.

- One process serves all threads, one job at a time. It is started by the first job and kept for the next ones.
- A job that exceeds its CPU time or its memory ends the process, and so does a caller that gives up (Ctrl-C); the next
  job gets a new one. Whatever happens to it, the calling process continues. The process is nice to all others.
- It dies with its parent, also if that is killed, because on Linux the system sees to it. The system takes "parent" to
  mean the thread that started it, so that is a thread of its own, which lives as long as the process does. Elsewhere
  a process that its parent left behind ends at its time limit at the latest.
- A job is a function that can be imported, with its arguments, pickled. It runs in a plain interpreter: the parent's
  ``__main__`` is not run again, and our package is there without its ``__init__``, which would import torch.
- After a fork the child has no part in its parent's process, and starts its own when it needs one.
"""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ..automaton.after_fork import renew_in_child
from ..errors import CompileLimitExceeded, InternalError
from ..options import WAIT, CompilerOptions
from .subprocess_child import ALARM, DONE, DONE_LAST, NO_MEMORY, PROF, REPORT, Limits, Report, read_frame, write_frame

if TYPE_CHECKING:
    from ..automaton.limits import Allowance

T = TypeVar("T")

_ADVICE = "make the constraint smaller, or raise CompilerOptions.cpu_s and memory_bytes"
_LAST_WORDS = 2000  # bytes kept of the process's stderr
# What Rust, C++ and Python say there before they abort for want of memory.
_NO_MEMORY = re.compile(rb"memory allocation of|bad_alloc|MemoryError|[Oo]ut of memory")
_KILL = 9  # the number of SIGKILL, which the system sends where memory ends
_PATIENCE = 5.0  # seconds that a process may take to be gone


class JobKilled(CompileLimitExceeded):
    """A job reached a limit, or crashed, in the part of this title, after about so much CPU time.

    It may recur where the job is the cause; otherwise the machine is, busy or without memory.
    """

    def __init__(self, message: str, *, title: str, used_s: float, may_recur: bool = True) -> None:
        self.title, self.used_s, self.may_recur = title, used_s, may_recur
        super().__init__(message)


def job_limits(allowed: Allowance | None) -> Limits:
    """The limits of a job: the rest of the compile around it, or the default options outside of a compile."""
    if allowed is None:
        options = CompilerOptions()
        return Limits(options.cpu_s, options.memory_bytes, options.wait_s)
    cpu_s = None if allowed.left_s is None else max(allowed.left_s, 0.001)
    return Limits(cpu_s, allowed.memory_bytes, None if cpu_s is None else WAIT * max(cpu_s, 1.0))


class CompileWorker:
    """Runs functions in another process. Thread safe; there is no process before the first job."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._finalizer: weakref.finalize[..., CompileWorker] | None = None
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """The initial state: a child of a fork has no part in its parent's process."""
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._child is not None:
            self._child.disown()
        self._lock = threading.Lock()
        self._child = self._finalizer = None

    def run(self, title: str, limits: Limits, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the process, and return what it returns; arguments, result and exceptions are pickled.

        The function is found by name there, so at the top of a module that does not import torch; ``title`` says who
        compiles, for error texts. CompileLimitExceeded (a ``JobKilled``): the time or the memory did not suffice, or
        the process died of a signal. InternalError: it ended by itself. An exception that cannot be pickled becomes a
        RuntimeError with its text.
        """
        call = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
        job = pickle.dumps((limits, call), pickle.HIGHEST_PROTOCOL)
        with self._lock:
            if self._child is not None and not self._child.keeper.is_alive():
                self._stop()
            if self._child is None:
                self._child = _Child()
                self._finalizer = weakref.finalize(self, self._child.end)
                # On Linux it dies anyway, and later, when no thread is left to complain that its job came to nothing.
                self._finalizer.atexit = sys.platform != "linux"
            child = self._child
            try:
                outcome, value, used_s = child.ask(title, job, limits)
            except (EOFError, BrokenPipeError):
                self._stop()
                raise child.failure() from None
            except BaseException:  # it is in the middle of something
                self._stop()
                raise
            if outcome in (NO_MEMORY, DONE_LAST) or child.timed_out:
                self._stop()
        if outcome in (DONE, DONE_LAST):
            return cast(T, value)
        if outcome == NO_MEMORY:
            raise JobKilled(_too_much_memory(child.report), title=child.report.title, used_s=used_s)
        raise value

    def close(self) -> None:
        """End the process; a later job starts one again."""
        with self._lock:
            if self._child is not None:
                self._stop()

    def _stop(self) -> None:
        assert self._finalizer is not None
        self._finalizer()
        self._child = self._finalizer = None


class _Child:
    """The process, started at once, and the thread that waits for its end."""

    def __init__(self) -> None:
        started: Future[subprocess.Popen[bytes]] = Future()
        self._said = bytearray()
        self.keeper = threading.Thread(
            target=_keep, args=(started, self._said), name="hf_guided-compile-worker", daemon=True
        )
        self.keeper.start()
        self._process = started.result()
        self._jobs, self._answers = cast(FileIO, self._process.stdin), cast(FileIO, self._process.stdout)
        self._turn = threading.Lock()  # held to change the two below
        self._busy = False
        self.timed_out = False
        self.report = Report("", 0.0, Limits())  # the last report of the job that runs

    def ask(self, title: str, job: bytes, limits: Limits) -> tuple[str, Any, float]:
        """Send a job and wait for its answer: how it ended, its value, and the CPU time that it took.

        Raises EOFError or BrokenPipeError where the process died; ``failure`` knows of what.
        """
        self._said.clear()
        self.report = Report(title, 0.0, limits, _ADVICE)
        self._busy, self._reported = True, time.monotonic()
        timer = threading.Timer(limits.wall_s or threading.TIMEOUT_MAX, self._time_out)
        timer.daemon = True
        timer.start()
        try:
            write_frame(self._jobs, job)
            while True:
                outcome, value, used_s = pickle.loads(read_frame(self._answers))
                if outcome != REPORT:
                    return outcome, value, used_s
                self._reported = time.monotonic()
                # Where the part has no limits of its own, those of the job.
                narrower = [outer if own is None else own for own, outer in zip(value.limits, limits, strict=True)]
                self.report = value._replace(limits=Limits._make(narrower), advice=value.advice or _ADVICE)
        finally:
            timer.cancel()
            with self._turn:
                self._busy = False

    def _time_out(self) -> None:
        with self._turn:
            if self._busy:
                self.timed_out = True
                self._process.kill()

    def end(self) -> None:
        self._jobs.close()
        self._process.kill()
        self.keeper.join(_PATIENCE)
        self._answers.close()

    def disown(self) -> None:
        """In the child of a fork: the process is the parent's, and so are the pipes to it."""
        for pipe in self._process.stdin, self._process.stdout, self._process.stderr:
            if pipe is not None:
                pipe.close()

    def failure(self) -> Exception:
        """The reason why there was no answer; called after ``end``."""
        code, said, report = self._process.returncode, bytes(self._said), self.report
        used_s = report.used_s + (time.monotonic() - self._reported)  # about: more, where the machine is busy
        if report.limits.cpu_s is not None:
            used_s = min(used_s, report.used_s + report.limits.cpu_s)
        may_recur = True
        last = said.decode(errors="replace").strip()
        last = f" (its last words: {last})" if last else ""
        if -code == PROF:
            used_s = report.used_s + (report.limits.cpu_s or 0.0)
            message = f"{report.title} needed more than {report.limits.cpu_s:.3g} s of CPU time; {report.advice}"
        elif self.timed_out or -code == ALARM:
            may_recur = False
            message = (
                f"{report.title} did not finish in {report.limits.wall_s:.3g} s on a machine that is busy with other "
                "work; make the constraint smaller, or try again later"
            )
        elif code < 0 and _NO_MEMORY.search(said):
            message = _too_much_memory(report)
        elif code < 0:
            may_recur = -code != _KILL
            message = (
                f"the process in which {report.title} was compiling died of {signal.Signals(-code).name}{last}; it was "
                "too much for the engine, or for the memory of this machine: make the constraint smaller"
            )
        else:
            return InternalError(f"the process in which {report.title} was compiling ended with exit code {code}{last}")
        return JobKilled(message, title=report.title, used_s=used_s, may_recur=may_recur)


def _keep(started: Future[subprocess.Popen[bytes]], said: bytearray) -> None:
    """On the thread that is the process's parent: start it, listen to its stderr, wait for its end."""
    try:
        process = subprocess.Popen(
            _command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is the parent's business
        )
    except BaseException as error:
        started.set_exception(error)
        return
    assert process.stderr is not None
    started.set_result(process)
    with process.stderr:
        while words := process.stderr.read(_LAST_WORDS):
            said += words
            del said[:-_LAST_WORDS]
    process.wait()


def _command() -> list[str]:
    """An interpreter that finds what this one finds, with a package of our name that runs no ``__init__``."""
    path = [entry for entry in sys.path if isinstance(entry, str)]
    name = __name__.partition(".")[0]
    code = (
        f"import sys, types; sys.path[:] = {path!r}; package = types.ModuleType({name!r}); "
        f"package.__path__ = [{str(Path(__file__).parents[1])!r}]; sys.modules[{name!r}] = package; "
        f"from {__package__}.subprocess_child import serve; serve({os.getpid()})"
    )
    return [sys.executable, "-c", code]


def _too_much_memory(report: Report) -> str:
    nbytes = report.limits.nbytes
    limit = "there is" if nbytes is None else f"{nbytes / 2**20:.0f} MiB"
    return f"{report.title} needed more memory than {limit}; {report.advice}"


SHARED = CompileWorker()
"""The one that all backends use."""
