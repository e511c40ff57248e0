r"""All spellings of a language inside JSON's quotes: raw characters, ``\n`` and the like, ``\u00e9``, surrogate pairs.

Every spelling means one string and lone surrogates are never written, so statements about the strings also hold for
their spellings: And stays And, and Not becomes "a well-formed spelling, but not one of these".
"""

from __future__ import annotations

import json
from functools import lru_cache, partial

from .ast import ANYTHING, EMPTY, AllBut, Node, all_but, alt, both, chars, complement, concat, mapped, repeat, text
from .charset import ALL, LAST, CharSet, Range, tree_cache

_as_json = json.JSONEncoder(ensure_ascii=False).encode
_RAW = ~(CharSet([(0, 0x1F)]) | CharSet.of('"\\'))
_SHORT = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
# Digits of \uXXXX, and of a surrogate pair: 20 bits above 0x10000, written as D [89AB] x x \u D [C-F] x x. For each:
# how many values, the hexadecimal digit of the first, and the text before it.
_Place = tuple[int, int, str]
_DIGIT: _Place = (16, 0, "")
_PLAIN: tuple[_Place, ...] = ((16, 0, r"\u"), _DIGIT, _DIGIT, _DIGIT)
_PAIR: tuple[_Place, ...] = ((4, 8, r"\uD"), _DIGIT, _DIGIT, (4, 12, r"\uD"), _DIGIT, _DIGIT)


@tree_cache(maxsize=4096)
def json_spellings(node: Node) -> Node:
    """The texts that, between quotes, are JSON for the strings of ``node``: every spelling of each."""
    return mapped(node, _spelled, json_spellings)


@tree_cache(maxsize=4096)
def json_spelling(node: Node) -> Node:
    """The texts that ``json.dumps(..., ensure_ascii=False)`` writes between quotes: one for each string."""
    if isinstance(node, AllBut):
        return both(_string(), all_but(tuple([_as_json(word)[1:-1] for word in node.words])))
    return mapped(node, _written, json_spelling)


@lru_cache(maxsize=1)
def _string() -> Node:
    return repeat(_written(ALL))


@tree_cache(maxsize=4096)
def json_spelling_without(node: Node, marks: tuple[str, ...]) -> Node:
    r"""The texts of ``json_spelling`` without marks: a mark in the string has its first character as ``\u003c``."""
    if not marks:
        return json_spelling(node)
    escaped = {mark: f"\\u{ord(mark[0]):04x}{mark[1:]}" for mark in marks}
    # An escape is written only before the rest of its mark.
    units = repeat(alt(_written(ALL), *map(text, escaped.values())))
    free = complement(concat(ANYTHING, alt(*map(text, marks)), ANYTHING))
    spelled = () if node == ANYTHING else (_with_escapes(node, "".join(mark[0] for mark in marks)),)
    return both(*spelled, units, free)


@tree_cache(maxsize=4096)
def _with_escapes(node: Node, escaped: str) -> Node:
    return mapped(node, lambda charset: _written_or_escaped(charset, escaped), partial(_with_escapes, escaped=escaped))


def _written_or_escaped(charset: CharSet, escaped: str) -> Node:
    characters = [character for character in dict.fromkeys(escaped) if character in charset]
    return alt(_written(charset), *(text(f"\\u{ord(character):04x}") for character in characters))


@lru_cache(maxsize=1024)
def _written(charset: CharSet) -> Node:
    short = "".join(written for character, written in _SHORT.items() if character in charset and character != "/")
    control = [ord(character) for character in charset & ~_RAW - CharSet.of("".join(_SHORT))]
    numbers = [
        concat(
            text(f"\\u00{first}"),
            chars(CharSet.of("".join(f"{code % 16:x}" for code in control if code // 16 == first))),
        )
        for first in (0, 1)
    ]
    return alt(chars(charset & _RAW), concat(text("\\"), chars(CharSet.of(short))), *numbers)


@lru_cache(maxsize=1024)
def _spelled(charset: CharSet) -> Node:
    short = "".join(written for character, written in _SHORT.items() if character in charset)
    below, above = charset & CharSet([(0, 0xFFFF)]), charset & CharSet([(0x10000, LAST)])
    return alt(
        chars(charset & _RAW),
        concat(text("\\"), chars(CharSet.of(short))),
        _numbers(below.ranges, _PLAIN),
        _numbers(tuple((first - 0x10000, last - 0x10000) for first, last in above.ranges), _PAIR),
    )


@lru_cache(maxsize=4096)
def _numbers(ranges: tuple[Range, ...], digits_left: tuple[_Place, ...]) -> Node:
    """The numbers of some ranges, digit by digit; digits with the same continuation are written as one."""
    if not digits_left:
        return EMPTY
    (count, first_digit, before), *rest = digits_left
    unit = 1
    for size, _, _ in rest:
        unit *= size
    split: list[list[Range]] = [[] for _ in range(count)]
    for first, last in ranges:
        for digit in range(first // unit, last // unit + 1):
            low = digit * unit
            split[digit].append((max(first, low) - low, min(last, low + unit - 1) - low))
    groups: dict[tuple[Range, ...], str] = {}
    for digit, part in enumerate(split):
        if part:
            groups[tuple(part)] = groups.get(tuple(part), "") + f"{first_digit + digit:x}"
    prefix = concat(text(before[:2]), *(_digits(letter) for letter in before[2:]))
    return alt(
        *(concat(prefix, _digits(characters), _numbers(part, tuple(rest))) for part, characters in groups.items())
    )


def _digits(characters: str) -> Node:
    return chars(CharSet.of(characters.lower() + characters.upper()))
