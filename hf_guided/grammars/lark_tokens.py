"""The tokens of a Lark grammar, as llguidance divides its text."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from .rules import Reader

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+ | (?:\#|//)[^\n]*) | (?P<newline>(?:\r?\n)+[ \t]*)
      | (?P<json>%(?:json|regex|llguidance)) | (?P<keyword>%(?:ignore|import|override|declare|lark|if))
      | (?P<rule>!?[_?]?[a-z][_a-z0-9-]*) | (?P<terminal>_?[A-Z][_A-Z0-9-]*)
      | (?P<text>"(?:\\(?:["\\/bfnrt]|u[a-fA-F0-9]{4}|x[a-fA-F0-9]{2})|[^"\\\x00-\x1f\x7f])*"i?)
      | (?P<pattern>/(?:\\.|[^/\\])+/[imslux]*) | (?P<special><[^<>\s]+>) | (?P<grammar>@[a-zA-Z0-9_-]+)
      | (?P<number>0[xX][0-9a-fA-F]+|[+-]?[0-9]+(?:\.(?!\.)[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      | (?P<operator>[+*?]) | (?P<sign>->|::|\.\.|[:.,=(){}\[\]~|&_])""",
    re.VERBOSE,
)


class Token(NamedTuple):
    """A part of the text.

    Args:
        kind: "rule", "terminal", "text", "pattern", "special" ...; of a sign or a keyword, the sign itself.
        text: itself.
        start: where it begins.
        end: where it ends.
        value: the JSON after ``%json``, ``%regex`` and ``%llguidance``.
    """

    kind: str
    text: str
    start: int
    end: int
    value: Any = None


def lex(reader: Reader) -> list[Token]:
    """The tokens of the text, without spaces and comments, and one of kind "end".

    Raises:
        InvalidConstraint: no token begins somewhere.
    """
    text, position = reader.text, 0
    tokens: list[Token] = []
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise reader.malformed(f"expected a part of a rule, got {text[position : position + 10]!r}", position)
        kind, end, value = str(match.lastgroup), match.end(), None
        if kind == "json":
            value, end = _json(reader, match[0], end)
        if kind != "space":
            kind = match[0] if kind in ("json", "keyword", "sign") else kind
            tokens.append(Token(kind, text[position:end], position, end, value))
        position = end
    return [*tokens, Token("newline", "", position, position), Token("end", "", position, position)]


def _json(reader: Reader, keyword: str, position: int) -> tuple[Any, int]:
    start = position
    while reader.text[start : start + 1].isspace():
        start += 1
    try:
        return json.JSONDecoder().raw_decode(reader.text, start)
    except ValueError as error:
        raise reader.malformed(f"{keyword} must be followed by JSON: {error}", position) from None
    except RecursionError:
        raise reader.malformed(f"the JSON after {keyword} is nested too deeply", position) from None
