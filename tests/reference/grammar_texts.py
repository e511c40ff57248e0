"""The short texts of a context-free grammar, by definition: sets of texts that grow until nothing is added."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Tree = Any
"""("text", "ab") | ("set", "ab") | ("rule", name) | ("all" | "any", trees) | ("times", tree, low, high or None)"""


def texts_of(rules: Mapping[str, Tree], root: str, most: int) -> frozenset[str]:
    """All texts of a rule with at most this number of characters."""
    known: dict[str, frozenset[str]] = dict.fromkeys(rules, frozenset())

    def together(first: frozenset[str], second: frozenset[str]) -> frozenset[str]:
        return frozenset([a + b for a in first for b in second if len(a) + len(b) <= most])

    def texts(tree: Tree) -> frozenset[str]:
        kind, *parts = tree
        if kind == "text":
            return frozenset([parts[0]] if len(parts[0]) <= most else [])
        if kind == "set":
            return frozenset(parts[0])
        if kind == "rule":
            return known[parts[0]]
        if kind == "any":
            return frozenset().union(*map(texts, parts[0]))
        if kind == "all":
            found = frozenset([""])
            for part in parts[0]:
                found = together(found, texts(part))
            return found
        body, low, high = texts(parts[0]), parts[1], parts[2]
        found, times = frozenset([""]), 0
        while times < low:
            found, times = together(found, body), times + 1
        every = found
        while (high is None or times < high) and not (found := together(found, body)) <= every:
            every, times = every | found, times + 1
        return every

    while True:
        before = dict(known)
        for name, tree in rules.items():
            known[name] = texts(tree)
        if known == before:
            return known[root]
