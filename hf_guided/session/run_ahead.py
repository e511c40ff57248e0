"""What runs ahead of a step: masks are filled on a thread while the forward pass runs, and what is read late.

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

The device lets a row without an allowed score end by itself. The host only reports it, and so reads the numbers after
it has queued the choice of the tokens: read at once, they would make it wait for the forward pass with nothing queued
after it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
from torch import Tensor

from ..errors import InternalError
from .tracker import LookaheadStep, TokenIds
from .transfers import CudaTransfers, Transfer

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
        """Return when the job has ended; raises InternalError if the thread that ran it has ended."""
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


@dataclass(eq=False)
class ExpectedIds:
    """Input ids of a likely next call."""

    input_ids: Tensor  # the tensor that was announced
    version: int | None  # its version counter at that time, if it has one
    ids: TokenIds | None = None  # the same ids on the host, once they have arrived
    step: LookaheadStep | None = None  # the tracker's step to them, if there is one

    def is_for(self, input_ids: Tensor) -> bool:
        """Whether these are the announced ids."""
        if self.ids is None or self.ids.shape != input_ids.shape:
            return False
        if input_ids is self.input_ids and input_ids.device.type != "cpu" and self.version is not None:
            return input_ids._version == self.version  # a copy to the host would wait for the forward pass
        return np.array_equal(self.ids, input_ids.cpu().numpy())


class LateAlive:
    """The numbers of the masks that were applied last; at most one tensor is unread at any time."""

    def __init__(self) -> None:
        self.unread: Tensor | None = None  # (positions,) int32 on the device, 0 where no allowed score is left
        self._report: Callable[[Sequence[int]], None] | None = None
        self._copy: Transfer | None = None

    def expect(self, alive: Tensor, report: Callable[[Sequence[int]], None]) -> None:
        """Keep numbers to read, see ``unread``; ``report`` is called with them, once."""
        self.unread, self._report, self._copy = alive, report, None

    def send(self, transfers: CudaTransfers) -> None:
        """Start to copy them to the host: ``read`` then waits for the masks, not for what was queued after them."""
        assert self.unread is not None
        self._copy = transfers.to_host(self.unread)

    def read(self, numbers: Sequence[int] | None = None) -> None:
        """Report the numbers, if any are unread; waits for the device, unless the caller has read and gives them."""
        if self.unread is None:
            return
        unread, copy, report = self.unread, self._copy, self._report
        self.drop()
        assert report is not None
        if numbers is None:
            if copy is not None:
                copy.synchronize()
            numbers = (unread if copy is None else copy.tensor).tolist()
        report(numbers)

    def drop(self) -> None:
        """Forget them."""
        self.unread = self._report = self._copy = None
