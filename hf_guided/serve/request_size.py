"""A bound on the size of request bodies, which the web server itself does not have."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .error_responses import RequestRefused


class RequestSizeLimit:
    """ASGI middleware: bodies above a size are refused, before they are read where their length is declared.

    Args:
        app: what serves the others.
        max_bytes: the largest body that is read.
    """

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
