"""Members of a set of NFA states that can be left out, because another member has all their paths to the end.

``x{3,60}`` is sixty copies of x in a row, and a text may end after the third or any later one. So from a state in the
fourth copy every string leads to the end that does so from the same state in the fifth: the fourth *dominates* the
fifth. Sets of states that differ in dominated members alone accept the same strings. Without this, texts that can be
split into repetitions in many ways make sets with every possible count, and a set for every such set of counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter

Ints = NDArray[np.int64]
_MAX_NESTING = 4  # repetitions inside one another that are distinguished; outer ones are left as they are


class Repetition(NamedTuple):
    """Copies of one part of an NFA, one after another, of which each dominates the next.

    Args:
        first_state: of the first copy; those of a copy have consecutive numbers, and so have the copies.
        states: of one copy.
        first_piece: of the first copy; its pieces have consecutive numbers too.
        pieces: of one copy.
        copies: how many.
    """

    first_state: int
    states: int
    first_piece: int
    pieces: int
    copies: int


class Copies(NamedTuple):
    """In which copies of repetitions the states and the pieces of an NFA are.

    Args:
        state_index: (states,) int64, which state of the first copies each one is.
        state_ranks: (states, levels) int32, its copies, those of inner repetitions first.
        piece_index: (pieces,) int64, as ``state_index``.
        piece_ranks: (pieces, levels) int32.
    """

    state_index: Ints
    state_ranks: NDArray[np.int32]
    piece_index: Ints
    piece_ranks: NDArray[np.int32]

    @classmethod
    def of(cls, repetitions: Sequence[Repetition], states: int, pieces: int, meter: WorkMeter) -> Copies:
        """The copies of an NFA.

        Args:
            repetitions: inner ones before those around them.
            states: how many there are.
            pieces: how many there are.
            meter: counts the work.
        """
        of_states, of_pieces = _Copies(states), _Copies(pieces)
        around: list[tuple[int, int]] = []  # first state and level of those that no later one has inside yet
        for repetition in repetitions:
            level = 0
            while around and around[-1][0] >= repetition.first_state:
                level = max(level, around.pop()[1] + 1)
            around.append((repetition.first_state, level))
            if level < _MAX_NESTING:
                of_states.repeat(repetition.first_state, repetition.states, repetition.copies, level)
                of_pieces.repeat(repetition.first_piece, repetition.pieces, repetition.copies, level)
        meter.spend(len(repetitions) + states + pieces)
        return cls(of_states.index, of_states.ranks(), of_pieces.index, of_pieces.ranks())


class _Copies:
    """For each of ``count`` numbers which one it is in the first copies, and in which copies it is."""

    def __init__(self, count: int):
        self.index: Ints = np.arange(count)
        self._ranks: list[Ints] = []

    def repeat(self, first: int, each: int, copies: int, level: int) -> None:
        while len(self._ranks) <= level:
            self._ranks.append(np.zeros(len(self.index), np.int64))
        every = slice(first, first + each * copies)
        self.index[every] = np.tile(self.index[first : first + each], copies)
        self._ranks[level][every] = np.repeat(np.arange(copies), each)

    def ranks(self) -> NDArray[np.int32]:
        """(numbers, levels) the copies of each, those of inner repetitions first."""
        columns: NDArray[np.int32] = np.array(self._ranks, np.int32).reshape(len(self._ranks), len(self.index))
        return np.ascontiguousarray(columns.T)
