"""The parts of an answer, and the readers that split its bytes: stop strings, thinking, text, tool calls.

The constraint itself defines the parts: the gate where thinking ends, the tag of the tool calls what a call is. A free
answer of a model that thinks may begin with thinking, or not.

Bytes, because a token may end inside a character: a stop string is found wherever its bytes are, over any tokens, and
in UTF-8 these cannot be a part of another character.
"""

from __future__ import annotations

import codecs
import json
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

from ...constraints.chat_families import begun
from ...constraints.tool_calls import ToolCalls
from ...constraints.tool_parser import LINE_ENDS
from ...session.reasoning import Opening, ReasoningGate, Space, Splitter


class Text(NamedTuple):
    """A piece of the answer itself."""

    text: str


class Thinking(NamedTuple):
    """A piece of the thinking before it."""

    text: str


class CallBegins(NamedTuple):
    """A tool call, before its arguments; the first one of an answer has the number 0."""

    number: int
    name: str
    id: str


class CallArguments(NamedTuple):
    """A piece of the arguments of the tool call with this number; together they are one JSON object."""

    number: int
    text: str


Part: TypeAlias = "Text | Thinking | CallBegins | CallArguments"


class StopStrings:
    """Passes an answer's bytes on, up to the first stop string."""

    def __init__(self, stops: Sequence[str]):
        self._stops = [stop.encode() for stop in stops]
        self._held = b""  # may be the beginning of a stop string
        self.found = False

    def feed(self, data: bytes) -> bytes:
        """The bytes that are part of the answer, whatever follows; none after a stop string."""
        if self.found:
            return b""
        data, self._held = self._held + data, b""
        ends = [(at + len(stop), at) for stop in self._stops if (at := data.find(stop)) >= 0]
        if ends:  # the one that was complete first
            self.found = True
            return data[: min(ends)[1]]
        held = max((begun(data, stop) for stop in self._stops), default=0)
        self._held = data[len(data) - held :]
        return data[: len(data) - held]

    def finish(self) -> bytes:
        """The bytes that were held back; called after the last token."""
        held, self._held = self._held, b""
        return held


class ThinkingReader:
    """Separates the thinking from the answer.

    Args:
        gate: the markers.
        prompt: token ids, which may have begun the thinking.
        free: whether the output may begin with the answer; a guided one begins with the start marker.
        header: what the answer may then begin with that is no part of its text.
        space: what may stand between the thinking and the answer, see ``reasoning_gate.space_before``.
    """

    def __init__(self, gate: ReasoningGate, prompt: Sequence[int], *, free: bool, header: bytes, space: Space):
        self._gate, self._header, self._space = gate, header, space
        self._held = b""  # may be the beginning of the start marker
        opening = gate.opening(prompt)
        may_begin = free and opening is Opening.NOTHING
        self._splitter: Splitter | None = None if may_begin else gate.splitter(opening, space)

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
            self._splitter = self._gate.splitter(opening, self._space)
        return self._splitter.take(data)

    def finish(self) -> tuple[bytes, bytes]:
        """The bytes that were held back."""
        if self._splitter is None:
            self._splitter = self._gate.splitter(Opening.ALL, self._space)
            return b"", self._held
        return self._splitter.rest(), b""


class TextReader:
    """Bytes as text, in whole characters."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.num_before, self.num_given = 0, 0  # bytes: of a header before the text, and of the text

    def decoded(self, data: bytes) -> str:
        """The characters that are complete."""
        return self._decoder.decode(data)

    def feed(self, data: bytes) -> Iterator[Part]:
        """The part that further bytes add."""
        self.num_given += len(data)
        if text := self.decoded(data):
            yield Text(text)

    def finish(self) -> Iterator[Part]:
        """The rest; called after the last byte."""
        if rest := self._decoder.decode(b"", final=True):
            yield Text(rest)


class CallReader:
    """Reads text with tool calls: text as it comes, and the arguments of a call piece by piece.

    Where the arguments of a call are JSON they are passed on as the model writes them; in other notations (elements)
    their types are known when the call is complete, so the call then comes as a whole.

    Args:
        constraint: bound to a tokenizer, so that its format is known.
    """

    def __init__(self, constraint: ToolCalls):
        self._constraint = constraint
        self._unique = uuid.uuid4().hex  # ids of calls differ between answers
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._start = 0  # characters of the header of a text
        self._given = 0  # characters of the header and of plain text that have been passed on, before any call
        self._tried = 0  # characters in which all calls have been found
        self._num_calls = 0
        self._open: _JsonEnd | None = None  # end of the last call's JSON, while its arguments arrive

    def feed(self, data: bytes) -> Iterator[Part]:
        """The parts that further bytes add."""
        new = self._decoder.decode(data)
        self._text += new
        if self._open is not None:
            taken = self._open.take(new)
            yield from self._arguments(new[:taken])
            if not self._open.over:
                return
            self._open, self._tried = None, len(self._text) - (len(new) - taken)
        if not self._num_calls:
            self._start, plain = self._constraint.plain(self._text)
            self._given = max(self._given, self._start)
            # Line ends before a call are no text; before an answer in a format there is no call.
            kept = self._text[:plain] if self._constraint.answer is not None else self._text[:plain].rstrip(LINE_ENDS)
            if len(kept) > self._given:
                yield Text(kept[self._given :])
                self._given = len(kept)
            if plain == len(self._text):
                self._tried = plain
                return
            if not self._constraint.is_call(self._text):
                return
        if self._may_hold_a_call():
            self._tried = len(self._text)
            yield from self._new_calls()

    @property
    def num_before(self) -> int:
        """The bytes of the header before the text."""
        return len(self._text[: self._start].encode())

    @property
    def num_given(self) -> int:
        """The bytes up to the end of the text that has been passed on, before any call."""
        return len(self._text[: self._given].encode())

    def finish(self) -> Iterator[Part]:
        """The text that was held back, if the answer is complete; called after the last byte."""
        try:
            answer = self._constraint.parse(self._text)
        except ValueError:  # the text was cut
            if (
                not self._num_calls
                and self._constraint.ambiguous_starts
                and self._constraint.is_call(self._text) is None
            ):
                yield from self._undecided()
            return
        if not answer.calls:
            self._start = self._start or self._constraint.answer_start(self._text)
            self._given = max(self._given, self._start)
        if rest := answer.text[self._given - self._start :]:
            yield Text(rest)
            self._given = self._given if answer.calls else self._given + len(rest)
        for call in answer.calls[self._num_calls :]:
            yield from self._whole(call.name, json.dumps(call.arguments))

    def _undecided(self) -> Iterator[Part]:
        """A beginning that may be that of a call, and of an answer: a call, where it has come to the arguments."""
        yield from self._new_calls()
        if not self._num_calls:
            self._start = self._constraint.answer_start(self._text)
            self._given = len(self._text)
            if rest := self._text[self._start :]:
                yield Text(rest)

    def _may_hold_a_call(self) -> bool:
        """Whether reading all of the text again may find a new call: that takes time in a long text."""
        marks = ("{", *self._constraint.ends)
        return any(self._text.find(mark, max(0, self._tried - len(mark) + 1)) >= 0 for mark in marks)

    def _new_calls(self) -> Iterator[Part]:
        for call in self._constraint.begun(self._text)[self._num_calls :]:
            if call.end is None:
                yield self._begins(call.name)
                self._open = _JsonEnd()
                arguments = self._text[call.start :]
                yield from self._arguments(arguments[: self._open.take(arguments)])
                return
            yield from self._whole(call.name, self._text[call.start : call.end])
        for complete in self._constraint.closed(self._text, self._num_calls)[1]:
            yield from self._whole(complete.name, json.dumps(complete.arguments))

    def _whole(self, name: str, arguments: str) -> Iterator[Part]:
        yield self._begins(name)
        yield from self._arguments(arguments)

    def _begins(self, name: str) -> CallBegins:
        number, self._num_calls = self._num_calls, self._num_calls + 1
        return CallBegins(number, name, self._constraint.call_id(number, name, self._unique))

    def _arguments(self, text: str) -> Iterator[Part]:
        if text:
            yield CallArguments(self._num_calls - 1, text)


class _JsonEnd:
    """Finds the end of a JSON object."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = self._escaped = False
        self.over = False

    def take(self, text: str) -> int:
        """The number of characters of a text that belong to the object."""
        for index, char in enumerate(text):
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped, self._in_string = char == "\\", char != '"'
            elif char == '"':
                self._in_string = True
            elif char in "{[":
                self._depth += 1
            elif char in "}]":
                self._depth -= 1
                if not self._depth:
                    self.over = True
                    return index + 1
        return len(text)
