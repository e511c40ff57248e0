"""The characters that the strings of a language consist of."""

from __future__ import annotations

from functools import reduce
from operator import and_

from .ast import Alt, And, Chars, Concat, Node, Not, Repeat
from .caches import tree_cache
from .charset import ALL, CharSet


@tree_cache(maxsize=4096)
def alphabet(node: Node) -> CharSet:
    """Every character that occurs in a string of the language; maybe more where the tree has an And or a Not."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, (Concat, Alt)):
        parts = node.parts if isinstance(node, Concat) else node.branches
        return CharSet({range_ for part in parts for range_ in alphabet(part).ranges})
    if isinstance(node, Repeat):
        return alphabet(node.body)
    if isinstance(node, And):
        return reduce(and_, map(alphabet, node.parts))
    return ALL if isinstance(node, Not) else CharSet()
