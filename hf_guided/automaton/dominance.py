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


class Dominance:
    """What repetitions say about the members of sets: states, and after those the states inside each piece.

    Args:
        repetitions: inner ones before those around them.
        states: how many there are.
        order: the number that each piece had in the repetitions' count.
        pieces: all that had a number there.
        firsts: for each piece the first of its members.
        meter: counts the work.
    """

    def __init__(
        self,
        repetitions: Sequence[Repetition],
        states: int,
        order: Ints,
        pieces: Sequence[Fragment | Literal],
        firsts: list[int],
        meter: WorkMeter,
    ):
        self._states, self._firsts, self._meter = states, firsts, meter
        of_states, of_pieces = _Copies(states), _Copies(len(pieces))
        around: list[tuple[int, int]] = []  # first state and level of those that no later one has inside yet
        for repetition in repetitions:
            level = 0
            while around and around[-1][0] >= repetition.first_state:
                level = max(level, around.pop()[1] + 1)
            around.append((repetition.first_state, level))
            if level < _MAX_NESTING:
                of_states.repeat(repetition.first_state, repetition.states, repetition.copies, level)
                of_pieces.repeat(repetition.first_piece, repetition.pieces, repetition.copies, level)
        meter.spend(len(repetitions) + states + len(pieces))
        self._state_index: list[int] = of_states.index.tolist()
        self._state_ranks = of_states.ranks()
        # Pieces have the same states and edges at the same position in all copies, so any number identifies the
        # position.
        self._piece_index: list[int] = of_pieces.index[order].tolist()
        ranks = of_pieces.ranks()
        self._piece_ranks = [ranks[piece] for piece in order.tolist()]
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
        return frozenset(member for index, same_index in at.items() for member in self._minimal(index, same_index))

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

    def ranks(self) -> list[Ranks]:
        """For each number its copies, those of inner repetitions first."""
        if not self._ranks:
            return [()] * len(self.index)
        return list(zip(*(ranks.tolist() for ranks in self._ranks), strict=True))
