"""Writes what hf_guided/regex/classes.py reads: the characters of each class, in the Unicode of the running Python.

    python3.10 scripts/make_unicode_tables.py
    python3.13 scripts/make_unicode_tables.py

Each Python writes the file of its own Unicode, and needs no package.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import unicodedata
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "hf_guided" / "regex" / "unicode_tables"
CHARACTERS = list(map(chr, range(sys.maxunicode + 1)))


def lengths(members: Iterable[bool]) -> list[int]:
    """How many code points are outside, then inside, then outside ... of a set; the last ones outside are left out."""
    runs = [(inside, sum(1 for _ in run)) for inside, run in groupby(members)]
    counts = [count for _, count in runs]
    if runs[0][0]:
        counts.insert(0, 0)
    return counts if runs[-1][0] else counts[:-1]


def main() -> None:
    category = list(map(unicodedata.category, CHARACTERS))
    sets = {name: lengths(one == name for one in category) for name in sorted(set(category))}
    for letter in "dsw":
        takes = re.compile(rf"\{letter}").match
        sets[letter] = lengths(bool(takes(character)) for character in CHARACTERS)
    path = FOLDER / f"{unicodedata.unidata_version}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(sets, separators=(",", ":")).encode(), mtime=0))


if __name__ == "__main__":
    main()
