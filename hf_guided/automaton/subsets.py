"""From an NFA over bytes to the minimal DFA: subset construction, on ranges of bytes rather than on single ones."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import NOTHING, ByteDfa, backwards, finished
from .limits import SUBSET_MEMBERS, Clock

Edge = tuple[int, int, int]  # first and last segment of bytes, target


@dataclass(frozen=True)
class Nfa:
    """States 0, 1 ... and the ways between them.

    Args:
        states: how many.
        edges: source, first byte, last byte and target of each, one edge behind the other.
        epsilons: source and target of each way without a byte.
    """

    states: int
    edges: array[int]
    epsilons: array[int]


def determinize(nfa: Nfa, start: int, end: int, clock: Clock) -> ByteDfa:
    """The minimal automaton of all byte strings on a way from ``start`` to ``end``."""
    return _Subsets(nfa, end, clock).build(start)


class _Subsets:
    def __init__(self, nfa: Nfa, end: int, clock: Clock):
        self._clock, self._end = clock, end
        edges = np.array(nfa.edges, np.int64).reshape(-1, 4)
        skips = np.array(nfa.epsilons, np.int64).reshape(-1, 2)
        alive = backwards(
            np.concatenate((edges[:, 0], skips[:, 0])),
            np.concatenate((edges[:, 3], skips[:, 1])),
            nfa.states,
            [end],
            clock,
        )
        edges = edges[alive[edges[:, 3]]]
        clock.check()
        # Bytes between two bounds go the same ways everywhere.
        self._bounds = np.unique(np.concatenate((edges[:, 1], edges[:, 2] + 1, [0, 256])))  # (segments + 1,)
        edges[:, 1] = np.searchsorted(self._bounds, edges[:, 1])
        edges[:, 2] = np.searchsorted(self._bounds, edges[:, 2] + 1) - 1
        edges = edges[np.argsort(edges[:, 0], kind="stable")]
        self._starts = np.searchsorted(edges[:, 0], np.arange(nfa.states + 1)).tolist()
        self._edges: list[Edge] = list(
            zip(edges[:, 1].tolist(), edges[:, 2].tolist(), edges[:, 3].tolist(), strict=True)
        )
        clock.check()
        self._skips: dict[int, list[int]] = {}
        for source, target in skips[alive[skips[:, 1]]].tolist():
            self._skips.setdefault(source, []).append(target)
        self._closures: dict[int, frozenset[int]] = {}
        self._members = 0  # of all sets kept
        self._ids: dict[frozenset[int], int] = {}
        self._of_state: dict[int, int] = {}  # the id of a state's closure
        self._of_targets: dict[tuple[int, ...], int] = {}
        self._subsets: list[frozenset[int]] = [frozenset()]

    def build(self, start: int) -> ByteDfa:
        first = self._closure(start)
        if not first:
            return NOTHING
        self._id(first)
        sources: list[int] = []
        pieces: list[Edge] = []
        done = 1
        while done < len(self._subsets):
            subset = self._subsets[done]
            if done % 64 == 0 or len(subset) > 64:
                self._clock.check(len(self._subsets))
            here = self._steps(subset)
            pieces += here
            sources += [done] * len(here)
            done += 1
        self._clock.check(done)
        return finished(*self._table(sources, pieces), 1, self._clock)

    def _table(
        self, sources: list[int], pieces: list[Edge]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
        table = np.zeros((len(self._subsets), len(self._bounds) - 1), np.int64)
        flat = np.array(pieces, np.int64).reshape(-1, 3)
        counts = flat[:, 1] - flat[:, 0] + 1
        ends = np.cumsum(counts)
        columns = np.arange(int(counts.sum())) - np.repeat(ends - counts - flat[:, 0], counts)
        table[np.repeat(np.array(sources, np.int64), counts), columns] = np.repeat(flat[:, 2], counts)
        accepting = np.fromiter((self._end in subset for subset in self._subsets), np.bool_, len(self._subsets))
        byte_class = np.searchsorted(self._bounds, np.arange(256), side="right") - 1
        return table, byte_class, accepting

    def _steps(self, subset: frozenset[int]) -> list[Edge]:
        """Where the bytes lead: ranges of segments that do not overlap, with the id of the subset they lead to."""
        edges = [edge for state in subset for edge in self._edges[self._starts[state] : self._starts[state + 1]]]
        if len(edges) < 2:
            return [(first, last, self._id_of_state(target)) for first, last, target in edges]
        edges.sort()
        reached = -1
        for first, last, _ in edges:
            if first <= reached:
                return self._swept(edges)
            reached = last
        return [(first, last, self._id_of_state(target)) for first, last, target in edges]

    def _swept(self, edges: list[Edge]) -> list[Edge]:
        cuts = sorted({edge[0] for edge in edges} | {edge[1] + 1 for edge in edges})
        found: list[set[int]] = [set() for _ in cuts]
        for first, last, target in edges:
            for i in range(bisect_left(cuts, first), len(cuts)):
                if cuts[i] > last:
                    break
                found[i].add(target)
        return [(cuts[i], cuts[i + 1] - 1, self._id_of_targets(targets)) for i, targets in enumerate(found) if targets]

    def _id_of_targets(self, targets: set[int]) -> int:
        if len(targets) == 1:
            return self._id_of_state(next(iter(targets)))
        key = tuple(sorted(targets))
        known = self._of_targets.get(key)
        if known is None:
            known = self._id(frozenset().union(*map(self._closure, key)))
            self._of_targets[key] = known
            self._count(len(key))
        return known

    def _id_of_state(self, state: int) -> int:
        known = self._of_state.get(state)
        if known is None:
            known = self._of_state[state] = self._id(self._closure(state))
        return known

    def _id(self, subset: frozenset[int]) -> int:
        known = self._ids.get(subset)
        if known is None:
            known = self._ids[subset] = len(self._subsets)
            self._subsets.append(subset)
            self._count(len(subset))
        return known

    def _count(self, members: int) -> None:
        self._members += members
        self._clock.check(self._members // SUBSET_MEMBERS)

    def _closure(self, state: int) -> frozenset[int]:
        """What is reached without a byte, as far as it matters: states that bytes leave from, and the end."""
        known = self._closures.get(state)
        if known is None:
            seen, todo = {state}, [state]
            while todo:
                for target in self._skips.get(todo.pop(), ()):
                    if target not in seen:
                        seen.add(target)
                        todo.append(target)
            starts = self._starts
            known = frozenset(one for one in seen if one == self._end or starts[one] < starts[one + 1])
            self._closures[state] = known
            if len(seen) > 1:
                self._count(len(seen))
        return known
