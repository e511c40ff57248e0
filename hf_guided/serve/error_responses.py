"""Errors as HTTP answers, in the shape that OpenAI's clients read."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import (
    CompileLimitExceeded,
    ConstraintError,
    EmptyIntersection,
    HFGuidedError,
    InvalidArgument,
    PromptError,
    StopTokenError,
    shown,
)

log = logging.getLogger("hf_guided.serve")

# The client's fault: the same request will never be served. Everything else is the server's.
_CLIENTS = (ConstraintError, CompileLimitExceeded, EmptyIntersection, InvalidArgument, PromptError, StopTokenError)
_KINDS = {401: "authentication_error", 429: "rate_limit_error"}
_LONGEST = 2000  # characters of a message
_LEAST_SAID = 120  # smallest number of characters of the message, however many pointers there are
MOST_ECHOED = 200  # characters of a request that its answer may repeat
# Paths of this machine, which an error of another library may name. Pointers into schemas are in our own errors only.
_PATH = re.compile(r"(?:[A-Za-z]:)?(?:[/\\][\w.+@-]+){2,}[/\\]?")


class RequestRefused(Exception):
    """A request that is not served.

    Args:
        message: what was expected, what came, what to do next.
        status: of the HTTP answer.
        code: a short name for the reason.
        param: which field of the request.
        pointers: JSON pointers to the errors inside its schema.
        retry_after_s: after how many seconds the same request may be served; None says nothing.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        code: str,
        param: str | None = None,
        pointers: tuple[str, ...] = (),
        retry_after_s: int | None = None,
    ):
        super().__init__(message)
        self.status = status
        self.headers: dict[str, str] = {} if retry_after_s is None else {"Retry-After": str(retry_after_s)}
        self.body: dict[str, Any] = {
            "error": {
                "message": shorten(message, _LONGEST),
                "type": _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error"),
                "param": param,
                "code": code,
                "pointers": list(pointers),
            }
        }

    @property
    def code(self) -> str:
        """The short name."""
        return str(self.body["error"]["code"])

    def response(self, app: Any) -> JSONResponse:
        """The refusal as an HTTP answer; the app's metrics count it."""
        app.state.metrics.count("refused", self.code)
        return JSONResponse(self.body, self.status, self.headers)

    async def send(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        await self.response(scope["app"])(scope, receive, send)


def busy(what: str, code: str, retry_after_s: int) -> RequestRefused:
    """The end of a request that has waited too long for its turn."""
    message = f"the server is busy with the {what} of other requests; try again later"
    return RequestRefused(message, status=503, code=code, retry_after_s=retry_after_s)


def shuts_down() -> RequestRefused:
    """The end of a request that the server does not wait for."""
    return RequestRefused(
        "the server shuts down; try again later", status=503, code="server_shuts_down", retry_after_s=10
    )


def refusal(error: HFGuidedError, param: str | None = None) -> RequestRefused:
    """An error of ours as an answer: 400 where the request is at fault, 500 otherwise.

    Its message and its pointers together have at most ``MOST_ECHOED`` characters, for all of it may be the request's.
    """
    pointers, left = [], MOST_ECHOED
    for pointer in getattr(error, "pointers", ()):
        if left - len(pointer) < _LEAST_SAID:
            break
        left -= len(pointer)
        pointers.append(pointer)
    message = shorten(str(error), left)
    status = 400 if isinstance(error, _CLIENTS) else 500
    code = _snake(type(error).__name__)
    return RequestRefused(message, status=status, code=code, param=param, pointers=tuple(pointers))


def refused(param: str | None, message: str, code: str = "invalid_value", status: int = 400) -> RequestRefused:
    """A refusal that names the path of its field, such as ``messages.3.content``; None is the whole body."""
    text = message if param is None else f"{param}: {message}"
    return RequestRefused(text, status=status, code=code, param=param)


def expected(param: str, what: str, value: object) -> RequestRefused:
    """A refusal of a value."""
    return refused(param, f"expected {what}, got {shown(value)}")


@contextmanager
def naming(param: str | None) -> Iterator[None]:
    """Errors of a constraint become refusals that name its field."""
    try:
        yield
    except HFGuidedError as error:
        raise refusal(error, param) from error


def shorten(text: str, limit: int) -> str:
    """The text without its middle, if it is too long."""
    head = (limit - 5) * 2 // 3
    return text if len(text) <= limit else f"{text[:head]} ... {text[len(text) - (limit - 5 - head) :]}"


def as_refused(error: Exception) -> RequestRefused:
    """Any error as an answer; one that is not known is the server's, and names no file of this machine."""
    if isinstance(error, RequestRefused):
        return error
    if isinstance(error, HFGuidedError):
        return refusal(error)
    message = _PATH.sub("(path)", str(error)) or type(error).__name__
    return RequestRefused(message, status=500, code="internal_error")


async def answer_error(request: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for all errors of routes."""
    if isinstance(error, HTTPException):  # FastAPI's own: no such route, no such method
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
        refused = RequestRefused(str(error.detail), status=error.status_code, code=code)
        refused.headers |= error.headers or {}
    else:
        refused = as_refused(error)
    if refused.status == 500:
        log.error("a request failed", exc_info=error)
    return refused.response(request.app)


class Failures:
    """ASGI middleware: every other exception is logged with its traceback, and answered.

    FastAPI's own handler of last resort would raise it once more, and the web server close the connection for that,
    which other requests may be using.
    """

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            log.exception("%s failed", scope["path"])
            await as_refused(error).send(scope, receive, send)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
