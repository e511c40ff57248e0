"""One guided answer as it grows, taken apart into thinking, text and tool calls.

transformers' own way goes by a template for each kind of model, which has to match what the model was made to write.
Here the constraint itself says what is what: the gate where thinking ends, the tag of the tool calls what a call is.
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
    """Reads tokens, and gives each piece as soon as it is known what it is.

    Args:
        vocabulary: of the tokenizer.
        constraint: what the answer keeps to; tool calls with their format.
        gate: what stands in front of it, if the model thinks first.
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
        """What further tokens make known; stop tokens are no text."""
        data = self._vocabulary.decode_bytes(token_ids)
        if self._thinking is not None:
            thinking, data = self._thinking.take(data)
            if thought := self._thought.feed(thinking):
                yield ReasoningText(thought)
        if text := self._answer.feed(data):
            yield text

    def finish(self) -> Iterator[Part]:
        """What was held back; behind the last token."""
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
        """Put a piece behind those there are; None stands behind the last."""
        if part is None:
            return
        if isinstance(part, ToolCall):
            self._calls.append({"type": "function", "function": {"name": part.name, "arguments": part.arguments}})
        else:
            (self._thinking if isinstance(part, ReasoningText) else self._text).append(part)

    def as_dict(self) -> dict[str, Any]:
        """As ``tokenizer.parse_response`` gives it."""
        found: dict[str, Any] = {"role": "assistant", "content": "".join(self._text)}
        if self._thinking:
            found["reasoning_content"] = "".join(self._thinking)
        if self._calls:
            found["tool_calls"] = self._calls
        return found


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
        place = self._constraint.plain(self._text)
        given, self._given = self._text[self._given : place], max(place, self._given)
        return given

    def finish(self) -> Iterator[Part]:
        try:
            answer = self._constraint.parse(self._text)
        except ValueError:  # it was cut; what there is of a call is no call
            return
        if rest := answer.text[self._given :]:
            yield rest
        for call in answer.calls:
            yield ToolCall(call.name, json.dumps(call.arguments))
