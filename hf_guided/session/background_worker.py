"""A thread that fills masks while the forward pass runs.

- One daemon thread serves the whole process, in the order in which jobs come. It is made by the first job; a forked
  child, which has no part in its parent's thread, makes its own.
- Between ``submit`` and the end of ``wait`` (or ``result``, which waits) whatever a job touches belongs to it: nobody
  else may use its rows, their matchers or its slot of the bitmask.
- A job that is not begun when its result is wanted is done by the thread that wants it. So a thread that died, is stuck
  in somebody else's job, or cannot be made any more because the interpreter is going down, holds nobody up.
- A job begun on a thread that died in the middle is lost: waiting for it notices, and raises InternalError.
- What a job raises is raised by ``result``, and by nothing else: who does not ask is not told.
- Ctrl-C while waiting leaves the job running, and ``left`` true. Whoever waited then either waits again or parts with
  all that the job touches.
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

_LOOK_AFTER = 0.2  # seconds after which one who waits looks whether the job's thread still lives


class Pending(Generic[T]):
    """A job, and then its result. Begun by ``submit``, or by ``run`` at once; waited for by one thread.

    Args:
        job: called once.
        on_waited: told the nanoseconds that the thread which wants the result has waited for another.
    """

    def __init__(self, job: Callable[[], T], on_waited: Callable[[int], None] | None = None):
        self.left = False  # a wait for it was interrupted
        self._job: Callable[[], T] | None = job
        self._on_waited = on_waited
        self._owner: dict[str, threading.Thread] = {}  # who does it; setdefault claims it in one step
        self._done = threading.Event()
        self._value: T | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether the job has ended, well or not."""
        return self._done.is_set()

    def run(self) -> None:
        """Do the job on this thread, unless another has begun it.

        What the job raises is kept for ``result``; only what ends a thread (Ctrl-C, SystemExit) is also raised here.
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
        """See to it that the job is not begun any more; its result must not be asked for."""
        if self._claim() is not None:
            self._done.set()

    def _claim(self) -> Callable[[], T] | None:
        """The job, if it is this thread that may do it."""
        me = threading.current_thread()
        job = self._job
        if job is None or self._owner.setdefault("thread", me) is not me:
            return None
        self._job = None
        return job

    def wait(self) -> None:
        """Return when the job has ended.

        Raises:
            InternalError: the thread that did it is no more.
        """
        if self._done.is_set():
            return
        self.run()
        start = time.perf_counter_ns()
        try:
            while not self._done.is_set():
                # Looked at before waiting: behind a fork the event itself may be locked for ever.
                lost = sys.is_finalizing() or not self._owner["thread"].is_alive()
                if lost and not self._done.is_set():
                    raise InternalError(
                        "the thread that filled a mask ended in the middle (a fork, or the end of the interpreter): "
                        "begin this generation anew; if neither happened, please report it"
                    )
                self._done.wait(_LOOK_AFTER)
        except BaseException:
            self.left = True
            raise
        if self._on_waited is not None:
            self._on_waited(time.perf_counter_ns() - start)

    def result(self) -> T:
        """What the job returned.

        Raises:
            InternalError: the thread that did it is no more, or was told to end.
            Exception: what the job raised.
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
            f"the thread that filled a mask was told to end ({error!r}): begin this generation anew"
        ) from error


def submit(pending: Pending[Any]) -> None:
    """Have the worker do a job."""
    global _worker
    if sys.is_finalizing():  # a thread started now would never run: whoever wants the result does the job
        return
    with _lock:
        if _worker is None or not _worker.thread.is_alive():
            try:
                _worker = _Worker()
            except RuntimeError:  # a little earlier in the interpreter's end, Python itself refuses
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
        except BaseException:  # told to end; who asks for the result will hear of it
            return
        del pending  # an idle thread would keep the last session alive


_worker: _Worker | None = None
_lock = threading.Lock()


def _after_fork_in_child() -> None:
    global _worker, _lock
    # The lock may have been held by a thread that does not exist here.
    _worker, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
