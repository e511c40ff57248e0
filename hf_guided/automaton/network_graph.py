"""What the automata of a network know without a text: distances to the end, and where there are ways without number."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence, Set
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schema.registers import Mark
from .rtn import Component, callers
from .shortest_paths import UNREACHABLE

_OF_NUMBERS = b"0123456789+-.eE"  # repeated in a number they may mean the same again
_READABLE = b'"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ _'


class NetworkGraph:
    """Facts about the states of a network, computed when they are first needed; thread safe.

    Args:
        components: of the network.
        open_starts: components where the register, as long as nothing is entered, lets anything begin.
    """

    def __init__(self, components: Sequence[Component], open_starts: Set[int]):
        self._components, self._open_starts = components, open_starts
        self._distances: list[list[int]] | None = None
        self._unbounded: list[NDArray[np.bool_]] | None = None
        self._unbounded_begun: dict[int, NDArray[np.bool_]] = {}
        self._lock = threading.Lock()
        self._bytes_of: dict[int, list[list[int]]] = {}
        self.moves = lru_cache(maxsize=4096)(self._moves)

    def distance(self, component: int, state: int) -> int:
        """Bytes to the end of the component at least; UNREACHABLE if there is no way."""
        with self._lock:
            if self._distances is None:
                self._distances = self._all_distances()
        return self._distances[component][state]

    def is_unbounded(self, component: int, state: int) -> bool:
        """Whether there are ways to the end of the component that mean any number of different values."""
        with self._lock:
            if self._unbounded is None:
                self._unbounded = self._all_unbounded()
        return bool(self._unbounded[component][state])

    def unbounded(self, component: int) -> NDArray[np.bool_]:
        """(states,) ``is_unbounded`` of each."""
        self.is_unbounded(component, 0)
        assert self._unbounded is not None
        return self._unbounded[component]

    def unbounded_begun(self, component: int) -> NDArray[np.bool_]:
        """(states,) whether ways without number lead to where what has begun in the component itself ends."""
        known = self._unbounded_begun.get(component)
        if known is None:
            targets = _certain_targets(self._components[component], marks=())
            seeds = _on_cycles(self._components[component], targets)
            for callee, after in self._components[component].calls:
                if callee >= 0 and self.is_unbounded(callee, self._components[callee].dfa.start):
                    seeds |= after != 0
            known = self._unbounded_begun[component] = _reaching(targets, seeds)
        return known

    def _moves(self, component: int, state: int, width: int) -> list[tuple[int, int]]:
        """Bytes that may come, at most ``width`` of each class, and the state after each."""
        row = self._components[component].dfa.table[state]
        by_class = self._bytes_of.get(component)
        if by_class is None:
            by_class = self._bytes_of[component] = _bytes_by_class(self._components[component])
        return [
            (byte, int(row[letter])) for letter in np.flatnonzero(row).tolist() for byte in by_class[letter][:width]
        ]

    def _all_distances(self) -> list[list[int]]:
        far = [np.full(component.dfa.states, UNREACHABLE, np.int64) for component in self._components]
        self._settle(far, lambda number: self._relaxed(self._components[number], far[number], far))
        return [distances.tolist() for distances in far]

    def _settle(self, known: list[NDArray[Any]], again: Callable[[int], NDArray[Any]]) -> None:
        """Compute the facts of components again until those of no callee change.

        Args:
            known: of each component, written.
            again: computes those of one.
        """
        called_by = callers(self._components)
        todo = dict.fromkeys(range(len(known)))  # the last first: most callees come after their callers
        while todo:
            number, _ = todo.popitem()
            facts = again(number)
            if not np.array_equal(facts, known[number]):
                known[number] = facts
                todo.update(dict.fromkeys((*called_by.get(number, ()), number)))

    def _relaxed(
        self, component: Component, known: NDArray[np.int64], far: list[NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        dfa = component.dfa
        steps = np.where(dfa.table != 0, 1, UNREACHABLE)
        best = known.copy()
        best[dfa.accepting] = 0
        while True:
            shorter: NDArray[np.int64] = np.minimum(best, (best[dfa.table] + steps).min(1))
            for callee, after in component.calls:
                weight = 0 if callee < 0 else int(far[callee][self._components[callee].dfa.start])
                shorter = np.minimum(shorter, np.where(after != 0, best[after] + weight, UNREACHABLE))
            shorter = np.minimum(shorter, UNREACHABLE)
            shorter[0] = UNREACHABLE
            if np.array_equal(shorter, best):
                return shorter
            best = shorter

    def _all_unbounded(self) -> list[NDArray[np.bool_]]:
        recursive = self._recursive()
        targets = [_certain_targets(component) for component in self._components]
        unbounded = [
            _reaching(after, _on_cycles(component, after))
            for component, after in zip(self._components, targets, strict=True)
        ]

        def again(number: int) -> NDArray[np.bool_]:
            component = self._components[number]
            seeds = unbounded[number].copy()
            for callee, after in component.calls:
                if callee in recursive or (callee >= 0 and unbounded[callee][self._components[callee].dfa.start]):
                    seeds |= after != 0
                elif callee == Mark.BEGIN and number in self._open_starts:
                    start = component.dfa.start
                    seeds[start] |= seeds[after[start]]
            return _reaching(targets[number], seeds)

        self._settle(unbounded, again)
        return unbounded

    def _recursive(self) -> set[int]:
        """The components that lead back to themselves."""
        callees = [{callee for callee, _ in component.calls if callee >= 0} for component in self._components]
        recursive = set()
        for number, direct in enumerate(callees):
            reached, todo = set(direct), list(direct)
            while todo and number not in reached:
                for callee in callees[todo.pop()] - reached:
                    reached.add(callee)
                    todo.append(callee)
            if number in reached:
                recursive.add(number)
        return recursive


def _certain_targets(component: Component, marks: Collection[Mark] = (Mark.END, Mark.CLOSE)) -> NDArray[np.int64]:
    """(states, n) where a state leads, whatever a register says of these marks."""
    calls = [after for callee, after in component.calls if callee >= 0 or callee in marks]
    return np.concatenate([component.dfa.table, *(after[:, None] for after in calls)], 1)


def _on_cycles(component: Component, targets: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(states,) from which a cycle is reached that has more than numbers in it."""
    dfa = component.dfa
    of_numbers = np.zeros(256, np.bool_)
    of_numbers[list(_OF_NUMBERS)] = True
    left_out = np.setdiff1d(dfa.byte_class[of_numbers], dfa.byte_class[~of_numbers])
    targets = np.delete(targets, left_out, 1)
    left = np.ones(dfa.states, np.bool_)
    left[0] = False
    while True:
        going_on = left & left[targets].any(1)
        if (going_on == left).all():
            return left
        left = going_on


def _reaching(targets: NDArray[np.int64], seeds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(states,) from which one of the states is reached."""
    reaching = seeds.copy()
    reaching[0] = False
    while True:
        more: NDArray[np.bool_] = reaching | reaching[targets].any(1)
        if np.array_equal(more, reaching):
            return more
        reaching = more


def _bytes_by_class(component: Component) -> list[list[int]]:
    """For each class its bytes, readable ones first."""
    found: list[list[int]] = [[] for _ in range(component.dfa.table.shape[1])]
    for byte in (*_READABLE, *(byte for byte in range(256) if byte not in _READABLE)):
        found[component.dfa.byte_class[byte]].append(byte)
    return found
