"""Errors as HTTP answers, in the shape that OpenAI's clients read."""

from __future__ import annotations

import re
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from ..errors import CompileLimitExceeded, ConstraintError, EmptyIntersection, HFGuidedError

# The client's fault: the same request will never be served. Everything else is the server's.
_CLIENTS = (ConstraintError, CompileLimitExceeded, EmptyIntersection)


class RequestRefused(Exception):
    """A request that is not served.

    Args:
        message: what was expected, what came, what to do next.
        status: of the HTTP answer.
        code: a short name for the reason.
        param: which field of the request.
        pointers: JSON pointers to what is wrong inside its schema.
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


def refusal(error: HFGuidedError, param: str | None = None) -> RequestRefused:
    """An error of ours as an answer: 400 where the request is at fault, 500 otherwise.

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


async def answer_refused(_: Request, error: Exception) -> JSONResponse:
    """FastAPI's handler for both kinds."""
    assert isinstance(error, (RequestRefused, HFGuidedError))
    refused = error if isinstance(error, RequestRefused) else refusal(error)
    return JSONResponse(refused.body, status_code=refused.status)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
