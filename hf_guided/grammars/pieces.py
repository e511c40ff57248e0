"""Texts as pieces: regular languages, calls of other components, and what joins them.

Every regular part is put into one language with the part after it, so that most of a text needs no stack.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, NamedTuple

from ..automaton.rtn import ComponentBuilder
from ..regex import (
    EMPTY,
    NOTHING,
    Alt,
    Concat,
    Node,
    Repeat,
    alt,
    characters,
    concat,
    repeat,
)

_STEPS = 50  # steps of work for each part that is added to an automaton


class Call(NamedTuple):
    """The texts of another component, of this name."""

    name: Any  # hashable


class Choice(NamedTuple):
    """Any of some pieces, not all of them languages."""

    pieces: tuple[Piece, ...]


class Times(NamedTuple):
    """A repeated piece that is not a regular language."""

    piece: Piece
    low: int
    high: int | None


Part = Node | Call | Choice | Times
Piece = tuple[Part, ...]
"""A sequence: regular languages, no two adjacent, and other parts."""


def joined(*pieces: Piece) -> Piece:
    """One after another."""
    parts: list[Part] = []
    for is_language, run in groupby(chain(*pieces), lambda part: isinstance(part, Node)):
        adjacent = list(run)
        parts += [concat(*adjacent)] if is_language else adjacent  # type: ignore[arg-type]
    return tuple([part for part in parts if part != EMPTY])


def any_of(pieces: Sequence[Piece]) -> Piece:
    """One of them; languages are put together."""
    different = list(dict.fromkeys(pieces))
    languages = [language(piece) for piece in different]
    regular = [each for each in languages if each is not None]
    others = [piece for piece, each in zip(different, languages, strict=True) if each is None]
    if not others:
        return joined((alt(*regular),))
    if len(others) == 1 and not regular:
        return others[0]
    return (Choice((*([joined((alt(*regular),))] if regular else []), *others)),)


def times(piece: Piece, low: int, high: int | None) -> Piece:
    """A piece again and again."""
    inner = piece[0] if len(piece) == 1 else None
    if isinstance(inner, (Repeat, Times)):
        body = (inner.body,) if isinstance(inner, Repeat) else inner.piece
        if inner.low <= 1 and high is None and low <= 1:
            return times(body, low * inner.low, None)  # (x{1,3})+ is x+
        if inner.low == 0 and inner.high is not None and high is not None:
            return times(body, 0, inner.high * high)  # (x{0,3}){2,5} is x{0,15}
    regular = language(piece)
    if regular is not None:
        return joined((repeat(regular, low, high),))
    if high == 0:
        return ()
    if low == high == 1:
        return piece
    return (Times(piece, low, high),)


def language(piece: Piece) -> Node | None:
    """The language of a piece that is regular."""
    if not piece:
        return EMPTY
    return piece[0] if len(piece) == 1 and isinstance(piece[0], Node) else None


def inside(part: Part) -> tuple[Piece, ...]:
    """The pieces that a part is made of."""
    if isinstance(part, Choice):
        return part.pieces
    return (part.piece,) if isinstance(part, Times) else ()


def parts_in(piece: Piece) -> Iterator[Node | Call]:
    """All languages and calls in a piece."""
    todo = list(piece)
    while todo:
        part = todo.pop()
        if isinstance(part, (Node, Call)):
            yield part
        for within in inside(part):
            todo += within


def size_of(piece: Piece) -> int:
    """The characters and calls in a piece, about; repetitions of what is no language count once."""
    return sum([characters(part) if isinstance(part, Node) else 1 for part in parts_in(piece)])


def nullable(piece: Iterable[Part]) -> bool:
    """Whether the empty text is among those of a piece; a call has it never."""
    for part in piece:
        if isinstance(part, Node):
            is_empty = part.nullable
        elif isinstance(part, Choice):
            is_empty = any(map(nullable, part.pieces))
        else:
            is_empty = isinstance(part, Times) and (part.low == 0 or nullable(part.piece))
        if not is_empty:
            return False
    return True


def not_empty(piece: Piece) -> Piece | None:
    """The texts of a piece but the empty one; None if there are no others."""
    if not nullable(piece):
        return piece
    # Where the first part is not empty, any may come after it; else one after it is not empty.
    branches: list[Piece] = []
    for i, part in enumerate(piece):
        first = _part_not_empty(part)
        if first is not None:
            branches.append(joined(first, piece[i + 1 :]))
    return any_of(branches) if branches else None


def _part_not_empty(part: Part) -> Piece | None:
    if isinstance(part, Node):
        without = _language_not_empty(part)
        return None if without == NOTHING else (without,)
    if isinstance(part, Choice):
        branches = [branch for branch in map(not_empty, part.pieces) if branch is not None]
        return any_of(branches) if branches else None
    if isinstance(part, Times):
        body = not_empty(part.piece)
        low = 1 if nullable(part.piece) else max(part.low, 1)
        return None if body is None else times(body, low, part.high)
    return (part,)


def _language_not_empty(node: Node) -> Node:
    """The strings of a language that has no And and no Not, but the empty one."""
    if not node.nullable:
        return node
    if isinstance(node, Repeat):
        body = _language_not_empty(node.body)
        return repeat(body, 1 if node.body.nullable else max(node.low, 1), node.high)
    if isinstance(node, Alt):
        return alt(*map(_language_not_empty, node.parts))
    if isinstance(node, Concat):
        parts = node.parts
        return alt(*[concat(_language_not_empty(part), *parts[i + 1 :]) for i, part in enumerate(parts)])
    return NOTHING


class PieceWriter:
    """Adds pieces to an automaton; ``call`` adds the texts of another component between two states."""

    def __init__(self, builder: ComponentBuilder, call: Callable[[Any, int, int], None]):
        self.builder, self._call = builder, call

    def after(self, piece: Piece, state: int) -> int:
        """Add a piece after a state; returns the state after it, which nothing in the piece leaves."""
        end = self.builder.state()
        self.between(state, [(piece, end)])
        return end

    def between(self, state: int, paths: Sequence[tuple[Piece, int]]) -> None:
        """Add pieces after a state, each up to one of its own; a beginning that several have is added once."""
        todo = [(state, list(paths))]
        while todo:
            state, paths = todo.pop()
            following: dict[Part, list[tuple[Piece, int]]] = {}
            for piece, end in paths:
                if piece:
                    following.setdefault(piece[0], []).append((piece[1:], end))
                else:
                    self.builder.epsilon(state, end)
            for part, rests in following.items():
                if len(rests) == 1 and not rests[0][0]:
                    self._add(part, state, rests[0][1])
                else:
                    after = self.builder.state()
                    self._add(part, state, after)
                    todo.append((after, rests))

    def _add(self, part: Part, start: int, end: int) -> None:
        builder = self.builder
        builder.spend(_STEPS)
        if isinstance(part, Node):
            builder.add(part, start, end)
        elif isinstance(part, Choice):
            self.between(start, [(piece, end) for piece in part.pieces])
        elif isinstance(part, Times):
            self._repeat(part, start, end)
        else:
            self._call(part.name, start, end)

    def _repeat(self, part: Times, state: int, end: int) -> None:
        builder = self.builder
        for count in range(max(part.low - 1, 0) if part.high is None else part.high):
            if count >= part.low:
                builder.epsilon(state, end)
            state = self.after(part.piece, state)
        if part.high is not None:
            builder.epsilon(state, end)
            return
        if part.low == 0:
            builder.epsilon(state, end)
        begin = builder.state()  # one copy of the last piece, also where it comes again: these may be inside each other
        builder.epsilon(state, begin)
        last = self.after(part.piece, begin)
        builder.epsilon(last, begin)
        builder.epsilon(last, end)
