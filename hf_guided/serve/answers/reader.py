"""One answer as it grows, split into thinking, text and tool calls.

The constraint itself defines the parts: the gate where thinking ends, the tag of the tool calls what a call is. A free
answer of a model that thinks may begin with thinking, or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...constraints.incremental_utf8 import utf8_decoder
from ...constraints.tool_calls import ToolCalls
from ...constraints.values import Constraint
from ...session.reasoning import Opening, ReasoningGate, Splitter
from ...vocabulary.tokens import Vocabulary
from .call_reader import CallReader
from .parts import Part, Text, Thinking
from .stop_strings import StopStrings


@dataclass(frozen=True)
class Format:
    """How an answer's tokens are to be read.

    Args:
        vocabulary: of the tokenizer, in which all that the constraint writes is text.
        constraint: of the answer, bound to the tokenizer; None is free.
        gate: of the thinking before it, if the model thinks.
        header: what a free answer may begin with that is no part of its text.
        stop: texts that end the answer.
        stop_token_ids: tokens that end it, and are no part of its text.
    """

    vocabulary: Vocabulary
    constraint: Constraint | None = None
    gate: ReasoningGate | None = None
    header: bytes = b""
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()


class AnswerReader:
    """Reads tokens, and gives each part as soon as its kind is known.

    Args:
        format: of the answer.
        prompt: token ids, which may have begun the thinking.
    """

    def __init__(self, format: Format, prompt: Sequence[int]):
        gate = None if format.gate is None else format.gate.for_vocabulary(format.vocabulary)
        self.vocabulary = format.vocabulary if gate is None else gate.vocabulary
        self._stop_token_ids = format.stop_token_ids
        self._stops = StopStrings(format.stop)
        self._thinking = (
            None if gate is None else _Thinking(gate, prompt, free=format.constraint is None, header=format.header)
        )
        self._thought = _Text()
        self._answer = CallReader(format.constraint) if isinstance(format.constraint, ToolCalls) else _Text()
        self.num_bytes = 0  # of all tokens so far
        self._given = 0  # of them, the bytes that are certainly before a stop string
        self.answer_start: int | None = None if self._thinking is not None else 0  # the first byte after the thinking

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the answer."""
        return self._stops.found

    @property
    def text_end(self) -> int:
        """The bytes up to the end of the text that has been passed on, before any tool call."""
        return (self.answer_start or 0) + self._answer.num_given

    def data(self, token_id: int) -> bytes:
        """The bytes of a token as text; a token that ends the answer has none."""
        return b"" if token_id in self._stop_token_ids else self.vocabulary.decode_bytes((token_id,))

    def name(self, token_id: int) -> bytes:
        """Its bytes; of a token without text its name, such as "<|im_end|>"."""
        return self.data(token_id) or str(self.vocabulary.tokenizer.convert_ids_to_tokens(token_id)).encode()

    def feed(self, token_ids: Sequence[int]) -> Iterator[Part]:
        """The parts that further tokens complete."""
        data = b"".join(map(self.data, token_ids))
        self.num_bytes += len(data)
        yield from self._read(self._stops.feed(data))

    def finish(self) -> Iterator[Part]:
        """The text that was held back; called after the last token."""
        yield from self._read(self._stops.finish())
        if self._thinking is not None:
            thinking, rest = self._thinking.finish()
            if thought := self._thought.decoded(thinking):
                yield Thinking(thought)
            if self._thinking.over and self.answer_start is None:
                self.answer_start = 0
            yield from self._answer.feed(rest)
            if not self._thinking.over:
                return
        yield from self._answer.finish()

    def _read(self, data: bytes) -> Iterator[Part]:
        self._given += len(data)
        if self._thinking is not None:
            thinking, data = self._thinking.take(data)
            if thought := self._thought.decoded(thinking):
                yield Thinking(thought)
            if self._thinking.over and self.answer_start is None:
                self.answer_start = self._given - len(data)
        yield from self._answer.feed(data)


class _Thinking:
    """Separates the thinking from the answer.

    Args:
        gate: the markers.
        prompt: token ids, which may have begun the thinking.
        free: whether the output may begin with the answer; a guided one begins with the start marker.
        header: what the answer may then begin with that is no part of its text.
    """

    def __init__(self, gate: ReasoningGate, prompt: Sequence[int], *, free: bool, header: bytes):
        self._gate, self._header = gate, header
        self._held = b""  # may be the beginning of the start marker
        opening = gate.opening(prompt)
        may_begin = free and opening is Opening.NOTHING
        self._splitter: Splitter | None = None if may_begin else gate.splitter(opening)

    @property
    def over(self) -> bool:
        """Whether all further text belongs to the answer."""
        return self._splitter is not None and self._splitter.over

    def take(self, data: bytes) -> tuple[bytes, bytes]:
        """The bytes that are added to the thinking, and to the answer."""
        if self._splitter is None:
            data = self._held + data
            start = self._gate.reasoning.start.encode()
            if any(len(data) < len(mark) and mark.startswith(data) for mark in (start, self._header)):
                self._held = data
                return b"", b""
            opening = Opening.NOTHING if data.startswith(start) else Opening.ALL
            if opening is Opening.ALL and self._header:
                data = data.removeprefix(self._header)
            self._splitter = self._gate.splitter(opening)
        return self._splitter.take(data)

    def finish(self) -> tuple[bytes, bytes]:
        """The bytes that were held back."""
        if self._splitter is None:
            self._splitter = self._gate.splitter(Opening.ALL)
            return b"", self._held
        return self._splitter.rest(), b""


class _Text:
    """Bytes as text, in whole characters."""

    def __init__(self) -> None:
        self._decoder = utf8_decoder()
        self.num_given = 0  # bytes

    def decoded(self, data: bytes) -> str:
        return self._decoder.decode(data)

    def feed(self, data: bytes) -> Iterator[Part]:
        self.num_given += len(data)
        if text := self.decoded(data):
            yield Text(text)

    def finish(self) -> Iterator[Part]:
        if rest := self._decoder.decode(b"", final=True):
            yield Text(rest)
