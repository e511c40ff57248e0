r"""The characters of ``\d``, ``\w``, ``\s``, ``\p{L}`` and ``(?i)`` in Python and in ECMA-262.

Python's own meaning depends on its version of Unicode. Asking it about each character takes up to 0.2 s, so there is a
table for each version that is known, which scripts/make_unicode_tables.py has written; other versions are asked.
"""

from __future__ import annotations

import gzip
import json
import re
import unicodedata
from functools import lru_cache
from itertools import groupby
from pathlib import Path

import numpy as np

from .charset import ALL, LAST, SURROGATES, CharSet, Range

DIGITS = CharSet([(0x30, 0x39)])
WORD = DIGITS | CharSet([(0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)])
_SPACE = CharSet.of("\t\n\v\f\r \xa0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff") | CharSet([(0x2000, 0x200A)])
_ECMA = {"d": DIGITS, "w": WORD, "s": _SPACE}
_TABLES = Path(__file__).with_name("unicode_tables")
_GAP = SURROGATES[1] - SURROGATES[0] + 1
LINE_ENDS = {"python": CharSet.of("\n"), "ecma": CharSet.of("\n\r\u2028\u2029")}
"""The characters that ``.`` does not match."""


@lru_cache(maxsize=64)
def ecma_class(letter: str) -> CharSet:
    r"""The ``\d`` or ``\D`` and so on of ECMA-262."""
    return _ECMA[letter] if letter in _ECMA else ~_ECMA[letter.lower()]


@lru_cache(maxsize=64)
def python_class(letter: str, ascii_only: bool) -> CharSet:
    r"""The ``\d`` or ``\D`` and so on of Python."""
    if letter.isupper():
        return ~python_class(letter.lower(), ascii_only)
    if ascii_only:
        return CharSet.of(" \t\n\r\f\v") if letter == "s" else _ECMA[letter]
    return CharSet(ranges_of(letter))


@lru_cache(maxsize=4096)
def caseless(charset: CharSet, ascii_only: bool) -> CharSet:
    """The characters that a set matches under ``(?i)`` in Python."""
    cased = charset & _cased()[1]
    if not cased:
        return charset
    # A range of one is written as one: `re` folds the two differently beyond the basic plane.
    inside = "".join(f"\\U{a:08x}" if a == b else f"\\U{a:08x}-\\U{b:08x}" for a, b in cased.ranges)
    flags = re.IGNORECASE | (re.ASCII if ascii_only else 0)
    return charset | CharSet.of("".join(re.findall(f"[{inside}]", _cased()[0], flags)))


@lru_cache(maxsize=1)
def _cased() -> tuple[str, CharSet]:
    """The characters that have another case. The planes of ideographs, tags and private use have none."""
    members = "".join(
        character
        for block in range(0, 0x20000, 256)
        if (text := _block(block)).lower() != text or text.upper() != text
        for character in text
        if character.lower() != character or character.upper() != character
    )
    return members, CharSet.of(members)


def _block(first: int) -> str:
    return "" if SURROGATES[0] <= first <= SURROGATES[1] else "".join(map(chr, range(first, first + 256)))


# The general categories and their long names; one letter stands for all categories that begin with it.
_LONG_NAMES = """
    Lu=Uppercase_Letter Ll=Lowercase_Letter Lt=Titlecase_Letter LC=Cased_Letter Lm=Modifier_Letter Lo=Other_Letter
    L=Letter Mn=Nonspacing_Mark Mc=Spacing_Mark Me=Enclosing_Mark M=Mark M=Combining_Mark Nd=Decimal_Number Nd=digit
    Nl=Letter_Number No=Other_Number N=Number Pc=Connector_Punctuation Pd=Dash_Punctuation Ps=Open_Punctuation
    Pe=Close_Punctuation Pi=Initial_Punctuation Pf=Final_Punctuation Po=Other_Punctuation P=Punctuation P=punct
    Sm=Math_Symbol Sc=Currency_Symbol Sk=Modifier_Symbol So=Other_Symbol S=Symbol Zs=Space_Separator
    Zl=Line_Separator Zp=Paragraph_Separator Z=Separator Cc=Control Cc=cntrl Cf=Format Cs=Surrogate Co=Private_Use
    Cn=Unassigned C=Other
"""
_SHORT = {name: pair.split("=")[0] for pair in _LONG_NAMES.split() for name in pair.split("=")}


@lru_cache(maxsize=64)
def category(name: str) -> CharSet | None:
    r"""The characters of ``\p{name}``; None if ECMA-262 has no such general category."""
    if name in ("Any", "ASCII"):
        return ALL if name == "Any" else CharSet([(0, 127)])
    kind, _, value = name.rpartition("=")
    if kind not in ("", "gc", "General_Category") or value not in _SHORT:
        return None
    short = _SHORT[value]
    members = {each for each in _SHORT.values() if len(each) == 2 and each.startswith(short)}
    if short == "LC":
        members = {"Lu", "Ll", "Lt"}
    return CharSet(range_ for each in members for range_ in ranges_of(each))


@lru_cache(maxsize=64)
def ranges_of(name: str) -> tuple[Range, ...]:
    r"""The ranges of a category of two letters, or of "d", "s" or "w"; none if there is no such category."""
    table = _table(unicodedata.unidata_version)
    if table is not None:
        return _ranges(table.get(name, []))
    return tuple(asked_class(name)) if len(name) == 1 else tuple(_asked_categories().get(name, ()))


@lru_cache(maxsize=1)
def _table(version: str) -> dict[str, list[int]] | None:
    """Count for each name the code points outside, then inside, then outside ...; None for an unknown version."""
    try:
        table: dict[str, list[int]] = json.loads(gzip.decompress((_TABLES / f"{version}.json.gz").read_bytes()))
    except OSError:
        return None
    return table


def _ranges(lengths: list[int]) -> tuple[Range, ...]:
    ends = np.cumsum(lengths).tolist()
    return tuple((first, end - 1) for first, end in zip(ends[::2], ends[1::2], strict=True))


def asked_class(letter: str) -> list[Range]:
    r"""The ranges of ``\d``, ``\s`` or ``\w``, from Python's ``re``."""
    codes = np.arange(LAST + 1 - _GAP, dtype="<u4")
    codes[SURROGATES[0] :] += _GAP
    every_character = codes.tobytes().decode("utf-32-le")
    runs = (match.span() for match in re.finditer(rf"\{letter}+", every_character))
    return [(_code(start), _code(end - 1)) for start, end in runs]


def _code(index: int) -> int:
    return index if index < SURROGATES[0] else index + _GAP


@lru_cache(maxsize=1)
def _asked_categories() -> dict[str, list[Range]]:
    found: dict[str, list[Range]] = {}
    first = 0
    for name, run in groupby(map(unicodedata.category, map(chr, range(LAST + 1)))):
        length = sum(1 for _ in run)
        found.setdefault(name, []).append((first, first + length - 1))
        first += length
    return found
