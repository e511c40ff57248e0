"""The answers of /v1/chat/completions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..error_responses import RequestRefused
from .answer import Answer, Delta
from .logprobs import ShownToken, chat_logprobs
from .parts import CallArguments, CallBegins, Part, Text, Thinking
from .shape import Reply, usage
from .sse import DONE, event


class ChatShape:
    """See ``Shape``.

    Args:
        reply: the response.
    """

    def __init__(self, reply: Reply):
        self._reply = reply

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """See ``Shape``."""
        reply = self._reply
        return {
            "id": reply.request_id,
            "object": "chat.completion",
            "created": reply.created,
            "model": reply.model,
            "choices": [
                {
                    "index": index,
                    "message": self._message(answer),
                    "logprobs": None if reply.call.logprobs is None else chat_logprobs(answer.logprobs),
                    "finish_reason": answer.finish_reason,
                }
                for index, answer in enumerate(answers)
            ],
            "usage": usage(reply, generated),
        }

    def begin(self) -> Iterator[str]:
        """See ``Shape``."""
        for index in self._reply.indices():
            yield self._chunk(index, {"role": "assistant", "content": ""})

    def add(self, answer: Answer, delta: Delta) -> Iterator[str]:
        """See ``Shape``."""
        deltas = [self._delta(part) for part in delta.parts]
        if not deltas and delta.logprobs:
            deltas = [{"content": ""}]
        for number, made in enumerate(deltas, 1):
            yield self._chunk(answer.index, made, logprobs=delta.logprobs if number == len(deltas) else ())

    def end(self, answer: Answer) -> Iterator[str]:
        """See ``Shape``."""
        yield self._chunk(answer.index, {}, finish_reason=answer.finish_reason)

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """See ``Shape``."""
        if self._reply.call.include_usage:
            yield event({**self._head(), "choices": [], "usage": usage(self._reply, answers)})
        yield DONE

    def fail(self, error: RequestRefused) -> Iterator[str]:
        """See ``Shape``."""
        yield event(error.body)
        yield DONE

    def _message(self, answer: Answer) -> dict[str, Any]:
        content = answer.content
        message: dict[str, Any] = {"role": "assistant", "content": content.text, "refusal": None}
        if content.thinking:
            message["reasoning_content"] = content.thinking
        if content.calls:
            message["content"] = content.text or None
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in content.calls
            ]
        return message

    def _delta(self, part: Part) -> dict[str, Any]:
        if isinstance(part, Text):
            return {"content": part.text}
        if isinstance(part, Thinking):
            return {"reasoning_content": part.text}
        call: dict[str, Any] = {"index": part.number}
        if isinstance(part, CallBegins):
            call |= {"id": part.id, "type": "function"}
            call["function"] = {"name": part.name, "arguments": ""}
        elif isinstance(part, CallArguments):
            call["function"] = {"arguments": part.text}
        return {"tool_calls": [call]}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        *,
        logprobs: Sequence[ShownToken] = (),
        finish_reason: str | None = None,
    ) -> str:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": chat_logprobs(logprobs) if logprobs else None,
            "finish_reason": finish_reason,
        }
        return event({**self._head(), "choices": [choice]})

    def _head(self) -> dict[str, Any]:
        reply = self._reply
        head = {
            "id": reply.request_id,
            "object": "chat.completion.chunk",
            "created": reply.created,
            "model": reply.model,
        }
        return {**head, "usage": None} if reply.call.include_usage else head
