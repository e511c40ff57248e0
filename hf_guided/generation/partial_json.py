"""JSON text that arrives in chunks, and the parts of its value that later text cannot change.

The text is only split here, at quotes, brackets, commas and colons, in one pass; `json` decodes the parts. A string
closes at its quote, a number at the character after it, a container at its bracket. Closed values are kept as a list of
moves that build the whole value, so the value can be built as it was at any earlier time, and every caller gets objects
of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import islice
from typing import Any, NamedTuple

_QUOTE_OR_ESCAPE = re.compile(r'["\\]')
_AFTER_SCALAR = re.compile(r"[ \t\n\r,\]}]")
_SPACE = " \t\n\r"
_WORDS = ("true", "false", "null")


class _Kind(Enum):
    OPEN = auto()  # a container, still empty
    PUT = auto()  # a string, number or word
    CLOSE = auto()  # the innermost container


class Move(NamedTuple):
    """One step of building a value.

    Args:
        kind: the kind of step.
        key: the member's name; None for an array item, or for the whole value.
        value: the scalar; or the type of the container.
    """

    kind: _Kind
    key: str | None = None
    value: Any = None


def value_of(moves: Sequence[Move], number: int) -> Any:
    """A new value, built by the first ``number`` moves; None for 0 moves."""
    whole: Any = None
    inside: list[Any] = []
    for kind, key, value in islice(moves, number):
        if kind is _Kind.CLOSE:
            inside.pop()
            continue
        new = value() if kind is _Kind.OPEN else value
        if not inside:
            whole = new
        elif key is None:
            inside[-1].append(new)
        else:
            inside[-1][key] = new
        if kind is _Kind.OPEN:
            inside.append(new)
    return whole


def open_path(moves: Sequence[Move], number: int) -> tuple[str | int, ...] | None:
    """Keys and indices from the whole value to the innermost open container; None if nothing is open."""
    path: list[str | int] = []
    items: list[int] = []  # number of items of each open container
    for kind, key, _ in islice(moves, number):
        if kind is _Kind.CLOSE:
            items.pop()
            del path[-1:]  # the whole value has no key in the path
            continue
        index = 0
        if items:
            index = items[-1]
            items[-1] += 1
        if kind is _Kind.OPEN:
            if items:
                path.append(index if key is None else key)
            items.append(0)
    return tuple(path) if items else None


@dataclass
class _Container:
    """An open container.

    Args:
        pointer: its JSON pointer.
        is_object: whether it is an object, not an array.
        items: the number of members or items that have begun.
        key: the name of the member that is being written.
    """

    pointer: str
    is_object: bool
    items: int = 0
    key: str | None = None


class _State(Enum):
    """What the reader expects next, or what it is inside of."""

    FIRST = auto()  # the first member or item of a container, or its end
    VALUE = auto()
    KEY = auto()
    COLON = auto()
    AFTER_VALUE = auto()  # a comma, or the end of the container
    STRING = auto()  # inside a string
    SCALAR = auto()  # inside a number or word


class PartialJson:
    """Reads JSON text chunk by chunk. Text that is not JSON ends the reading: nothing more closes.

    A duplicate name in an object has the last value, as in `json`, and its pointer is reported again.
    """

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self._closed: list[str] = []
        self._inside: list[_Container] = []
        self._state = _State.VALUE
        self._parts: list[str] = []  # of the string, number or word that is being written
        self._escaped = False
        self._in_key = False
        self._over = False

    def feed(self, text: str) -> list[str]:
        """Read more text.

        Returns:
            JSON pointers to the values that this text has closed, in order.
        """
        at = 0
        try:
            while at < len(text) and not self._over:
                at = self._step(text, at)
        except (ValueError, RecursionError):  # not JSON, or too much for `json` (an integer of 5,000 digits)
            self._over = True
        closed, self._closed = self._closed, []
        return closed

    def end(self) -> list[str]:
        """The text is complete: a number at its end closes. Returns as ``feed``."""
        return self.feed(" ") if self._state is _State.SCALAR and not self._inside else []

    def _step(self, text: str, at: int) -> int:
        """Read part of the text; returns the index where the rest begins."""
        if self._state is _State.STRING:
            return self._string(text, at)
        if self._state is _State.SCALAR:
            return self._scalar(text, at)
        character = text[at]
        if character in _SPACE:
            return at + 1
        if self._state is _State.FIRST and character not in "]}":
            self._state = self._next_state()
        if character in "]}" and self._inside and self._state in (_State.FIRST, _State.AFTER_VALUE):
            self._close_container(character)
        elif self._state is _State.AFTER_VALUE and character == "," and self._inside:
            self._state = self._next_state()
        elif self._state is _State.COLON and character == ":":
            self._state = _State.VALUE
        elif self._state is _State.KEY and character == '"':
            self._in_key, self._state, self._parts = True, _State.STRING, ['"']
        elif self._state is _State.VALUE and character not in ",:":
            return self._begin_value(character, at)
        else:
            raise ValueError(f"no JSON: {character}")
        return at + 1

    def _next_state(self) -> _State:
        """The state before the next member or item of the innermost container."""
        return _State.KEY if self._inside[-1].is_object else _State.VALUE

    def _begin_value(self, character: str, at: int) -> int:
        if character in "{[":
            is_object = character == "{"
            pointer = self._begun()
            self.moves.append(Move(_Kind.OPEN, self._key(), dict if is_object else list))
            self._inside.append(_Container(pointer, is_object))
            self._state = _State.FIRST
            return at + 1
        if character == '"':
            self._in_key, self._state, self._parts = False, _State.STRING, ['"']
            return at + 1
        self._state, self._parts = _State.SCALAR, []
        return at

    def _string(self, text: str, at: int) -> int:
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        while (match := _QUOTE_OR_ESCAPE.search(text, at)) is not None:
            if match[0] == '"':
                self._parts.append(text[start : match.end()])
                self._close_string(json.loads("".join(self._parts)))
                return match.end()
            at = match.end() + 1
            if at > len(text):
                self._escaped = True
                break
        self._parts.append(text[start:])
        return len(text)

    def _close_string(self, value: str) -> None:
        if self._in_key:
            self._inside[-1].key = value
            self._state = _State.COLON
        else:
            self._put(value)

    def _scalar(self, text: str, at: int) -> int:
        after = _AFTER_SCALAR.search(text, at)
        end = len(text) if after is None else after.start()
        self._parts.append(text[at:end])
        if after is not None or (end - at and text[end - 1] in "el"):
            written = "".join(self._parts)
            if after is not None or written in _WORDS:
                self._put(json.loads(written))
        return end

    def _put(self, value: Any) -> None:
        self._closed.append(self._begun())
        self.moves.append(Move(_Kind.PUT, self._key(), value))
        self._state = _State.AFTER_VALUE
        self._over = not self._inside

    def _close_container(self, character: str) -> None:
        container = self._inside.pop()
        if container.is_object != (character == "}"):
            raise ValueError("no JSON: another bracket")
        self._closed.append(container.pointer)
        self.moves.append(Move(_Kind.CLOSE))
        self._state = _State.AFTER_VALUE
        self._over = not self._inside

    def _key(self) -> str | None:
        return self._inside[-1].key if self._inside else None

    def _begun(self) -> str:
        """The pointer of a value that begins in the innermost container."""
        if not self._inside:
            return ""
        container = self._inside[-1]
        container.items += 1
        name = str(container.items - 1) if container.key is None else container.key
        return f"{container.pointer}/{name.replace('~', '~0').replace('/', '~1')}"
