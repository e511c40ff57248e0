"""Threads for work on requests: reading bodies, templates, tokenizers. They are few, and each job has a time limit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from .error_responses import RequestRefused

T = TypeVar("T")
_THREADS = 4
_RETRY_S = 5


class ThreadPool:
    """Runs functions for the event loop. A thread counts as busy until its function has returned, whoever waits for it.

    The threads are daemons: no template keeps the interpreter from its end.

    Args:
        timeout_s: how long a request waits for a thread, and then for its function.
        threads: how many.
    """

    def __init__(self, timeout_s: float, threads: int = _THREADS):
        self._timeout_s = timeout_s
        self._num_threads = threads
        self._free = asyncio.Semaphore(threads)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """What the function returns or raises.

        Raises:
            RequestRefused: no thread was free in time (503), or the function takes too long (400).
        """
        try:
            await asyncio.wait_for(self._free.acquire(), self._timeout_s)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise RequestRefused(
                "the server is busy with the prompts of other requests; try again later",
                status=503,
                code="rendering_busy",
                retry_after_s=_RETRY_S,
            ) from None
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            self._free.release()
            if not done.done():  # else the request has gone
                done.set_result(result) if error is None else done.set_exception(error)

        def job() -> None:
            try:
                result, error = function(*args), None
            except BaseException as raised:  # every exception goes to the request; the thread continues
                result, error = None, raised
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:  # the loop has ended
                pass

        self._start(job)
        try:
            return await asyncio.wait_for(done, self._timeout_s)
        except asyncio.TimeoutError:
            raise RequestRefused(
                f"expected a prompt that is read within {self._timeout_s:g} s; shorten it, or raise --render-timeout",
                code="rendering_timeout",
            ) from None

    def close(self, timeout_s: float) -> bool:
        """End the threads; False if one still runs after the timeout."""
        for _ in self._threads:
            self._jobs.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _start(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)
        if len(self._threads) < self._num_threads:
            thread = threading.Thread(target=self._work, name=f"hf-guided-request-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
