"""Which characters the strings of a language are made of."""

from __future__ import annotations

from functools import lru_cache, reduce
from operator import and_

from .ast import Alt, And, Chars, Concat, Node, Not, Repeat
from .charset import ALL, CharSet


@lru_cache(maxsize=4096)
def alphabet(node: Node) -> CharSet:
    """Every character that stands in a string of the language; maybe more where the tree has an And or a Not."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, (Concat, Alt)):
        parts = node.parts if isinstance(node, Concat) else node.branches
        return CharSet({one for part in parts for one in alphabet(part).ranges})
    if isinstance(node, Repeat):
        return alphabet(node.body)
    if isinstance(node, And):
        return reduce(and_, map(alphabet, node.parts))
    return ALL if isinstance(node, Not) else CharSet()
