"""Writes what hf_guided/regex/stored.py reads: the trees of the patterns of all formats.

python scripts/store_patterns.py
"""

from __future__ import annotations

import gzip
import json

from hf_guided.regex.parse import parsed_search
from hf_guided.regex.stored import FILE, entries
from hf_guided.schema.formats import FORMATS, USUAL


def patterns() -> list[str]:
    """All patterns to store."""
    return sorted({*USUAL.values(), *(schema["pattern"] for schema in FORMATS.values())})


def written() -> dict[str, str]:
    """The entries of each pattern as JSON."""
    return {pattern: json.dumps(entries(parsed_search(pattern)), separators=(",", ":")) for pattern in patterns()}


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(json.dumps(written()).encode(), mtime=0))
