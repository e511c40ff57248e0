"""JSON text that comes in pieces, and what of its value is certain: the parts that no text behind them can change.

The text is only split here, at quotes, brackets, commas and colons, each character looked at once; `json` decodes the
pieces. A string closes at its quote, a number at what stands behind it, a container at its bracket. What has closed is
kept as a list of moves that put a value together, so a value can be made as it was at any earlier time, and nobody's
value is anybody else's.
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
_BEHIND_SCALAR = re.compile(r"[ \t\n\r,\]}]")
_SPACE = " \t\n\r"
_WORDS = ("true", "false", "null")


class _Kind(Enum):
    OPEN = auto()  # a container, empty still
    PUT = auto()  # a string, number or word
    CLOSE = auto()  # the innermost container


class Move(NamedTuple):
    """One step in which a value is put together.

    Args:
        kind: what it is.
        key: the member's name; None for an item, or for the whole.
        value: the scalar; or the kind of the container.
    """

    kind: _Kind
    key: str | None = None
    value: Any = None


def value_of(moves: Sequence[Move], number: int) -> Any:
    """The value behind the first moves, made anew; None in front of them all."""
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
    """Keys and indices from the whole to the innermost container that is open; None if nothing is open."""
    path: list[str | int] = []
    items: list[int] = []  # of each open container, so far
    for kind, key, _ in islice(moves, number):
        if kind is _Kind.CLOSE:
            items.pop()
            del path[-1:]  # the whole has no step of its own
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
    """One that is open.

    Args:
        pointer: where it is.
        is_object: whether it has names.
        items: how many members or items have begun.
        key: the name of the member that is being written.
    """

    pointer: str
    is_object: bool
    items: int = 0
    key: str | None = None


class _Place(Enum):
    FIRST = auto()  # the first member or item of a container comes, or its end
    VALUE = auto()
    KEY = auto()
    COLON = auto()
    BEHIND = auto()  # a comma, or the end of the container
    STRING = auto()  # in the middle of one
    SCALAR = auto()  # of a number or word


class PartialJson:
    """Takes JSON text piece by piece. What is no JSON ends it: nothing more closes.

    A name that an object has twice counts as `json` has it: the last value, which closes its pointer again.
    """

    def __init__(self) -> None:
        self.moves: list[Move] = []
        self._closed: list[str] = []
        self._inside: list[_Container] = []
        self._place = _Place.VALUE
        self._parts: list[str] = []  # of the scalar that is being written
        self._escaped = False
        self._in_key = False
        self._over = False

    def feed(self, text: str) -> list[str]:
        """Take more text.

        Returns:
            JSON pointers to what has closed by it, in order.
        """
        at = 0
        try:
            while at < len(text) and not self._over:
                at = self._step(text, at)
        except (ValueError, RecursionError):  # no JSON, or more than `json` takes (an integer of 5,000 digits)
            self._over = True
        told, self._closed = self._closed, []
        return told

    def end(self) -> list[str]:
        """The text is complete: a number closes that has nothing behind it. Returns as ``feed``."""
        return self.feed(" ") if self._place is _Place.SCALAR and not self._inside else []

    def _step(self, text: str, at: int) -> int:
        """Take some of the text; returns where the rest begins."""
        if self._place is _Place.STRING:
            return self._string(text, at)
        if self._place is _Place.SCALAR:
            return self._scalar(text, at)
        character = text[at]
        if character in _SPACE:
            return at + 1
        if self._place is _Place.FIRST and character not in "]}":
            self._place = self._next_place()
        if character in "]}" and self._inside and self._place in (_Place.FIRST, _Place.BEHIND):
            self._close_container(character)
        elif self._place is _Place.BEHIND and character == "," and self._inside:
            self._place = self._next_place()
        elif self._place is _Place.COLON and character == ":":
            self._place = _Place.VALUE
        elif self._place is _Place.KEY and character == '"':
            self._in_key, self._place, self._parts = True, _Place.STRING, ['"']
        elif self._place is _Place.VALUE and character not in ",:":
            return self._begin_value(character, at)
        else:
            raise ValueError(f"no JSON: {character}")
        return at + 1

    def _next_place(self) -> _Place:
        """Where the next member or item of the innermost container begins."""
        return _Place.KEY if self._inside[-1].is_object else _Place.VALUE

    def _begin_value(self, character: str, at: int) -> int:
        if character in "{[":
            is_object = character == "{"
            pointer = self._begun()
            self.moves.append(Move(_Kind.OPEN, self._key(), dict if is_object else list))
            self._inside.append(_Container(pointer, is_object))
            self._place = _Place.FIRST
            return at + 1
        if character == '"':
            self._in_key, self._place, self._parts = False, _Place.STRING, ['"']
            return at + 1
        self._place, self._parts = _Place.SCALAR, []
        return at

    def _string(self, text: str, at: int) -> int:
        start = at
        if self._escaped:
            self._escaped = False
            at += 1
        while (found := _QUOTE_OR_ESCAPE.search(text, at)) is not None:
            if found[0] == '"':
                self._parts.append(text[start : found.end()])
                self._close_string(json.loads("".join(self._parts)))
                return found.end()
            at = found.end() + 1
            if at > len(text):
                self._escaped = True
                break
        self._parts.append(text[start:])
        return len(text)

    def _close_string(self, value: str) -> None:
        if self._in_key:
            self._inside[-1].key = value
            self._place = _Place.COLON
        else:
            self._put(value)

    def _scalar(self, text: str, at: int) -> int:
        behind = _BEHIND_SCALAR.search(text, at)
        end = len(text) if behind is None else behind.start()
        self._parts.append(text[at:end])
        if behind is not None or (end - at and text[end - 1] in "el"):
            written = "".join(self._parts)
            if behind is not None or written in _WORDS:
                self._put(json.loads(written))
        return end

    def _put(self, value: Any) -> None:
        self._closed.append(self._begun())
        self.moves.append(Move(_Kind.PUT, self._key(), value))
        self._place = _Place.BEHIND
        self._over = not self._inside

    def _close_container(self, character: str) -> None:
        container = self._inside.pop()
        if container.is_object != (character == "}"):
            raise ValueError("no JSON: another bracket")
        self._closed.append(container.pointer)
        self.moves.append(Move(_Kind.CLOSE))
        self._place = _Place.BEHIND
        self._over = not self._inside

    def _key(self) -> str | None:
        return self._inside[-1].key if self._inside else None

    def _begun(self) -> str:
        """The pointer of a value of which the innermost container hears now."""
        if not self._inside:
            return ""
        container = self._inside[-1]
        container.items += 1
        name = str(container.items - 1) if container.key is None else container.key
        return f"{container.pointer}/{name.replace('~', '~0').replace('/', '~1')}"
