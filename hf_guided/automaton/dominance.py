"""Members of a set of NFA states that can be left out, because another member has all their paths to the end.

``x{3,60}`` is sixty copies of x in a row, and a text may end after the third or any later one. So from a state in the
fourth copy every string leads to the end that does so from the same state in the fifth: the fourth *dominates* the
fifth. Sets of states that differ in dominated members alone accept the same strings. Without this, texts that can be
split into repetitions in many ways make sets with every possible count, and a set for every such set of counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .fragments import FIRST, Fragment, Literal
from .inclusion import Inclusion
from .limits import WorkMeter

Ints = NDArray[np.int64]
Ranks = tuple[int, ...]
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
        """Those of an NFA.

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

    def of_pieces(self, order: Ints) -> Copies:
        """The same for some of the pieces, in another order; ``piece_index`` keeps the numbers that they had."""
        # Pieces have the same states and edges at the same position in all copies, so any number identifies the
        # position.
        return self._replace(piece_index=self.piece_index[order], piece_ranks=self.piece_ranks[order])


class Dominance:
    """What repetitions say about the members of sets: states, and after those the states inside each piece.

    Args:
        copies: of the NFA.
        pieces: all that had a number when repetitions were noted.
        firsts: for each piece the first of its members.
        meter: counts the work.
    """

    def __init__(self, copies: Copies, pieces: Sequence[Fragment | Literal], firsts: list[int], meter: WorkMeter):
        self._states, self._firsts, self._meter = len(copies.state_index), firsts, meter
        self._state_index: list[int] = copies.state_index.tolist()
        self._state_ranks: list[Ranks] = list(map(tuple, copies.state_ranks.tolist()))
        self._piece_index: list[int] = copies.piece_index.tolist()
        self._piece_ranks: list[Ranks] = list(map(tuple, copies.piece_ranks.tolist()))
        self._pieces = pieces
        self._inclusions: dict[Fragment, Inclusion] = {}
        self._indices = _OnDemand(self._at)

    def undominated(self, members: frozenset[int]) -> frozenset[int]:
        """The members without those that others dominate."""
        if len(members) < 2:
            return members
        self._meter.spend(len(members))
        if len(set(map(self._indices.__getitem__, members))) == len(members):
            return members
        at: dict[int, list[int]] = {}
        for member in members:
            at.setdefault(self._indices[member], []).append(member)
        # In order, for what is known of inclusions by then decides how much work the next ones take.
        return frozenset(member for index in sorted(at) for member in self._minimal(index, at[index]))

    def _at(self, member: int) -> int:
        """Which state of the first copies it is, or, below zero, which piece of theirs it is in."""
        if member < self._states:
            return self._state_index[member]
        return -1 - self._piece_index[bisect_right(self._firsts, member) - 1]

    def _inside(self, member: int) -> tuple[Ranks, int, int]:
        """Which copies it is in, the state inside its piece, and itself."""
        if member < self._states:
            return self._state_ranks[member], 0, member
        piece = bisect_right(self._firsts, member) - 1
        return self._piece_ranks[piece], member - self._firsts[piece] + FIRST, member

    def _minimal(self, index: int, members: list[int]) -> Iterator[int]:
        """Of members at one position those that no other dominates.

        Another does if it is in no later copy throughout, and all that leads out of the piece from this one does so
        from there.
        """
        if len(members) == 1:
            yield members[0]
            return
        fragment = self._pieces[-1 - index] if index < 0 else None
        kept: list[tuple[Ranks, int, int]] = []
        for ranks, inside, member in sorted(map(self._inside, members)):
            self._meter.spend(len(kept))
            if not any(
                all(map(int.__le__, other, ranks)) and self._includes(fragment, inside, large)
                for other, large, _ in kept
            ):
                kept = [
                    other_kept
                    for other_kept in kept
                    if other_kept[0] != ranks or not self._includes(fragment, other_kept[1], inside)
                ]
                kept.append((ranks, inside, member))
        yield from (member for _, _, member in kept)

    def _includes(self, fragment: Fragment | Literal | None, small: int, large: int) -> bool:
        if small == large or not isinstance(fragment, Fragment):
            return small == large
        if fragment not in self._inclusions:
            self._inclusions[fragment] = Inclusion(fragment, self._meter)
        return self._inclusions[fragment].holds(small, large)


class _OnDemand(dict[int, int]):
    """Values that are worked out when they are first needed."""

    def __init__(self, make: Callable[[int], int]):
        super().__init__()
        self._make = make

    def __missing__(self, key: int) -> int:
        value = self[key] = self._make(key)
        return value


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
