"""uvicorn's HTTP protocol with limits of time and number on connections, which it does not have.

- Headers have to arrive in time, from the first byte of a connection or from the first of a further request: 408.
- A client that takes nothing of its answer for a while is cut off: what waits for it is dropped.
- Connections without a request may be many, but not all that the process can have: beyond, the oldest is closed.
"""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .error_responses import RequestRefused

STALLED_S = 30.0  # how long a client may take nothing of its answer
_MAX_IDLE = 256  # connections without a request
_GRACE_S = 0.1  # before the oldest is closed: its request may have arrived, and is not read yet


def limited_protocol(header_timeout_s: float, stalled_s: float = STALLED_S) -> type[H11Protocol]:
    """The class of a server's connections.

    Args:
        header_timeout_s: in which the headers of a request have to arrive.
        stalled_s: how long a client may take nothing of its answer.
    """
    return type(
        "ServerProtocol",
        (_LimitedProtocol,),
        {"header_timeout_s": header_timeout_s, "stalled_s": stalled_s, "idle": OrderedDict()},
    )


class _LimitedProtocol(H11Protocol):
    header_timeout_s: ClassVar[float]
    stalled_s: ClassVar[float]
    idle: ClassVar[OrderedDict[_LimitedProtocol, None]]  # the connections without a request, the oldest first

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as the base class has it
        super().connection_made(transport)
        self._header_timer = self._later(self.header_timeout_s, self._headers_are_late)
        self._note_idle()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():  # headers are not complete
            if self._header_timer is None:
                self._header_timer = self._later(self.header_timeout_s, self._headers_are_late)
        else:
            _cancel(self._header_timer)
            self._header_timer = None
            self.idle.pop(self, None)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._header_timer)
        self._header_timer = None
        _cancel(self._stall_timer)
        self._stall_timer = None
        self.idle.pop(self, None)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.IDLE and not self.transport.is_closing():
            self._note_idle()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self._later(self.stalled_s, self.transport.abort)

    def resume_writing(self) -> None:
        _cancel(self._stall_timer)
        self._stall_timer = None
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()  # closes when all has been written, which may be never
        if self.transport.get_write_buffer_size() and self._stall_timer is None:
            self._stall_timer = self._later(self.stalled_s, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        self._refuse(RequestRefused(msg, code="malformed_http"))

    def _note_idle(self) -> None:
        self.idle[self] = None
        if len(self.idle) > _MAX_IDLE:
            self._later(_GRACE_S, self._close_oldest)

    def _close_oldest(self) -> None:
        while len(self.idle) > _MAX_IDLE:
            oldest, _ = self.idle.popitem(last=False)
            oldest.transport.abort()

    def _headers_are_late(self) -> None:
        self._header_timer = None
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

    def _later(self, seconds: float, act: Callable[[], Any]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, act)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
