"""Who may ask: API keys, and the pages whose scripts may call the server."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from hashlib import sha256

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from .error_responses import RequestRefused

_OPEN = frozenset({"/health"})  # for whoever watches over the server


class ApiKeys:
    """ASGI middleware: a request has to give one of the keys, as "Authorization: Bearer KEY".

    Args:
        app: what serves the others.
        keys: at least one.
    """

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


def is_local(host: str) -> bool:
    """Whether only this machine can reach a server at this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, or none: all addresses
        return False
