"""The body of a request, read in time and as JSON."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from .error_responses import RequestRefused, shuts_down


async def body_of(request: Request, timeout_s: float, closed: asyncio.Event) -> bytes:
    """The whole body.

    Args:
        request: whose body has not been read.
        timeout_s: in which it has to arrive.
        closed: set when the server shuts down, which does not wait for bodies.

    Raises:
        RequestRefused: it is late (408), its client has left (499), or the server shuts down (503).
    """
    reading = asyncio.ensure_future(request.body())
    closing = asyncio.ensure_future(closed.wait())
    try:
        await asyncio.wait({reading, closing}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if reading.done():
            return reading.result()
        raise shuts_down() if closing.done() else _late_body()
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


def _late_body() -> RequestRefused:
    return RequestRefused("expected the whole body in time", status=408, code="body_too_late")
