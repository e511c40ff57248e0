"""Answers in the shapes of OpenAI's routes: what all writers share, and those of chats and of completions.

Streams are server-sent events.
"""

# ruff: noqa: D102 - methods without docstrings are those of Writer
from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from ..error_responses import RequestRefused
from ..job import Call
from .answer import Answer, Delta, Limited, ShownToken
from .parts import CallArguments, CallBegins, Part, Text, Thinking

DONE = "data: [DONE]\n\n"
# Clients ignore comments; they keep connections open that something between would close as idle.
HEARTBEAT = ": waiting\n\n"


def event(value: Any, name: str | None = None) -> str:
    """An event with an object as its data; ASCII alone, for some clients split lines at other characters too."""
    head = "" if name is None else f"event: {name}\n"
    return f"{head}data: {json.dumps(value, separators=(',', ':'))}\n\n"


def new_id(prefix: str) -> str:
    """An id that no other has."""
    return prefix + uuid.uuid4().hex


def listed_logprobs(tokens: Sequence[ShownToken]) -> list[dict[str, Any]]:
    """Log probabilities as chats and responses have them."""

    def plain(data: bytes, logprob: float) -> dict[str, Any]:
        return {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": logprob}

    return [{**plain(t.data, t.logprob), "top_logprobs": [plain(*other) for other in t.top]} for t in tokens]


def own_fields(limited: Limited) -> dict[str, Any]:
    """The field of a choice that has ended, or of a response, that OpenAI's API does not have."""
    return {"hf_guided": {name: value for name, value in limited._asdict().items() if value is not None}}


class Writer(ABC):
    """Writes the response to one request; a stream is ``begin``, then deltas, then ``finish`` or ``fail``.

    Args:
        call: the request.
        model: its name for clients.
        request_id: of the request.
        num_prompt_tokens: of all prompts.
        echoes: for each prompt, the text that the answer repeats; empty strings without ``echo``.
    """

    def __init__(self, call: Call, model: str, request_id: str, num_prompt_tokens: int, echoes: Sequence[str] = ("",)):
        self._call, self._model, self._request_id = call, model, request_id
        self._num_prompt_tokens, self._echoes = num_prompt_tokens, echoes
        self._created = int(time.time())

    @abstractmethod
    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """The body of a response that is not streamed.

        Args:
            answers: to show.
            generated: these, and those that were not chosen.
        """

    @abstractmethod
    def begin(self) -> Iterator[str]:
        """The events before the first token."""

    @abstractmethod
    def add(self, index: int, delta: Delta) -> Iterator[str]:
        """The events for further tokens of an answer, and for its end."""

    @abstractmethod
    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """The last events; the answers are all that were generated."""

    @abstractmethod
    def fail(self, error: RequestRefused) -> Iterator[str]:
        """The last events instead, after an error."""


class _ChunkWriter(Writer):
    """Answers are choices, and streams are chunks of choices."""

    kinds: ClassVar[tuple[str, str]]  # kinds of a whole response and of a chunk

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        if self._call.include_usage:
            yield event({**self._head(self.kinds[1]), "choices": [], "usage": self._usage(answers)})
        yield DONE

    def fail(self, error: RequestRefused) -> Iterator[str]:
        yield event(error.body)
        yield DONE

    def _indices(self) -> range:
        """Numbers of the answers that the response shows."""
        return range(len(self._call.prompts) * self._call.num_answers)

    def _body(self, choices: list[dict[str, Any]], generated: Sequence[Answer]) -> dict[str, Any]:
        return {**self._head(self.kinds[0]), "choices": choices, "usage": self._usage(generated)}

    def _choice(
        self, index: int, content: dict[str, Any], logprobs: dict[str, Any] | None, end: Answer | Delta | None
    ) -> dict[str, Any]:
        """A choice, or a part of one, which may be its end."""
        reason, own = (None, {}) if end is None else (end.finish_reason, own_fields(end.limited))
        return {"index": index, **content, "logprobs": logprobs, "finish_reason": reason, **own}

    def _chunk(self, choice: dict[str, Any]) -> str:
        usage = {"usage": None} if self._call.include_usage else {}
        return event({**self._head(self.kinds[1]), "choices": [choice], **usage})

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._request_id, "object": kind, "created": self._created, "model": self._model}

    def _usage(self, answers: Sequence[Answer]) -> dict[str, Any]:
        completion = sum(answer.num_tokens for answer in answers)
        return {
            "prompt_tokens": self._num_prompt_tokens,
            "completion_tokens": completion,
            "total_tokens": self._num_prompt_tokens + completion,
            "completion_tokens_details": {"reasoning_tokens": sum(answer.num_thinking_tokens for answer in answers)},
        }


class ChatWriter(_ChunkWriter):
    """The answers of /v1/chat/completions."""

    kinds = ("chat.completion", "chat.completion.chunk")

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        choices = []
        for index, answer in enumerate(answers):
            logprobs = None if self._call.logprobs is None else _chat_logprobs(answer.logprobs)
            choices.append(self._choice(index, {"message": self._message(answer)}, logprobs, answer))
        return self._body(choices, generated)

    def begin(self) -> Iterator[str]:
        for index in self._indices():
            yield self._delta(index, {"role": "assistant", "content": ""})

    def add(self, index: int, delta: Delta) -> Iterator[str]:
        deltas = [_delta_of(part) for part in delta.parts]
        if not deltas and delta.logprobs:
            deltas = [{"content": ""}]
        for number, made in enumerate(deltas, 1):
            yield self._delta(index, made, delta.logprobs if number == len(deltas) else ())
        if delta.finish_reason is not None:
            yield self._delta(index, {}, end=delta)

    def _message(self, answer: Answer) -> dict[str, Any]:
        content = answer.content
        message: dict[str, Any] = {"role": "assistant", "content": content.text, "refusal": None}
        if content.thinking:
            message["reasoning_content"] = content.thinking
        if content.calls:
            message["content"] = content.text or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in content.calls
            ]
        return message

    def _delta(
        self, index: int, delta: dict[str, Any], logprobs: Sequence[ShownToken] = (), end: Delta | None = None
    ) -> str:
        shown = _chat_logprobs(logprobs) if logprobs else None
        return self._chunk(self._choice(index, {"delta": delta}, shown, end))


def _delta_of(part: Part) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"content": part.text}
    if isinstance(part, Thinking):
        return {"reasoning_content": part.text}
    call: dict[str, Any] = {"index": part.number}
    if isinstance(part, CallBegins):
        call |= {"id": part.id, "type": "function", "function": {"name": part.name, "arguments": ""}}
    else:
        call["function"] = {"arguments": part.text}
    return {"tool_calls": [call]}


def _chat_logprobs(tokens: Sequence[ShownToken]) -> dict[str, Any]:
    return {"content": listed_logprobs(tokens), "refusal": None}


class CompletionWriter(_ChunkWriter):
    """The answers of /v1/completions; the choices of the second prompt follow those of the first."""

    kinds = ("text_completion", "text_completion")

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        # Of the next token with a log probability, in each answer.
        self._offsets = [len(self._echo(index)) for index in self._indices()]

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        choices = [
            self._text(index, self._echo(index) + answer.content.text, answer.logprobs, answer)
            for index, answer in enumerate(answers)
        ]
        return self._body(choices, generated)

    def begin(self) -> Iterator[str]:
        for index in self._indices():
            if echo := self._echo(index):
                yield self._chunk(self._text(index, echo))

    def add(self, index: int, delta: Delta) -> Iterator[str]:
        text = "".join(part.text for part in delta.parts if isinstance(part, (Text, Thinking, CallArguments)))
        if text or delta.logprobs:
            yield self._chunk(self._text(index, text, delta.logprobs))
        if delta.finish_reason is not None:
            yield self._chunk(self._text(index, "", end=delta))

    def _echo(self, index: int) -> str:
        return self._echoes[index // self._call.num_answers]

    def _text(
        self, index: int, text: str, logprobs: Sequence[ShownToken] = (), end: Answer | Delta | None = None
    ) -> dict[str, Any]:
        shown = None
        if self._call.logprobs is not None:
            shown = _completion_logprobs(logprobs, self._offsets[index])
            self._offsets[index] += len(b"".join(token.data for token in logprobs).decode(errors="replace"))
        return self._choice(index, {"text": text}, shown, end)


def _completion_logprobs(tokens: Sequence[ShownToken], offset: int) -> dict[str, Any]:
    """The first token stands at this offset in the text, in characters."""
    offsets = []
    data = b""
    for token in tokens:
        offsets.append(offset + len(data.decode(errors="ignore")))
        data += token.data
    return {
        "tokens": [_name(token.data) for token in tokens],
        "token_logprobs": [token.logprob for token in tokens],
        "top_logprobs": [{_name(data): logprob for data, logprob in token.top} for token in tokens],
        "text_offset": offsets,
    }


def _name(data: bytes) -> str:
    """The token's text; for a part of a character its bytes, as OpenAI writes them: several tokens differ in them."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
