"""Trees of patterns that this package brings, stored: to parse the longest takes 50 ms, to load its tree 1 ms.

scripts/store_patterns.py writes the file. A pattern that is not in it is parsed, so a pattern that has been changed is
slower until the file is written again, and never wrong.
"""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

from .ast import EMPTY, NOTHING, Alt, And, Chars, Concat, Node, Not, Parts, Repeat
from .charset import CharSet

FILE = Path(__file__).with_name("stored_patterns.json.gz")
_PARTS: dict[str, type[Parts]] = {"concat": Concat, "alt": Alt, "and": And}
Entries: TypeAlias = list[list[Any]]
"""A tree's nodes, each after its parts, which it names by number; the last one is the root."""


def stored(pattern: str) -> Node | None:
    """The tree that ``parse_search`` returns for a pattern; None if it is not stored."""
    written = _file().get(pattern)
    return None if written is None else loaded(json.loads(written))


@lru_cache(maxsize=1)
def _file() -> dict[str, str]:
    patterns: dict[str, str] = json.loads(gzip.decompress(FILE.read_bytes()))
    return patterns


def loaded(entries: Entries) -> Node:
    """The tree of some entries."""
    nodes: list[Node] = []
    for kind, *values in entries:
        nodes.append(_node(kind, values, nodes))
    return nodes[-1]


def entries(root: Node) -> Entries:
    """The entries of a tree; equal parts are stored once."""
    numbers: dict[Node, int] = {}
    found: Entries = []

    def number(node: Node) -> int:
        if node not in numbers:
            values: list[Any] = []
            if isinstance(node, Chars):
                values = list(chain.from_iterable(node.charset.ranges))
            elif isinstance(node, Repeat):
                values = [number(node.body), node.low, node.high]
            elif isinstance(node, Not):
                values = [number(node.body)]
            elif isinstance(node, Parts):
                values = list(map(number, node.parts))
            numbers[node] = len(found)
            found.append([type(node).__name__.lower(), *values])
        return numbers[node]

    number(root)
    return found


def _node(kind: str, values: list[Any], nodes: list[Node]) -> Node:
    if kind == "chars":
        return Chars(CharSet(zip(values[::2], values[1::2], strict=True)))
    if kind == "repeat":
        body, low, high = values
        return Repeat(nodes[body], low, high)
    if kind == "not":
        return Not(nodes[values[0]])
    if kind in _PARTS:
        return _PARTS[kind](tuple(nodes[number] for number in values))
    return {"nothing": NOTHING, "empty": EMPTY}[kind]
