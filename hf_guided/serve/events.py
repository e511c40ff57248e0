"""The events of one request's jobs, on their way from the engine's threads to the event loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from .job import Ended, Event, NewTokens

# A client that reads slowly must not fill the memory: its answer is ended when so much waits for so long, or far more.
_MOST_TOKENS, _FULL_S, _FAR_MORE = 4096, 10.0, 16


class Events:
    """A queue that never blocks an engine.

    Args:
        loop: on which the events are read.
        on_overflow: called once, on an engine's thread, when too much waits; no further events are kept then.
        num_tokens: the reader is woken when so many wait, or an answer has ended. More than 1 where nobody sees the
            single token: each wake-up takes time from the thread that generates.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, on_overflow: Callable[[], None], num_tokens: int = 1):
        self._loop = loop
        self._on_overflow = on_overflow
        self._enough_tokens = num_tokens
        self._woken = False
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, Event]] = deque()
        self._num_tokens = 0
        self._full_since: float | None = None
        self._arrived = asyncio.Event()
        self.overflowed = False

    def taker(self, job: int) -> Callable[[Event], None]:
        """What an engine calls with the events of a job.

        Args:
            job: its number in the request.
        """

        def take(event: Event) -> None:
            with self._lock:
                if not self.overflowed:
                    self._pending.append((job, event))
                    self._num_tokens += _size(event)
                overflows = not self.overflowed and self._overflows()
                self.overflowed |= overflows
                enough = isinstance(event, Ended) or self._num_tokens >= self._enough_tokens
                wakes = overflows or (enough and not self._woken)
                self._woken |= wakes
            if overflows:
                self._on_overflow()
            if wakes:
                try:
                    self._loop.call_soon_threadsafe(self._arrived.set)
                except RuntimeError:  # the loop has ended
                    self._on_overflow()

        return take

    async def get(self, timeout_s: float) -> list[tuple[int, Event]]:
        """All that wait, with the numbers of their jobs; none after the timeout, or after an overflow."""
        deadline = self._loop.time() + timeout_s
        while True:
            with self._lock:
                self._arrived.clear()
                self._woken = False
                events, self._num_tokens, self._full_since = list(self._pending), 0, None
                self._pending.clear()
            if events or self.overflowed:
                return events
            try:
                await asyncio.wait_for(self._arrived.wait(), deadline - self._loop.time())
            except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
                return []

    def _overflows(self) -> bool:
        if self._num_tokens < _MOST_TOKENS:
            return False
        now = time.monotonic()
        self._full_since = self._full_since or now
        return now - self._full_since > _FULL_S or self._num_tokens > _FAR_MORE * _MOST_TOKENS


def _size(event: Event) -> int:
    """In tokens, roughly: a token with alternatives takes as much as several."""
    if isinstance(event, Ended):
        return 1
    assert isinstance(event, NewTokens)
    return len(event.token_ids) + sum(1 + len(token.top.raw) for token in event.logprobs)
