"""Errors as HTTP answers, in the shape that OpenAI's clients read."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from transformers.cli.serving.utils import CBWorkerDeadError, _GenerationCancelled

from ..errors import CompileLimitExceeded, ConstraintError, EmptyIntersection, HFGuidedError

log = logging.getLogger("hf_guided.serve")

_ERROR, _ERROR_END = 'data: {"error": "', '"}\n\n'
# The client's fault: the same request will never be served. Everything else is the server's.
_CLIENTS = (ConstraintError, CompileLimitExceeded, EmptyIntersection)


class RequestRefused(Exception):
    """A request that is not served.

    Args:
        message: what was expected, what came, what to do next.
        status: of the HTTP answer.
        code: a short name for the reason.
        param: which field of the request.
        pointers: JSON pointers to the errors inside its schema.
    """

    def __init__(
        self, message: str, *, status: int = 400, code: str, param: str | None = None, pointers: tuple[str, ...] = ()
    ):
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {
                "message": message,
                "type": "invalid_request_error" if status < 500 else "server_error",
                "param": param,
                "code": code,
                "pointers": list(pointers),
            }
        }

    @property
    def code(self) -> str:
        """The short name."""
        return str(self.body["error"]["code"])


def shuts_down() -> RequestRefused:
    """The end of a request that the server does not wait for."""
    return RequestRefused("the server shuts down; try again later", status=503, code="server_shuts_down")


def refusal(error: HFGuidedError, param: str | None = None) -> RequestRefused:
    """One of our errors as an answer: 400 where the request is at fault, 500 otherwise.

    Args:
        error: what was raised.
        param: the field of the request that was being read.
    """
    return RequestRefused(
        str(error),
        status=400 if isinstance(error, _CLIENTS) else 500,
        code=_snake(type(error).__name__),
        param=param,
        pointers=tuple(getattr(error, "pointers", ())),
    )


def error_body(message: str, status: int = 500, code: str | None = None) -> dict[str, Any]:
    """The body that OpenAI's clients read, for an error that is not one of ours."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


async def answer_refused(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for both kinds of our errors."""
    assert isinstance(error, (RequestRefused, HFGuidedError))
    refused = error if isinstance(error, RequestRefused) else refusal(error)
    if refused.status == 500:
        log.error("a request failed", exc_info=error)
    return JSONResponse(refused.body, status_code=refused.status)


async def answer_http(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for requests that transformers or FastAPI refuse."""
    assert isinstance(error, HTTPException)
    return JSONResponse(error_body(str(error.detail), error.status_code), error.status_code, headers=error.headers)


async def answer_malformed(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for bodies that are no JSON object."""
    assert isinstance(error, RequestValidationError)
    details = "; ".join(f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors())
    return JSONResponse(error_body(details, 400, "malformed_request"), 400)


class Failures:
    """ASGI middleware: every other exception is logged with its traceback, and answered.

    FastAPI's own handler of last resort would raise it once more, and the web server close the connection for that,
    which other requests may be using.

    Args:
        app: what may fail.
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
            dead = isinstance(error, CBWorkerDeadError)
            body = error_body(f"{type(error).__name__}: {error}", code="batching_has_stopped" if dead else None)
            await JSONResponse(body, 503 if dead else 500)(scope, receive, send)


@contextmanager
def logged(request_id: str) -> Iterator[None]:
    """Around code that runs for a request: its exceptions are logged, since the client gets only a message.

    Args:
        request_id: the id in the log.
    """
    try:
        yield
    except _GenerationCancelled:
        raise
    except Exception:
        log.exception("request %s failed", request_id)
        raise


async def errors_as_objects(chunks: Any) -> AsyncIterator[str]:
    """An event stream of transformers' in which errors are objects, as OpenAI's clients read them.

    Args:
        chunks: whole events; an error is the last, its text put between quotes as it is.
    """
    async with aclosing(chunks):
        async for chunk in chunks:
            before, mark, message = chunk.partition(_ERROR)
            if mark:
                chunk = f"{before}data: {json.dumps(error_body(message.removesuffix(_ERROR_END)))}\n\n"
            yield chunk


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
