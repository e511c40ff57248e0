"""Whether a language is known to have no string: its tree shows this only where it holds no And and no Not.

Brzozowski's derivatives: what may follow a first character is a language again, and there are finitely many of them up
to the simplifications that the tree makes as it is built. Characters that no first set distinguishes lead to the
same one. The search is bounded: a language about which it gives up is simply not known to be empty. Most languages
take no search: examples.py knows a string of them, or sees that there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from .ast import (
    EMPTY,
    NOTHING,
    Alt,
    And,
    Chars,
    Concat,
    Node,
    Not,
    Repeat,
    alt,
    both,
    complement,
    concat,
    is_plain,
    only,
    repeat,
)
from .caches import tree_cache
from .charset import ALL, CharSet
from .examples import verdict as by_examples

MAX_NODES = 1_000  # to be looked at in one search: two milliseconds or three
MAX_ALL_NODES = 10_000  # in all searches
MAX_PROOF, MAX_ALL_PROOFS = 20_000, 100_000  # the same where something depends on the answer
MAX_CLASSES = 64  # of first characters that have to be distinguished
RANGES = 20  # of characters that weigh as much as a node
PARTS = 8  # of a node, of which most are the characters of words, that weigh as much as a node
_CHARACTER = Chars(ALL)


class Emptiness:
    """Says of languages whether they are known to have no string; the time for all of them is bounded.

    Args:
        most: nodes to be looked at in one search.
        most_of_all: nodes to be looked at in all searches.
    """

    def __init__(self, most: int = MAX_NODES, most_of_all: int = MAX_ALL_NODES) -> None:
        self._most, self._left = most, most_of_all
        self._examples_left = MAX_ALL_NODES  # apart, so that they leave no less to the searches
        self._known: dict[Node, bool | None] = {}

    def __call__(self, node: Node) -> bool:
        """Whether the language surely has no string."""
        return self.verdict(node) is True

    def verdict(self, node: Node) -> bool | None:
        """Whether the language has no string; None if the search gave up."""
        if is_plain(node) or node.nullable:
            return node == NOTHING
        if node not in self._known:
            self._known[node] = self._is_empty(node)
        return self._known[node]

    def _is_empty(self, node: Node) -> bool | None:
        if isinstance(node, Repeat):
            return self.verdict(node.body)  # at least once: a repetition that may be left out is nullable
        if isinstance(node, (Concat, Alt)):
            deciding = isinstance(node, Concat)  # one part without strings decides; of an Alt, one branch with strings
            verdict: bool | None = not deciding
            for part in node.parts if isinstance(node, Concat) else node.branches:
                empty = self.verdict(part)
                if empty is deciding:
                    return deciding
                verdict = None if empty is None else verdict
            return verdict
        if isinstance(node, And):
            if (meet := _lengths_meet(node.parts)) is not None:
                return not meet
            empty, work = by_examples(node.parts, min(self._most, self._examples_left))
            self._examples_left -= work
            if empty is not None:
                return empty
            node = both(*_of_common_characters(node.parts))
            if is_plain(node):
                return node == NOTHING
        search = _Search(min(self._most, self._left))
        seen, todo = {node}, [node]
        try:
            while todo:
                for following in search.after(todo.pop()):
                    if following.nullable:
                        return False
                    if following not in seen:
                        seen.add(following)
                        todo.append(following)
        except _GaveUp:
            return None
        finally:
            self._left -= search.visited
        return True


def _of_common_characters(parts: tuple[Node, ...]) -> Iterator[Node]:
    """The parts, plain ones without strings that have characters which another one has nowhere: often that is all."""
    common = ALL
    for part in parts:
        if is_plain(part):
            common &= _alphabet(part)
    for part in parts:
        yield _only(part, common) if is_plain(part) and _alphabet(part) & common != _alphabet(part) else part


def _lengths_meet(parts: tuple[Node, ...]) -> bool | None:
    """Whether a plain language has a string of some lengths; None if lengths do not apply, or it is hard to decide."""
    lengths = [part for part in parts if isinstance(part, Repeat) and part.body == _CHARACTER]
    others = [part for part in parts if part not in lengths]
    if len(lengths) != 1 or len(others) != 1 or not is_plain(others[0]):
        return None
    (wanted,), other_lengths = lengths, _lengths(others[0])
    high = inf if wanted.high is None else wanted.high
    if other_lengths.high < wanted.low or high < other_lengths.low:
        return False
    return True if other_lengths.every or other_lengths.low >= wanted.low or other_lengths.high <= high else None


class _Lengths(NamedTuple):
    """The least and the greatest length of a plain language's strings, and whether there is every one between."""

    low: int
    high: float
    every: bool


@tree_cache(maxsize=4096)
def _lengths(node: Node) -> _Lengths:
    if isinstance(node, Concat):
        parts = list(map(_lengths, node.parts))
        return _Lengths(
            sum(part_lengths.low for part_lengths in parts),
            sum(part_lengths.high for part_lengths in parts),
            all(part_lengths.every for part_lengths in parts),
        )
    if isinstance(node, Alt):
        first, *rest = sorted(map(_lengths, node.branches))
        low, high, every = first
        for part_lengths in rest:
            high, every = max(high, part_lengths.high), every and part_lengths.every and part_lengths.low <= high + 1
        return _Lengths(low, high, every)
    if isinstance(node, Repeat):
        low, high, every = _lengths(node.body)
        times = inf if node.high is None else node.high
        if node.low != times:
            fewest = max(node.low, 1)
            every = every and (fewest + 1) * low <= fewest * high + 1 and (node.low > 0 or low <= 1)
        return _Lengths(low * node.low, high * times if high else 0, every)
    length = 1 if isinstance(node, Chars) else 0
    return _Lengths(length, length, True)


@tree_cache(maxsize=4096)
def _alphabet(node: Node) -> CharSet:
    """The characters of a plain language."""
    if isinstance(node, Chars):
        return node.charset
    if isinstance(node, Repeat):
        return _alphabet(node.body)
    parts = node.parts if isinstance(node, Concat) else node.branches if isinstance(node, Alt) else ()
    return CharSet(range_ for part in parts for range_ in _alphabet(part).ranges)


class _GaveUp(Exception):
    """It takes too long."""


_only = lru_cache(maxsize=4096)(only)


class _Search:
    def __init__(self, most: int) -> None:
        self.visited = 0
        self._most = most
        self._known: dict[tuple[Node, str], Node] = {}
        self._told_apart: set[frozenset[CharSet]] = set()

    def after(self, node: Node) -> Iterator[Node]:
        """The derivatives by one character, without plainly empty ones; the likeliest to have a string last."""
        if is_plain(node):
            # Every plain tree but Nothing has a string, and Nothing is left out below.
            yield EMPTY
            return
        firsts = _firsts(node)
        if firsts not in self._told_apart:
            self._told_apart.add(firsts)
            self._visit(sum(len(charset.ranges) for charset in firsts) // RANGES)
        for charset in _distinct_classes(firsts):
            following = self._derivative(node, next(iter(charset)))
            if following != NOTHING:
                yield following

    def _visit(self, nodes: int) -> None:
        self.visited += nodes
        if self.visited > self._most:
            raise _GaveUp

    def _derivative(self, node: Node, character: str) -> Node:
        if isinstance(node, Chars):
            return EMPTY if character in node.charset else NOTHING
        known = self._known.get((node, character))
        if known is None:
            parts = node.parts if isinstance(node, Concat) else node.branches if isinstance(node, Alt) else ()
            self._visit(1 + len(parts) // PARTS)
            known = self._known[node, character] = self._derived(node, character)
        return known

    def _derived(self, node: Node, character: str) -> Node:
        if isinstance(node, Concat):
            branches = []
            for i, part in enumerate(node.parts):
                branches.append(concat(self._derivative(part, character), *node.parts[i + 1 :]))
                if not part.nullable:
                    break
            return alt(*branches)
        if isinstance(node, Alt):
            return alt(*(self._derivative(branch, character) for branch in node.branches))
        if isinstance(node, Repeat):
            # Right for a body with the empty string too: then fewer times are among more times.
            rest = repeat(node.body, max(node.low - 1, 0), None if node.high is None else node.high - 1)
            return concat(self._derivative(node.body, character), rest)
        if isinstance(node, And):
            parts = []
            for part in node.parts:
                parts.append(self._derivative(part, character))
                if parts[-1] == NOTHING:
                    return NOTHING
            return both(*parts)
        if isinstance(node, Not):
            return complement(self._derivative(node.body, character))
        return NOTHING


@tree_cache(maxsize=4096)
def _firsts(node: Node) -> frozenset[CharSet]:
    """Sets of characters that the first one is looked up in."""
    if isinstance(node, Chars):
        return frozenset({node.charset})
    if isinstance(node, Concat):
        found: frozenset[CharSet] = frozenset()
        for part in node.parts:
            found |= _firsts(part)
            if not part.nullable:
                break
        return found
    if isinstance(node, Alt):
        return frozenset().union(*map(_firsts, node.branches))
    if isinstance(node, And):
        return frozenset().union(*map(_firsts, node.parts))
    if isinstance(node, (Repeat, Not)):
        return _firsts(node.body)
    return frozenset()


@tree_cache(maxsize=1024)
def _distinct_classes(charsets: frozenset[CharSet]) -> tuple[CharSet, ...]:
    """All characters, in classes that each of the sets has as a whole or not at all."""
    classes = [ALL]
    for charset in sorted(charsets, key=lambda known: known.ranges):
        classes = [part for known in classes for part in (known - charset, known & charset) if part]
        if len(classes) > MAX_CLASSES:
            raise _GaveUp
    return tuple(classes)
