"""The threads that compile; they wait for work without a reference to its owner.

They are daemons. One that the end of the interpreter meets inside of numpy's C++ would take the process down with an
abort; so the native engine gives up then, and the end waits for that, for a moment at most.
"""

from __future__ import annotations

import atexit
import queue
import threading
import time
from collections.abc import Callable

from ..automaton.limits import interpreter_ends

_PATIENCE_S = 1.0  # the longest wait at the end of the interpreter
_busy: dict[threading.Thread, threading.Event] = {}  # set when the thread has nothing more to do


class Pool:
    """Daemon threads, up to ``workers``, started when there is more work than idle ones."""

    def __init__(self, workers: int, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._workers, self._name = workers, name
        self._threads: list[threading.Thread] = []
        self._idle = threading.Semaphore(0)

    def submit(self, job: Callable[[], None]) -> None:
        """Queue a job; the caller holds the compiler's lock."""
        self._jobs.put(job)
        if not self._idle.acquire(blocking=False) and len(self._threads) < self._workers:
            name = f"hf_guided-{self._name}-{len(self._threads) + 1}"
            thread = threading.Thread(target=_work, args=(self._jobs, self._idle), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> list[threading.Thread]:
        """Let every thread end after the queued work; the caller holds the compiler's lock, or is the last one."""
        for _ in self._threads:
            self._jobs.put(None)
        threads, self._threads, self._idle = self._threads, [], threading.Semaphore(0)
        return threads


def _work(jobs: queue.SimpleQueue[Callable[[], None] | None], idle: threading.Semaphore) -> None:
    while True:
        job = jobs.get()
        thread, over = threading.current_thread(), threading.Event()
        _busy[thread] = over
        try:
            while job is not None:
                job()
                del job  # it holds the compiler, which could not be freed while this thread waits for the next one
                idle.release()
                job = jobs.get_nowait()  # a thread is busy as long as there are jobs: the end waits for all of them
        except queue.Empty:
            continue
        finally:
            del _busy[thread]
            over.set()
        return


@atexit.register
def _end() -> None:
    interpreter_ends.set()
    deadline = time.monotonic() + _PATIENCE_S
    # The threads themselves do not end: they wait for more jobs.
    while (jobs := list(_busy.values())) and (left := deadline - time.monotonic()) > 0:
        jobs[0].wait(left)
