"""An ASGI layer before Gradio's own server: whose requests it takes, and how large they may be.

Gradio's server takes files from everyone, and bodies of any size. This page needs no files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Message, _Receive, _Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """Refuses file uploads, large bodies, and requests that were addressed to another host.

    Args:
        app: the server that gets the requests that are not refused.
        hosts: names in the Host header that are served; None serves all. A page of another site can make its own name
            point to this machine (DNS rebinding); its requests carry that name.
        max_bytes: the most bytes in a body.
    """

    def __init__(self, app: _App, hosts: tuple[str, ...] | None, max_bytes: int):
        self._app, self._hosts, self._max_bytes = app, hosts, max_bytes

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        if self._hosts is not None and _host(headers.get(b"host", "")) not in self._hosts:
            return await _refuse(send, 400, "this host name is not served here")
        if scope["path"].rstrip("/").endswith("/upload") or any(
            name.lower() == b"content-type" and value.strip().lower().startswith(b"multipart/")
            for name, value in scope["headers"]
        ):  # Gradio also keeps files that come to other paths, as recordings
            return await _refuse(send, 403, "this page takes no files")
        length = headers.get(b"content-length")
        if length is not None and not (length.isdecimal() and int(length) <= self._max_bytes):
            return await _refuse(send, 413, "the request is too large")
        if length is None:
            whole = await self._read(receive)
            if whole is None:
                return await _refuse(send, 413, "the request is too large")
            receive = _replayed(whole, receive)
        await self._app(scope, receive, send)

    async def _read(self, receive: _Receive) -> _Message | None:
        """A body of unknown length as one message; None if it has too many bytes. Also the end of the connection."""
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return {"type": "http.request", "body": body, "more_body": False}


def _replayed(first: _Message, receive: _Receive) -> _Receive:
    """What gives a message that was read already, and then those that follow."""
    waiting = [first]

    async def replayed() -> _Message:
        return waiting.pop() if waiting else await receive()

    return replayed


def _host(header: str) -> str:
    """The name in a Host header, without the port."""
    name, _, port = header.rpartition(":")
    return (name if port.isdecimal() else header).lower()


async def _refuse(send: _Send, status: int, reason: str) -> None:
    body = reason.encode()
    headers = [
        (b"content-type", b"text/plain"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
