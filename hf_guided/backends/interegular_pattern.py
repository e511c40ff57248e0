"""Plain patterns, written for interegular, the regex library of lm-format-enforcer."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable


def spelled_for_interegular(plain: str, alphabet: Iterable[str]) -> str:
    r"""A plain pattern without ``\u{...}``, its classes cut to characters the vocabulary has.

    Its regex library (interegular) knows no ``\u{...}`` and keeps every character of a class; a class that
    holds most characters is written as the complement, which it keeps short.
    """
    characters = sorted(map(ord, alphabet))
    nothing = _NONCHARACTER  # never typed, so a class of it is empty

    def spell(match: re.Match[str]) -> str:
        if match["code"]:
            return _quoted(int(match["code"], 16))
        inside: set[int] = set()
        for item in _ITEM.finditer(match["items"]):
            first = _code(item["first"])
            last = _code(item["last"]) if item["last"] else first
            inside.update(characters[bisect_left(characters, first) : bisect_right(characters, last)])
        outside = [code for code in characters if code not in inside]
        if len(outside) < len(inside):
            return f"[^{''.join(map(_quoted, outside or [nothing]))}]"
        return f"[{''.join(map(_quoted, sorted(inside) or [nothing]))}]"

    return _PIECE.sub(spell, plain)


_NONCHARACTER = 0x10FFFF
_PIECE = re.compile(r"\[(?P<items>[^\]]*)\]|\\u\{(?P<code>[0-9a-f]+)\}")
_ITEM = re.compile(r"(?P<first>\\u\{[0-9a-f]+\}|\w)(?:-(?P<last>\\u\{[0-9a-f]+\}|\w))?")


def _code(written: str) -> int:
    return int(written[3:-1], 16) if len(written) > 1 else ord(written)


def _quoted(code: int) -> str:
    character = chr(code)
    return character if character.isalnum() or code >= 128 else f"\\x{code:02x}"
