"""The answers of /v1/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..error_responses import RequestRefused
from .answer import Answer, Delta
from .logprobs import ShownToken, completion_logprobs
from .parts import CallArguments, Part, Text, Thinking
from .shape import Reply, usage
from .sse import DONE, event


class CompletionShape:
    """See ``Shape``. The choices of the second prompt follow those of the first.

    Args:
        reply: the response.
    """

    def __init__(self, reply: Reply):
        self._reply = reply
        self._offsets = [
            len(self._echo(index)) for index in reply.indices()
        ]  # of the next token with a log probability

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """See ``Shape``."""
        choices = [
            self._choice(index, self._echo(index) + answer.content.text, answer.logprobs, answer.finish_reason)
            for index, answer in enumerate(answers)
        ]
        return {**self._head(), "choices": choices, "usage": usage(self._reply, generated)}

    def begin(self) -> Iterator[str]:
        """See ``Shape``."""
        for index in self._reply.indices():
            if echo := self._echo(index):
                yield self._chunk(index, echo)

    def add(self, answer: Answer, delta: Delta) -> Iterator[str]:
        """See ``Shape``."""
        text = "".join(map(_text_of, delta.parts))
        if text or delta.logprobs:
            yield self._chunk(answer.index, text, delta.logprobs)

    def end(self, answer: Answer) -> Iterator[str]:
        """See ``Shape``."""
        yield self._chunk(answer.index, "", finish_reason=answer.finish_reason)

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """See ``Shape``."""
        if self._reply.call.include_usage:
            yield event({**self._head(), "choices": [], "usage": usage(self._reply, answers)})
        yield DONE

    def fail(self, error: RequestRefused) -> Iterator[str]:
        """See ``Shape``."""
        yield event(error.body)
        yield DONE

    def _echo(self, index: int) -> str:
        return self._reply.prompt_texts[index // self._reply.call.num_answers]

    def _chunk(
        self, index: int, text: str, logprobs: Sequence[ShownToken] = (), finish_reason: str | None = None
    ) -> str:
        choice = self._choice(index, text, logprobs, finish_reason)
        usage = {"usage": None} if self._reply.call.include_usage else {}
        return event({**self._head(), "choices": [choice], **usage})

    def _choice(
        self, index: int, text: str, logprobs: Sequence[ShownToken], finish_reason: str | None
    ) -> dict[str, Any]:
        shown = None
        if self._reply.call.logprobs is not None:
            shown = completion_logprobs(logprobs, self._offsets[index])
            self._offsets[index] += len(b"".join(token.data for token in logprobs).decode(errors="replace"))
        return {"index": index, "text": text, "logprobs": shown, "finish_reason": finish_reason}

    def _head(self) -> dict[str, Any]:
        reply = self._reply
        return {
            "id": reply.request_id,
            "object": "text_completion",
            "created": reply.created,
            "model": reply.model,
        }


def _text_of(part: Part) -> str:
    return part.text if isinstance(part, (Text, Thinking, CallArguments)) else ""
