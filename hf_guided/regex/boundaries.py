r"""Word boundaries, taken out of a pattern exactly: each becomes a condition on its two neighbouring characters.

A boundary ``\b`` reads one character to its left and one to its right. So, unlike look-around of any length, it can be
written into the nodes beside it: the node on the left must end, and the node on the right must begin, with a character
that is (or is not) part of a word. A neighbour that can be empty is split into its non-empty texts and the empty one;
in the second case the boundary reads past it, up to the end of the text, which counts as no word character.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .ast import ANYTHING, EMPTY, NOTHING, Alt, Chars, Concat, Node, Repeat, alt, both, chars, concat, repeat
from .charset import ALL, CharSet
from .errors import UnsupportedRegex

MAX_BRANCHES = 256  # that the boundaries of one branch are split into
_ANY_CHARACTER = chars(ALL)


@dataclass(frozen=True)
class Boundary:
    r"""``\b`` or ``\B``.

    Args:
        inside: whether both neighbours must be alike (``\B``), and not different (``\b``).
        word: the characters of words.
        empty: whether it holds where the whole text is empty.
        position: its index in the pattern.
    """

    inside: bool
    word: CharSet
    empty: bool
    position: int

    def sides(self) -> Iterator[tuple[bool, bool]]:
        """Whether the left and the right neighbour is a word character, in all combinations that satisfy it."""
        for left in (True, False):
            yield left, left == self.inside


@lru_cache(maxsize=1)
def python_inside_holds_on_empty() -> bool:
    r"""Whether ``\B`` matches the empty text in this version of Python (from 3.14 on)."""
    return re.search(r"\B", "") is not None


def without_boundaries(branch: tuple[Any, ...], *, unknown: int | None = None) -> list[tuple[Any, ...]]:
    """Branches without boundaries that together match what this one matches.

    Args:
        branch: nodes, boundaries, and other assertions, in order.
        unknown: the end of the branch where the neighbouring text is unknown: 0, -1, or None for neither.

    Raises:
        UnsupportedRegex: a boundary depends on text beyond the unknown end, or the branches become too many.
    """
    done: list[tuple[Any, ...]] = []
    todo = [branch]
    while todo:
        pieces = todo.pop()
        index = next((i for i, piece in enumerate(pieces) if isinstance(piece, Boundary)), None)
        if index is None:
            done.append(pieces)
            continue
        todo += _split(pieces, index, unknown)
        if len(done) + len(todo) > MAX_BRANCHES:
            raise UnsupportedRegex("too many word boundaries next to text that may be empty", pieces[index].position)
    return done


def _split(pieces: tuple[Any, ...], index: int, unknown: int | None) -> Iterator[tuple[Any, ...]]:
    boundary: Boundary = pieces[index]
    for left_word, right_word in boundary.sides():
        for left, left_empty in _sides(pieces[:index][::-1], boundary, left_word, ending, unknown == 0):
            for right, right_empty in _sides(pieces[index + 1 :], boundary, right_word, beginning, unknown == -1):
                if boundary.empty or not (left_empty and right_empty):
                    yield (*left[::-1], *right)


def _sides(
    pieces: tuple[Any, ...], boundary: Boundary, word: bool, restrict: Callable[[Node, CharSet], Node], unknown: bool
) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """One side of a boundary, nearest piece first, in all variants that give it the requested neighbour.

    Yields:
        The pieces, and whether all nodes among them are empty.
    """
    charset = boundary.word if word else ~boundary.word
    for i, piece in enumerate(pieces):
        if not isinstance(piece, Node):
            continue  # assertions have no width
        nearer = tuple(EMPTY if isinstance(other, Node) else other for other in pieces[:i])
        if (restricted := restrict(piece, charset)) != NOTHING:
            yield (*nearer, restricted, *pieces[i + 1 :]), False
        if not piece.nullable:
            return
    if unknown:
        raise UnsupportedRegex("this word boundary looks out of the look-around that contains it", boundary.position)
    if not word:
        yield tuple(EMPTY if isinstance(piece, Node) else piece for piece in pieces), True


def beginning(node: Node, charset: CharSet) -> Node:
    """The texts of a node that begin with a character of the set."""
    return _restricted(node, charset, first=True)


def ending(node: Node, charset: CharSet) -> Node:
    """The texts of a node that end with a character of the set."""
    return _restricted(node, charset, first=False)


def _restricted(node: Node, charset: CharSet, first: bool) -> Node:
    """Taken apart as far as the tree allows, so that it stays a plain pattern; an intersection elsewhere."""

    def joined(near: Node, *rest: Node) -> Node:
        return concat(near, *rest) if first else concat(*rest, near)

    if isinstance(node, Chars):
        return chars(node.charset & charset)
    if isinstance(node, Alt):
        return alt(*(_restricted(branch, charset, first) for branch in node.branches))
    if isinstance(node, Concat):
        branches = []
        parts = node.parts
        while parts:
            near, parts = (parts[0], parts[1:]) if first else (parts[-1], parts[:-1])
            branches.append(joined(_restricted(near, charset, first), *parts))
            if not near.nullable:
                break
        return alt(*branches)
    if isinstance(node, Repeat):
        # A body that may be empty can leave the first round empty; the others are as good then.
        high = None if node.high is None else node.high - 1
        return joined(_restricted(node.body, charset, first), repeat(node.body, max(node.low - 1, 0), high))
    if node in (EMPTY, NOTHING):
        return NOTHING
    return both(node, joined(_character(charset), ANYTHING))


def _character(charset: CharSet) -> Node:
    return _ANY_CHARACTER if charset == ALL else chars(charset)
