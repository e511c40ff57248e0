"""A thread that fills masks while the forward pass runs.

- One daemon thread serves the whole process, and takes the jobs in order. The first job creates it; a forked child has
  no copy of its parent's thread, and creates its own.
- Between ``submit`` and the end of ``wait`` (or ``result``, which waits), the job owns everything that it touches: no
  other code may use its rows, their matchers or its half of the bitmask.
- If a job has not started when its result is needed, the waiting thread runs it. So a worker that died, is busy with
  another job, or cannot be created because the interpreter shuts down, blocks no caller.
- If the worker dies in the middle of a job, the job is lost: ``wait`` notices, and raises InternalError.
- An exception of a job is raised only by ``result``.
- Ctrl-C in ``wait`` leaves the job running and sets ``left``. The caller then either waits again or gives up
  everything that the job touches.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from ..errors import InternalError

T = TypeVar("T")

_CHECK_EVERY = 0.2  # seconds between two checks of a waiting thread that the worker is still alive


class Pending(Generic[T]):
    """A job, and later its result. Started by ``submit`` or ``run``; one thread waits for it.

    Args:
        job: called once.
        on_waited: called with the nanoseconds that a caller waited for another thread.
    """

    def __init__(self, job: Callable[[], T], on_waited: Callable[[int], None] | None = None):
        self.left = False  # a wait for it was interrupted
        self._job: Callable[[], T] | None = job
        self._on_waited = on_waited
        self._owner: dict[str, threading.Thread] = {}  # the thread that runs it; setdefault claims it in one step
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the job has ended, well or not."""
        return self._done.is_set()

    def run(self) -> None:
        """Run the job on this thread, unless another thread has started it.

        ``result`` raises the job's exception. Exceptions that end a thread (Ctrl-C, SystemExit) are also raised here.
        """
        job = self._claim()
        if job is None:
            return
        try:
            self._value = job()
        except BaseException as error:
            self._error = error
            if not isinstance(error, Exception):
                raise
        finally:
            self._done.set()

    def cancel(self) -> None:
        """Prevent the start of a job that has not started; do not read its result afterwards."""
        if self._claim() is not None:
            self._done.set()

    def _claim(self) -> Callable[[], T] | None:
        """The job, if this thread may run it."""
        me = threading.current_thread()
        job = self._job
        if job is None or self._owner.setdefault("thread", me) is not me:
            return None
        self._job = None
        return job

    def wait(self) -> None:
        """Return when the job has ended.

        Raises:
            InternalError: the thread that ran it has ended.
        """
        if self._done.is_set():
            return
        self.run()
        start = time.perf_counter_ns()
        try:
            while not self._done.is_set():
                # Checked before waiting: after a fork the event's own lock may be held for ever.
                lost = sys.is_finalizing() or not self._owner["thread"].is_alive()
                if lost and not self._done.is_set():
                    raise InternalError(
                        "the thread that filled a mask ended in the middle (a fork, or the end of the interpreter): "
                        "start this generation again; if neither happened, please report it"
                    )
                self._done.wait(_CHECK_EVERY)
        except BaseException:
            self.left = True
            raise
        if self._on_waited is not None:
            self._on_waited(time.perf_counter_ns() - start)

    def result(self) -> T:
        """The job's return value.

        Raises:
            InternalError: the thread that ran it has ended.
            Exception: raised by the job.
        """
        if not self._done.is_set():
            self.wait()
        error = self._error
        if error is None:
            return cast(T, self._value)
        if isinstance(error, Exception):
            raise error
        # Raised here, a SystemExit thrown into the worker would end the caller's thread.
        raise InternalError(
            f"the thread that filled a mask was stopped ({error!r}): start this generation again"
        ) from error


def submit(pending: Pending[Any]) -> None:
    """Queue a job for the worker."""
    global _worker
    if sys.is_finalizing():  # a new thread would never run: the waiting thread runs the job
        return
    with _lock:
        if _worker is None or not _worker.thread.is_alive():
            try:
                _worker = _Worker()
            except RuntimeError:  # Python starts no threads during shutdown
                return
    _worker.jobs.put(pending)


class _Worker:
    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Pending[Any]] = queue.SimpleQueue()
        self.thread = threading.Thread(target=_serve, args=(self.jobs,), name="hf-guided-prefetch", daemon=True)
        self.thread.start()


def _serve(jobs: queue.SimpleQueue[Pending[Any]]) -> None:
    while True:
        pending = jobs.get()
        try:
            pending.run()
        except BaseException:  # the thread has to end; ``result`` reports the exception
            return
        del pending  # an idle thread would keep the last session alive


_worker: _Worker | None = None
_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _worker, _lock
    # A thread of the parent may have held the lock.
    _worker, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
