"""One guided answer as it grows, split into thinking, text and tool calls.

transformers uses a template for each kind of model, which has to match the model's own format.
Here the constraint itself defines the parts: the gate where thinking ends, the tag of the tool calls what a call is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from transformers.cli.serving.utils import ReasoningText, ToolCall

from ..constraints.incremental_utf8 import utf8_decoder
from ..constraints.tool_calls import ToolCalls
from ..constraints.values import Constraint
from ..session.reasoning import Opening, ReasoningGate
from ..vocabulary.tokens import Vocabulary

Part: TypeAlias = str | ToolCall  # a piece of text (as ReasoningText, of thinking), or a whole call


class AnswerReader:
    """Reads tokens, and emits each part as soon as its kind is known.

    Args:
        vocabulary: of the tokenizer.
        constraint: the constraint of the answer; tool calls with their format.
        gate: the gate of the thinking before it, if the model thinks first.
        prompt: token ids, which may have begun the thinking.
    """

    def __init__(
        self, vocabulary: Vocabulary, constraint: Constraint, gate: ReasoningGate | None, prompt: Sequence[int]
    ):
        opening = Opening.ALL if gate is None else gate.opening(prompt)
        self._vocabulary = vocabulary if gate is None else gate.vocabulary
        self._thinking = None if gate is None else gate.splitter(opening)
        self._thought = _Text()
        self._answer = _WithCalls(constraint) if isinstance(constraint, ToolCalls) else _Text()

    def feed(self, token_ids: Sequence[int]) -> Iterator[Part]:
        """The parts that further tokens complete; stop tokens are not text."""
        data = self._vocabulary.decode_bytes(token_ids)
        if self._thinking is not None:
            thinking, data = self._thinking.take(data)
            if thought := self._thought.feed(thinking):
                yield ReasoningText(thought)
        if text := self._answer.feed(data):
            yield text

    def finish(self) -> Iterator[Part]:
        """The text that was held back; called after the last token."""
        if self._thinking is not None and not self._thinking.over:  # it was cut
            if thought := self._thought.feed(self._thinking.rest()):
                yield ReasoningText(thought)
            return
        yield from self._answer.finish()


class Message:
    """The pieces of an answer as one message."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[dict[str, Any]] = []

    def add(self, part: Part | None) -> None:
        """Append a part; None marks the end."""
        if part is None:
            return
        if isinstance(part, ToolCall):
            self._calls.append({"type": "function", "function": {"name": part.name, "arguments": part.arguments}})
        else:
            (self._thinking if isinstance(part, ReasoningText) else self._text).append(part)

    def as_dict(self) -> dict[str, Any]:
        """As ``tokenizer.parse_response`` gives it."""
        message: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._thinking:
            message["reasoning_content"] = "".join(self._thinking)
        if self._calls:
            message["tool_calls"] = self._calls
        return message


class _Text:
    """Bytes as text, in whole characters."""

    def __init__(self) -> None:
        self._decoder = utf8_decoder()

    def feed(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def finish(self) -> Iterator[Part]:
        if rest := self._decoder.decode(b"", final=True):
            yield rest


class _WithCalls:
    """Text and calls. Text is given as it comes until something may be a call, which is known when all has come."""

    def __init__(self, constraint: ToolCalls):
        self._constraint = constraint
        self._decoder = _Text()
        self._text = ""
        self._given = 0

    def feed(self, data: bytes) -> str:
        self._text += self._decoder.feed(data)
        text_end = self._constraint.plain(self._text)
        given, self._given = self._text[self._given : text_end], max(text_end, self._given)
        return given

    def finish(self) -> Iterator[Part]:
        try:
            answer = self._constraint.parse(self._text)
        except ValueError:  # it was cut; an incomplete call is no call
            return
        if rest := answer.text[self._given :]:
            yield rest
        for call in answer.calls:
            yield ToolCall(call.name, json.dumps(call.arguments))
