"""What an answer is made of, in the order in which a client reads it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Text(NamedTuple):
    """A piece of the answer itself."""

    text: str


class Thinking(NamedTuple):
    """A piece of the thinking before it."""

    text: str


class CallBegins(NamedTuple):
    """A tool call, before its arguments.

    Args:
        number: 0 for the first call of an answer.
        name: of the tool.
        id: of the call, for the answer of the tool.
    """

    number: int
    name: str
    id: str


class CallArguments(NamedTuple):
    """A piece of a tool call's arguments, which together are one JSON object.

    Args:
        number: of the call.
        text: the piece.
    """

    number: int
    text: str


Part: TypeAlias = "Text | Thinking | CallBegins | CallArguments"
