"""How many requests the server holds at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from .error_responses import RequestRefused, shuts_down

_RETRY_S = 5


class Admission:
    """Counts the requests that run or wait; on the event loop.

    Args:
        most: how many there may be.
    """

    def __init__(self, most: int):
        self._most = most
        self.held = 0
        self.closed = asyncio.Event()  # whether further requests are refused

    @contextmanager
    def request(self) -> Iterator[None]:
        """Around one request.

        Raises:
            RequestRefused: there are too many (429), or the server shuts down (503).
        """
        if self.closed.is_set():
            raise shuts_down()
        if self.held >= self._most:
            raise RequestRefused(
                f"expected at most {self._most} requests at once, and that many run or wait; try again later",
                status=429,
                code="queue_full",
                retry_after_s=_RETRY_S,
            )
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1

    def close(self) -> None:
        """Refuse further requests."""
        self.closed.set()
