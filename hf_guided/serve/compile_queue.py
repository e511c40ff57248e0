"""Which constraint is compiled next: each client's in their order, and the clients in turn.

The compiler has a few threads, and one constraint may take seconds. What it knows already does not wait here. A client
that sends many constraints never holds all threads: one of them is left for the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from .error_responses import RequestRefused

_MOST_WAITING = 128
_WAIT_S = 60.0
_RETRY_S = 10


class CompileQueue:
    """Lets compiles begin; on the event loop.

    Args:
        threads: compiles at once, at least 2.
        wait_s: how long a constraint waits for its turn.
    """

    def __init__(self, threads: int, wait_s: float = _WAIT_S):
        self._threads = max(2, threads)
        self._wait_s = wait_s
        self._running: Counter[str] = Counter()  # compiles of each client
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()  # the next client first

    @property
    def num_waiting(self) -> int:
        """Constraints that wait for their turn."""
        return sum(map(len, self._waiting.values()))

    async def begin(self, client: str, submit: Callable[[], Future[Any]]) -> Future[Any]:
        """What ``submit`` returns, called when it is this client's turn.

        Raises:
            RequestRefused: others come first for too long (503).
        """
        await self._turn(client)
        try:
            future = submit()
        except BaseException:
            self._end(client)
            raise
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda _: _call(loop, self._end, client))
        return future

    async def _turn(self, client: str) -> None:
        if not self._waiting and self._has_room(client):
            self._running[client] += 1
            return
        if self.num_waiting >= _MOST_WAITING:
            raise _busy()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._next()
        try:
            await asyncio.wait_for(asyncio.shield(turn), self._wait_s)
        except BaseException as error:
            if turn.done():
                self._end(client)
            else:
                self._waiting[client].remove(turn)
                self._forget(client)
            if isinstance(error, asyncio.TimeoutError):
                raise _busy() from None
            raise

    def _has_room(self, client: str) -> bool:
        return self._running.total() < self._threads and self._running[client] < self._threads - 1

    def _end(self, client: str) -> None:
        self._running[client] -= 1
        self._running += Counter()  # without the clients that have none
        self._next()

    def _next(self) -> None:
        """Let those begin whose turn it is."""
        while (client := next(filter(self._has_room, self._waiting), None)) is not None:
            self._running[client] += 1
            self._waiting[client].popleft().set_result(None)
            self._waiting.move_to_end(client)
            self._forget(client)

    def _forget(self, client: str) -> None:
        if not self._waiting[client]:
            del self._waiting[client]


def _busy() -> RequestRefused:
    return RequestRefused(
        "the server is busy with the constraints of other requests; try again later",
        status=503,
        code="compiler_busy",
        retry_after_s=_RETRY_S,
    )


def _call(loop: asyncio.AbstractEventLoop, function: Callable[..., None], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:  # the loop has ended
        pass
