"""What the answers of the three routes have in common."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from ..call import Call
from ..error_responses import RequestRefused
from .answer import Answer, Delta


@dataclass(frozen=True)
class Reply:
    """One response to a request.

    Args:
        call: the request.
        model: its name for clients.
        request_id: of the request.
        prompt_tokens: of all prompts.
        prompt_texts: for each prompt, the text that the answer repeats; empty strings without ``echo``.
    """

    call: Call
    model: str
    request_id: str
    prompt_tokens: int
    prompt_texts: tuple[str, ...] = ("",)
    created: int = field(default_factory=lambda: int(time.time()))

    def indices(self) -> range:
        """Of the answers that the response shows."""
        return range(len(self.call.prompts) * self.call.num_answers)


class Shape(Protocol):
    """The form of a route's answers; a stream is ``begin``, then deltas and ends, then ``finish`` or ``fail``."""

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """The body of a response that is not streamed.

        Args:
            answers: to show.
            generated: these, and those that were not chosen.
        """

    def begin(self) -> Iterator[str]:
        """The events before the first token."""

    def add(self, answer: Answer, delta: Delta) -> Iterator[str]:
        """The events for further tokens of an answer."""

    def end(self, answer: Answer) -> Iterator[str]:
        """The events for the end of an answer."""

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """The last events; the answers are all that were generated."""

    def fail(self, error: RequestRefused) -> Iterator[str]:
        """The last events instead, after an error."""


def usage(reply: Reply, answers: Sequence[Answer]) -> dict[str, Any]:
    """The tokens of a chat completion or a completion."""
    completion = sum(answer.num_tokens for answer in answers)
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": reply.prompt_tokens + completion,
        "completion_tokens_details": {"reasoning_tokens": sum(answer.num_thinking_tokens for answer in answers)},
    }


def new_id(prefix: str) -> str:
    """An id that no other has."""
    return prefix + uuid.uuid4().hex


new_request_id = partial(new_id, "req-")
