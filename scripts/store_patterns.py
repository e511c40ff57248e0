"""Writes what hf_guided/regex/stored.py reads: the trees of the patterns of all formats.

python scripts/store_patterns.py
"""

from __future__ import annotations

import gzip
import json
from itertools import chain
from typing import Any

from hf_guided.regex import Alt, And, Chars, Concat, Node, Not, Repeat
from hf_guided.regex.parse import parsed_search
from hf_guided.regex.stored import FILE, Entries
from hf_guided.schema.formats import FORMATS, USUAL


def patterns() -> list[str]:
    """All patterns to store."""
    return sorted({*USUAL.values(), *(schema["pattern"] for schema in FORMATS.values())})


def entries(root: Node) -> Entries:
    """The entries of a tree; equal parts are stored once."""
    numbers: dict[Node, int] = {}
    found: Entries = []

    def number(node: Node) -> int:
        if node not in numbers:
            entry = [type(node).__name__.lower(), *values(node)]
            numbers[node] = len(found)
            found.append(entry)
        return numbers[node]

    def values(node: Node) -> list[Any]:
        if isinstance(node, Chars):
            return list(chain.from_iterable(node.charset.ranges))
        if isinstance(node, Repeat):
            return [number(node.body), node.low, node.high]
        if isinstance(node, Not):
            return [number(node.body)]
        if isinstance(node, Concat | And):
            return list(map(number, node.parts))
        return list(map(number, node.branches)) if isinstance(node, Alt) else []

    number(root)
    return found


def written() -> dict[str, str]:
    """The entries of each pattern as JSON."""
    return {pattern: json.dumps(entries(parsed_search(pattern)), separators=(",", ":")) for pattern in patterns()}


if __name__ == "__main__":
    FILE.write_bytes(gzip.compress(json.dumps(written()).encode(), mtime=0))
