"""Which members of a set of states subsets.py leaves out, in Python: part of the oracle for subsets.c."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from hf_guided.automaton.fragments import FIRST, Fragment, Literal
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.subsets import Copies
from tests.reference.inclusion import Inclusion

Ranks = tuple[int, ...]


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
