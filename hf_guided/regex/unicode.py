r"""The characters of Unicode's general categories, and of Python's ``\d``, ``\s`` and ``\w``.

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

from .charset import LAST, SURROGATES, Range

_TABLES = Path(__file__).with_name("unicode_tables")
_GAP = SURROGATES[1] - SURROGATES[0] + 1


@lru_cache(maxsize=64)
def ranges_of(name: str) -> tuple[Range, ...]:
    r"""The ranges of a category of two letters, or of "d", "s" or "w"; none if there is no such category."""
    table = _table(unicodedata.unidata_version)
    if table is not None:
        return _ranges(table.get(name, []))
    return tuple(asked_class(name)) if len(name) == 1 else tuple(_asked_categories().get(name, ()))


@lru_cache(maxsize=1)
def _table(version: str) -> dict[str, list[int]] | None:
    """For each name how many code points are outside, then inside, then outside ...; None for an unknown version."""
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
    """The ranges of each category, from Python's ``unicodedata``."""
    found: dict[str, list[Range]] = {}
    first = 0
    for name, run in groupby(map(unicodedata.category, map(chr, range(LAST + 1)))):
        length = sum(1 for _ in run)
        found.setdefault(name, []).append((first, first + length - 1))
        first += length
    return found
