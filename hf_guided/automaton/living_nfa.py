"""An NFA of pieces, as it is built, and what the subset construction needs of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import backwards
from .dominance import Copies, Repetition
from .fragments import FIRST, Fragment, Literal
from .limits import WorkMeter

Ints = NDArray[np.int64]
Piece = tuple[int, Fragment | Literal, int]  # source, what is between, target


class Table(NamedTuple):
    """An automaton that need not be minimal; see ``finished``."""

    table: NDArray[np.int32]
    byte_class: Ints
    accepting: NDArray[np.bool_]


@dataclass(frozen=True)
class Nfa:
    """States 0, 1 ... and the pieces between them.

    Args:
        states: how many.
        pieces: languages without the empty string that lead from state to state.
        skips: source and target of each edge without a byte.
        repetitions: those in it, inner ones first.
    """

    states: int
    pieces: list[Piece]
    skips: list[tuple[int, int]]
    repetitions: list[Repetition]

    @property
    def members(self) -> int:
        """How many states there are, those inside pieces too."""
        return self.states + sum(piece.states - FIRST for _, piece, _ in self.pieces)

    def copies(self, meter: WorkMeter) -> Copies | None:
        """Of repetitions; None where nothing is repeated."""
        return Copies.of(self.repetitions, self.states, len(self.pieces), meter) if self.repetitions else None


@dataclass(frozen=True)
class LivingNfa:
    """The pieces and skips that lead to states from which the end can be reached, sorted by their source.

    Args:
        states: how many states, living or not.
        start, end: two of them.
        pieces: what is between source and target.
        targets: (pieces,) of each.
        starts: (states + 1,) where the pieces of each source begin.
        firsts: (pieces,) the number of state ``FIRST`` inside each: those inside follow the states of the NFA.
        skips: (skips,) their targets.
        skip_starts: (states + 1,) where those of each source begin.
        numbered_pieces: all pieces, in the order in which ``copies`` numbers them.
        copies: None where nothing is repeated.
    """

    states: int
    start: int
    end: int
    pieces: list[Fragment | Literal]
    targets: Ints
    starts: Ints
    firsts: Ints
    skips: Ints
    skip_starts: Ints
    numbered_pieces: Sequence[Fragment | Literal]
    copies: Copies | None

    @classmethod
    def of(cls, nfa: Nfa, start: int, end: int, meter: WorkMeter) -> LivingNfa:
        """Those of an NFA."""
        sources = np.fromiter((source for source, _, _ in nfa.pieces), np.int64, len(nfa.pieces))
        targets = np.fromiter((target for _, _, target in nfa.pieces), np.int64, len(nfa.pieces))
        meter.spend(len(nfa.pieces) + len(nfa.skips))
        skips: Ints = np.array(nfa.skips, np.int64).reshape(-1, 2)
        alive = backwards(
            np.concatenate((sources, skips[:, 0])), np.concatenate((targets, skips[:, 1])), nfa.states, [end], meter
        )
        order = np.argsort(sources, kind="stable")
        order = order[alive[targets[order]]]
        numbered = [piece for _, piece, _ in nfa.pieces]
        pieces = [numbered[i] for i in order.tolist()]
        copies = nfa.copies(meter)
        sizes = np.fromiter((piece.states - FIRST for piece in pieces), np.int64, len(pieces))
        skips = skips[alive[skips[:, 1]]]
        skips = skips[np.argsort(skips[:, 0], kind="stable")]
        return cls(
            nfa.states,
            start,
            end,
            pieces,
            targets[order],
            np.searchsorted(sources[order], np.arange(nfa.states + 1)),
            nfa.states + np.cumsum(sizes) - sizes,
            np.ascontiguousarray(skips[:, 1]),
            np.searchsorted(skips[:, 0], np.arange(nfa.states + 1)),
            numbered,
            None if copies is None else copies.of_pieces(order),
        )
