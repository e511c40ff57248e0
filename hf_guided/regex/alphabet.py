"""Which characters the strings of a language are made of."""

from __future__ import annotations

from .ast import Alt, And, Chars, Concat, Node, Not, Repeat
from .charset import ALL, CharSet


def alphabet(node: Node) -> CharSet:
    """Every character that stands in a string of the language; maybe more where there is an And or a Not."""
    ranges: set[tuple[int, int]] = set()
    todo, seen = [node], {node}
    while todo:
        here = todo.pop()
        if isinstance(here, Not):
            return ALL
        if isinstance(here, Chars):
            ranges.update(here.charset.ranges)
            continue
        inner: tuple[Node, ...] = ()
        if isinstance(here, (Concat, And)):
            inner = here.parts
        elif isinstance(here, Alt):
            inner = here.branches
        elif isinstance(here, Repeat):
            inner = (here.body,)
        todo += [one for one in inner if one not in seen]
        seen.update(inner)
    return CharSet(ranges)
