"""Text with tool calls, as it grows: text as it comes, and the arguments of a call piece by piece.

The constraint defines what a call is. Where its arguments are JSON they are passed on as the model writes them; in
other notations (elements) their types are known when the call is complete, so the call then comes as a whole.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

from ...constraints.incremental_utf8 import utf8_decoder
from ...constraints.tool_calls import ToolCalls
from .parts import CallArguments, CallBegins, Part, Text


class CallReader:
    """Reads bytes of an answer.

    Args:
        constraint: bound to a tokenizer, so that its format is known.
    """

    def __init__(self, constraint: ToolCalls):
        self._constraint = constraint
        self._unique = uuid.uuid4().hex  # ids of calls differ between answers
        self._decoder = utf8_decoder()
        self._text = ""
        self._given = 0  # characters of plain text that have been passed on, before any call
        self._tried = 0  # characters in which all calls have been found
        self._num_calls = 0
        self._open: _JsonEnd | None = None  # of the last call, while its arguments come

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
            plain = self._constraint.plain(self._text)
            if plain > self._given:
                yield Text(self._text[self._given : plain])
                self._given = plain
            if plain == len(self._text):
                self._tried = plain
                return
        if self._may_hold_a_call():
            self._tried = len(self._text)
            yield from self._new_calls()

    @property
    def num_given(self) -> int:
        """The bytes of the text that has been passed on, before any call."""
        return len(self._text[: self._given].encode())

    def finish(self) -> Iterator[Part]:
        """The text that was held back, if the answer is complete; called after the last byte."""
        try:
            answer = self._constraint.parse(self._text)
        except ValueError:  # it was cut
            return
        if rest := answer.text[self._given :]:
            yield Text(rest)
            self._given += 0 if answer.calls else len(rest)
        for call in answer.calls[self._num_calls :]:
            yield from self._whole(call.name, json.dumps(call.arguments))

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
        """How many characters of a text belong to the object."""
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
