"""JSON texts by their values: one key for all texts of a value."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

_CHARACTER = re.compile(
    rb"\\u[dD][89abAB][\da-fA-F]{2}(?:\\(?:u[\da-fA-F]{0,4})?)?|\\u[\da-fA-F]{0,4}|\\.?|[^\\\x80-\xbf]", re.DOTALL
)
_CONTINUATION = bytes(range(0x80, 0xC0))  # bytes of a character after its first
SPACE = frozenset(b" \t\n\r")
OUTSIDE, INSIDE, _ESCAPED = range(3)  # places: outside or inside a string, and after a backslash in one
_QUOTE, _BACKSLASH = b'"\\'


def lexed(place: int, byte: int) -> int:
    """The place after one byte of a JSON text: OUTSIDE a string, or inside one."""
    if place == _ESCAPED:
        return INSIDE
    if byte == _QUOTE:
        return OUTSIDE if place == INSIDE else INSIDE
    return _ESCAPED if place == INSIDE and byte == _BACKSLASH else place


def characters(content: bytes) -> int:
    """Number of characters in the content of a JSON string, one that has only begun counted; it follows the quote."""
    if b"\\" not in content:
        return first_bytes(content)
    return sum(1 for _ in _CHARACTER.finditer(content))


def first_bytes(text: bytes) -> int:
    """Number of characters that have begun in a text."""
    return len(text.translate(None, _CONTINUATION))


def key_of(text: bytes, *, ordered: bool) -> bytes:
    """One text for all texts of the same JSON value; ``ordered`` where equal values have members in the same order."""
    return _encoded(_dumps(json.loads(text, parse_int=Decimal, parse_float=Decimal), is_sorted=not ordered))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _dumps(value: Any, *, is_sorted: bool = False) -> str:
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, list):
        return f"[{','.join(_dumps(item, is_sorted=is_sorted) for item in value)}]"
    if isinstance(value, dict):
        names = sorted(value) if is_sorted else value
        members = (f"{_dumps(name)}:{_dumps(value[name], is_sorted=is_sorted)}" for name in names)
        return "{" + ",".join(members) + "}"
    return json.dumps(value, ensure_ascii=False)


def _number(number: Decimal) -> str:
    sign, digits, exponent = number.as_tuple()
    written = "".join(map(str, digits)).lstrip("0")
    stripped = written.rstrip("0")
    return f"{'-' * sign}{stripped}e{int(exponent) + len(written) - len(stripped)}" if stripped else "0"
