r"""Anchors, look-around and word boundaries, taken out of a pattern exactly: concatenation, And and Not remain.

A branch is a sequence of nodes with assertions between them. The nodes before an assertion in its branch match all the
text before that position, the nodes after it all the text after it (a search begins and ends with a node for anything).
So

- ``^`` wants the part before it to be empty, ``$`` the part after it: both disappear;
- a look-ahead is an intersection with the part after it, a look-behind with the part before it;
- where a look-behind is to the right of a look-ahead the two parts overlap, and no intersection says that both
  hold for one and the same split of the text. That is refused, unless one of them is at the very edge: then it
  is about the whole text.

A boundary ``\b`` reads one character to its left and one to its right. So, unlike look-around of any length, it can be
written into the nodes beside it: the node on the left must end, and the node on the right must begin, with a character
that is (or is not) part of a word. A neighbour that can be empty is split into its non-empty texts and the empty one;
in the second case the boundary reads past it, up to the end of the text, which counts as no word character.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .ast import (
    ANYTHING,
    EMPTY,
    NOTHING,
    Alt,
    Chars,
    Concat,
    Node,
    Repeat,
    UnsupportedRegex,
    alt,
    both,
    chars,
    complement,
    concat,
    repeat,
    text,
)
from .charset import CharSet
from .match import matches

MAX_BOUNDARY_BRANCHES = 256  # maximum number of branches that the boundaries of one branch are split into


@dataclass(frozen=True)
class Edge:
    """``^`` or ``$``: no text before (after); or, with ``newline``, at most a last line end."""

    start: bool
    position: int
    newline: bool = False


@dataclass(frozen=True)
class Look:
    """Look-ahead or look-behind."""

    ahead: bool
    negative: bool
    branches: tuple[Branch, ...]
    position: int


@dataclass(frozen=True)
class Boundary:
    r"""``\b`` or ``\B``."""

    inside: bool  # ``\B``: both neighbours must be alike, and not different
    word: CharSet  # the characters of words
    empty: bool  # whether it holds where the whole text is empty
    position: int


Piece = Node | Edge | Look | Boundary
Branch = tuple[Piece, ...]


def language(branches: Sequence[Branch], *, unknown: int | None = None) -> Node:
    """The strings that one of the branches, rows of nodes and assertions, matches in full.

    ``unknown`` is the end of the branches beyond which there is more text: 0, -1, or None for neither. Raises
    UnsupportedRegex for a look-around or word boundary that cannot be said exactly.
    """
    expanded = [pieces for branch in branches for pieces in _without_boundaries(branch, unknown)]
    return alt(*(_branch(list(pieces)) for pieces in expanded))


def _branch(pieces: list[Piece]) -> Node:
    if not _cut(pieces, start=True) or not _cut(pieces, start=False):
        return NOTHING
    whole: list[Node] = []  # conditions on the whole text
    indices = [i for i, piece in enumerate(pieces) if isinstance(piece, Node) and piece != EMPTY]
    first, last = (indices[0], indices[-1]) if indices else (len(pieces), -1)
    between: list[Piece] = []
    for i, piece in enumerate(pieces):
        if isinstance(piece, Look) and ((piece.ahead and i < first) or (not piece.ahead and i > last)):
            whole.append(_looked(piece, at_edge=True))
        elif isinstance(piece, Look) and (i < first or i > last):  # after the start, or ahead of the end: sees nothing
            if not _looked(piece, at_edge=False).nullable:
                return NOTHING
        else:
            between.append(piece)
    return both(_between(between), *whole)


def _cut(pieces: list[Piece], *, start: bool) -> bool:
    """Make the part before each ``^`` (after each ``$``) empty, in place; False if it cannot be."""
    edges = [i for i, piece in enumerate(pieces) if isinstance(piece, Edge) and piece.start == start]
    strict = [i for i in edges if not pieces[i].newline]  # type: ignore[union-attr]
    if strict:
        outside = range(max(strict)) if start else range(min(strict) + 1, len(pieces))
        for i in outside:
            piece = pieces[i]
            if isinstance(piece, Node):
                if not piece.nullable:
                    return False
                pieces[i] = EMPTY
    for i in edges:
        piece = pieces[i]
        # Python's $: with nothing after it there is nothing left to say.
        pieces[i] = EMPTY if i in strict or all(p == EMPTY for p in pieces[i + 1 :]) else piece
    return True


def _between(pieces: list[Piece]) -> Node:
    nodes = [piece for piece in pieces if isinstance(piece, Node)]
    if len(nodes) == len(pieces):  # as in most
        return concat(*nodes)
    behind = [i for i, piece in enumerate(pieces) if isinstance(piece, Look) and not piece.ahead]
    split = behind[-1] + 1 if behind else 0
    left: Node = EMPTY
    ahead: list[Piece] = []  # assertions that look to the right from before the last look-behind
    for piece in pieces[:split]:
        if isinstance(piece, Node):
            if ahead and piece != EMPTY:
                position = pieces[behind[-1]].position  # type: ignore[union-attr]
                raise UnsupportedRegex("a look-behind to the right of a look-ahead is not supported", position)
            left = concat(left, piece)
        elif isinstance(piece, Look) and not piece.ahead:
            left = both(left, _looked(piece, at_edge=False))
        else:
            ahead.append(piece)  # at the same position: the order of assertions means nothing
    right: Node = EMPTY
    for piece in reversed([*ahead, *pieces[split:]]):
        if isinstance(piece, Node):
            right = concat(piece, right)
        elif isinstance(piece, Look):
            right = both(right, _looked(piece, at_edge=False))
        else:
            right = alt(EMPTY if right.nullable else NOTHING, text("\n") if matches(right, "\n") else NOTHING)
    return concat(left, right)


def _looked(look: Look, *, at_edge: bool) -> Node:
    """The texts that may come ahead (or before); at the edge that is the whole text, so ``^`` may be in it."""
    if not at_edge:
        for position in _looks_out(look.branches, look.ahead):
            raise UnsupportedRegex("this assertion looks out of the look-around that contains it", position)
    branches: list[Branch] = [(*branch, ANYTHING) if look.ahead else (ANYTHING, *branch) for branch in look.branches]
    seen = language(branches, unknown=None if at_edge else 0 if look.ahead else -1)
    return complement(seen) if look.negative else seen


def _looks_out(branches: Sequence[Branch], ahead: bool) -> Iterator[int]:
    """The positions of assertions in a look-ahead that look behind, or the reverse."""
    for piece in (piece for branch in branches for piece in branch):
        if isinstance(piece, Edge) and piece.start == ahead:
            yield piece.position
        elif isinstance(piece, Look):
            if piece.ahead != ahead:
                yield piece.position
            yield from _looks_out(piece.branches, ahead)
            yield from (inner.position for branch in piece.branches for inner in branch if isinstance(inner, Boundary))


def _without_boundaries(branch: Branch, unknown: int | None) -> list[Branch]:
    """Branches without boundaries that together match the same; of ``unknown`` see ``language``."""
    done: list[Branch] = []
    todo = [branch]
    while todo:
        pieces = todo.pop()
        index, boundary = next(((i, each) for i, each in enumerate(pieces) if isinstance(each, Boundary)), (0, None))
        if boundary is None:
            done.append(pieces)
            continue
        before, after = pieces[:index][::-1], pieces[index + 1 :]
        for word in (True, False):
            for left, left_empty in _sides(before, boundary, word, False, unknown == 0):
                for right, right_empty in _sides(after, boundary, word == boundary.inside, True, unknown == -1):
                    if boundary.empty or not (left_empty and right_empty):
                        todo.append((*left[::-1], *right))
        if len(done) + len(todo) > MAX_BOUNDARY_BRANCHES:
            raise UnsupportedRegex("too many word boundaries next to text that may be empty", boundary.position)
    return done


def _sides(pieces: Branch, boundary: Boundary, word: bool, first: bool, unknown: bool) -> Iterator[tuple[Branch, bool]]:
    """One side of a boundary, nearest piece first, in all variants whose neighbour is (or is not) a character of words.

    The neighbour is the ``first`` character of the side, else the last one. With each variant comes whether all its
    nodes are empty: then the neighbour is beyond the side.
    """
    charset = boundary.word if word else ~boundary.word
    for i, piece in enumerate(pieces):
        if not isinstance(piece, Node):
            continue  # assertions have no width
        nearer = tuple(EMPTY if isinstance(other, Node) else other for other in pieces[:i])
        if (restricted := _restricted(piece, charset, first)) != NOTHING:
            yield (*nearer, restricted, *pieces[i + 1 :]), False
        if not piece.nullable:
            return
    if unknown:
        raise UnsupportedRegex("this word boundary looks out of the look-around that contains it", boundary.position)
    if not word:
        yield tuple(EMPTY if isinstance(piece, Node) else piece for piece in pieces), True


def _restricted(node: Node, charset: CharSet, first: bool) -> Node:
    """The texts that begin (or end) with a character of the set.

    The node is taken apart as far as the tree allows, so that it stays a plain pattern; else it is an intersection.
    """

    def joined(near: Node, *rest: Node) -> Node:
        return concat(near, *rest) if first else concat(*rest, near)

    if isinstance(node, Chars):
        return chars(node.charset & charset)
    if isinstance(node, Alt):
        return alt(*(_restricted(branch, charset, first) for branch in node.parts))
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
    return both(node, joined(chars(charset), ANYTHING))
