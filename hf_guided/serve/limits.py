"""Limits of who may ask, and of how much one client can take: keys, bytes, time, requests, threads, connections.

The order in which a request meets the limits: its connection (``limited_protocol``), its key (``ApiKeys``), its size
(``RequestSizeLimit``), the requests that are held (``Admission``), the time of its body (``body_of``), and the threads
for its body and its template (``ThreadPool``). The limits of the values in a body are in bodies/.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from hashlib import sha256
from queue import SimpleQueue
from typing import Any, ClassVar, TypeVar

import h11
from fastapi import Request
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from .error_responses import RequestRefused, busy, shuts_down

T = TypeVar("T")
_RETRY_S = 5
_THREADS = 4
STALLED_S = 30.0  # how long a client may take nothing of its answer
_MAX_IDLE = 256  # connections without a request
_GRACE_S = 0.1  # before the oldest is closed: its request may have arrived, and is not read yet
_OPEN = frozenset({"/health"})  # monitors ask for it without a key


class ApiKeys:
    """ASGI middleware: a request has to give one of the keys, as "Authorization: Bearer KEY"."""

    def __init__(self, app: ASGIApp, keys: Sequence[str]):
        self._app = app
        self._digests = [sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http" or scope["path"] in _OPEN or self._may_ask(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        refused = RequestRefused(
            'expected a valid API key in the header "Authorization: Bearer KEY"', status=401, code="invalid_api_key"
        )
        refused.headers["WWW-Authenticate"] = "Bearer"
        await refused.send(scope, receive, send)

    def _may_ask(self, headers: Headers) -> bool:
        digest = sha256(key_of(headers).encode()).digest()
        # All are compared, each in constant time: how long it takes says nothing about a key.
        matches = [hmac.compare_digest(digest, known) for known in self._digests]
        return any(matches)


def key_of(headers: Headers) -> str:
    """The API key that a request gives, however its header is spaced; empty if it gives none."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    return key.strip() if scheme.lower() == "bearer" else ""


class RequestSizeLimit:
    """ASGI middleware: bodies above a size are refused, before they are read where their length is declared."""

    def __init__(self, app: ASGIApp, max_bytes: int):
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._max_bytes:
            await self._refused().send(scope, receive, send)
            return
        left = self._max_bytes

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:  # a chunked body, whose length is not declared
                raise self._refused()
            return message

        await self._app(scope, counted, send)

    def _refused(self) -> RequestRefused:
        return RequestRefused(
            f"expected a request of {self._max_bytes} bytes at most; send less, or raise --max-request-bytes",
            status=413,
            code="request_too_large",
        )


class Admission:
    """Counts the requests that run or wait, of which there may be ``most``; on the event loop."""

    def __init__(self, most: int):
        self._most = most
        self.held = 0
        self.closed = asyncio.Event()  # whether further requests are refused

    @contextmanager
    def request(self) -> Iterator[None]:
        """Hold a place for one request.

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


async def body_of(request: Request, timeout_s: float, closed: asyncio.Event) -> bytes:
    """The whole body; ``closed`` is set when the server shuts down, which does not wait for bodies.

    Raises:
        RequestRefused: it is late (408), its client has left (499), or the server shuts down (503).
    """
    reading = asyncio.ensure_future(request.body())
    closing = asyncio.ensure_future(closed.wait())
    try:
        await asyncio.wait({reading, closing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        if closing.done():
            raise shuts_down()
        raise RequestRefused("expected the whole body in time", status=408, code="body_too_late")
    except ClientDisconnect:  # nobody reads the answer, but the metrics count it
        raise RequestRefused("the client left before its body was complete", status=499, code="client_left") from None
    finally:
        reading.cancel()
        closing.cancel()


def parsed(request: Request, body: bytes) -> Any:
    """A request's body, read as JSON.

    Raises:
        RequestRefused: it is none, or its type is that of a form: any page can send one, without asking first.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not kind.endswith("+json"):
        raise RequestRefused(
            "expected the header Content-Type: application/json", status=415, code="unsupported_media_type"
        )
    try:
        return json.loads(body)
    except RecursionError:
        raise RequestRefused("expected JSON that is not nested so deeply", code="malformed_request") from None
    except ValueError as error:
        raise RequestRefused(f"expected a body that is JSON: {error}", code="malformed_request") from None


class ThreadPool:
    """Runs functions for the event loop. A thread counts as busy until its function has returned, whoever waits for it.

    The threads are daemons: no template keeps the interpreter from its end.

    Args:
        timeout_s: how long a request waits for a thread, and then for its function.
    """

    def __init__(self, timeout_s: float):
        self._timeout_s = timeout_s
        self._free = asyncio.Semaphore(_THREADS)
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        names = (f"hf-guided-request-{number}" for number in range(_THREADS))
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    async def run(self, function: Callable[[], T]) -> T:
        """Return or raise what the function does.

        Raises:
            RequestRefused: no thread was free in time (503), or the function takes too long (400).
        """
        try:
            await asyncio.wait_for(self._free.acquire(), self._timeout_s)
        except asyncio.TimeoutError:  # another class than TimeoutError before Python 3.11
            raise busy("prompts", "rendering_busy", _RETRY_S) from None
        loop, future = asyncio.get_running_loop(), Future[T]()
        future.set_running_or_notify_cancel()  # a caller that stops waiting cannot cancel it

        def job() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # every exception goes to the request; the thread continues
                future.set_exception(error)
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._free.release)

        self._jobs.put(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(future), self._timeout_s)
        except asyncio.TimeoutError:
            raise RequestRefused(
                f"expected a prompt that is read within {self._timeout_s:g} s; shorten it, or raise --render-timeout",
                code="rendering_timeout",
            ) from None

    def close(self, timeout_s: float) -> bool:
        """End the threads; False if one still runs after the timeout."""
        deadline = time.monotonic() + timeout_s
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


# uvicorn's HTTP protocol with limits of time and number on connections, which it does not have.
#
# - Headers have to arrive in time, from the first byte of a connection or from the first of a further request: 408.
# - A client that takes nothing of its answer for a while is cut off: what waits for it is dropped.
# - Connections without a request may be many, but not all that the process can have: beyond, the oldest is closed.


def limited_protocol(header_timeout_s: float) -> type[H11Protocol]:
    """The class of a server's connections; the headers of a request have to arrive in ``header_timeout_s``."""
    return type("ServerProtocol", (_LimitedProtocol,), {"header_timeout_s": header_timeout_s, "idle": OrderedDict()})


class _LimitedProtocol(H11Protocol):
    header_timeout_s: ClassVar[float]
    idle: ClassVar[OrderedDict[_LimitedProtocol, None]]  # the connections without a request, the oldest first

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._timers: dict[str, asyncio.TimerHandle] = {}  # those that run: "headers", "stall"

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        super().connection_made(transport)
        self._start_timer("headers", self.header_timeout_s, self._headers_are_late)
        self._note_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():  # headers are not complete
            self._start_timer("headers", self.header_timeout_s, self._headers_are_late)
        else:
            self._stop_timers("headers")
            self.idle.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timers("headers", "stall")
        self.idle.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._note_idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_timer("stall", STALLED_S, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_timers("stall")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # closes when all has been written, which may be never
        if self.transport.get_write_buffer_size():
            self._start_timer("stall", STALLED_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestRefused(msg, code="malformed_http"))

    def _note_idle(self) -> None:
        self.idle[self] = None
        if len(self.idle) > _MAX_IDLE:
            self.loop.call_later(_GRACE_S, self._close_oldest)

    def _close_oldest(self) -> None:
        while len(self.idle) > _MAX_IDLE:
            oldest, _ = self.idle.popitem(last=False)
            oldest.transport.abort()

    def _headers_are_late(self) -> None:
        self._stop_timers("headers")
        self._refuse(
            RequestRefused(
                f"expected all headers within {self.header_timeout_s:g} s", status=408, code="headers_too_late"
            )
        )

    def _refuse(self, refused: RequestRefused) -> None:
        """Answer without the app, and close the connection."""
        if self.transport.is_closing():
            return
        body = json.dumps(refused.body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            response = h11.Response(status_code=refused.status, headers=[*headers, (b"connection", b"close")])
            events = response, h11.Data(data=body), h11.EndOfMessage()
            # At once: a client that still sends may find the connection reset before it reads a second part.
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def _start_timer(self, name: str, seconds: float, act: Callable[[], Any]) -> None:
        if name not in self._timers:
            self._timers[name] = self.loop.call_later(seconds, act)

    def _stop_timers(self, *names: str) -> None:
        for name in names:
            if name in self._timers:
                self._timers.pop(name).cancel()
