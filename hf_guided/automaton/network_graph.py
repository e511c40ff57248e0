"""What the automata of a network know without a text: distances to the end, and where there are ways without number."""

from __future__ import annotations

import heapq
import threading
from collections import ChainMap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .rtn import Component, Components, Mark, callers
from .shortest_paths import UNREACHABLE

_OF_NUMBERS = b"0123456789+-.eE"  # repeated in a number they may mean the same again
_MAX_ENDINGS, _MAX_STEPS = 100, 1_000  # of the ways to the end of a name; and steps to find them
_READABLE = b'"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ _'


class NetworkGraph:
    """Facts about the states of a network, computed when they are first needed; thread safe.

    What is known of a component depends on those that it calls, and on those that these call: no others are built.

    Args:
        components: of the network.
        starts_open: whether the register of a component, as long as nothing is entered, lets anything begin.
        has_many_values: of a component, see ``Rule``.
    """

    def __init__(
        self, components: Components, starts_open: Callable[[int], bool], has_many_values: Callable[[int], bool]
    ):
        self._components, self._starts_open, self._has_many_values = components, starts_open, has_many_values
        self._distances: dict[int, NDArray[np.int64]] = {}
        self._unbounded: dict[int, NDArray[np.bool_]] = {}
        self._unbounded_begun: dict[int, NDArray[np.bool_]] = {}
        self._lock = threading.Lock()
        # Not methods, whose caches would hold the graph: only a full collection could free it.
        self.moves = lru_cache(maxsize=4096)(partial(_moves, components, {}))
        self.endings = lru_cache(maxsize=1024)(partial(_endings, components, self.moves))

    def distance(self, component: int, state: int) -> int:
        """Bytes to the end of the component at least; UNREACHABLE if there is no way."""
        if component not in self._distances:
            with self._lock:
                self._find_distances(self._unknown(component, self._distances))
        return int(self._distances[component][state])

    def is_unbounded(self, component: int, state: int) -> bool:
        """Whether there are ways to the end of the component that mean any number of different values."""
        return bool(self.unbounded(component)[state])

    def unbounded(self, component: int) -> NDArray[np.bool_]:
        """(states,) ``is_unbounded`` of each."""
        if component not in self._unbounded:
            with self._lock:
                self._find_unbounded(self._unknown(component, self._unbounded))
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

    def _unknown(self, component: int, known: Mapping[int, object]) -> list[int]:
        """The component, and those that it leads to, as far as nothing is known of them."""
        reached = {} if component in known else {component: None}
        todo = list(reached)
        while todo:
            for callee, _ in self._components[todo.pop()].calls:
                if callee >= 0 and callee not in known and callee not in reached:
                    reached[callee] = None
                    todo.append(callee)
        return list(reached)

    def _find_distances(self, numbers: list[int]) -> None:
        far = {number: np.full(self._components[number].dfa.states, UNREACHABLE, np.int64) for number in numbers}
        known = ChainMap(far, self._distances)
        self._settle(far, lambda number: self._relaxed(self._components[number], known[number], known))
        self._distances.update(far)

    def _settle(self, known: dict[int, NDArray[Any]], again: Callable[[int], NDArray[Any]]) -> None:
        """Compute the facts of components again until those of no callee change.

        Args:
            known: of each component, written.
            again: computes those of one.
        """
        called_by = callers({number: self._components[number] for number in known})
        todo = dict.fromkeys(known)  # the last first: most callees come after their callers
        while todo:
            number, _ = todo.popitem()
            facts = again(number)
            if not np.array_equal(facts, known[number]):
                known[number] = facts
                todo.update(dict.fromkeys((*called_by.get(number, ()), number)))

    def _relaxed(
        self, component: Component, known: NDArray[np.int64], far: Mapping[int, NDArray[np.int64]]
    ) -> NDArray[np.int64]:
        """The distances of a component's states, as far as those of its callees are known: Dijkstra's algorithm."""
        calls, dfa = component.calls, component.dfa
        weights = [1] * dfa.table.shape[1]
        weights += [0 if callee < 0 else int(far[callee][self._components[callee].dfa.start]) for callee, _ in calls]
        edges = _Edges.of(np.concatenate([dfa.table, *(after[:, None] for _, after in calls)], 1), weights)
        best = np.where(dfa.accepting, 0, known).tolist()
        queue = [(distance, state) for state, distance in enumerate(best) if distance < UNREACHABLE]
        heapq.heapify(queue)
        while queue:
            distance, state = heapq.heappop(queue)
            if distance == best[state]:
                for source, weight in edges.to(state):
                    if distance + weight < best[source]:
                        best[source] = distance + weight
                        heapq.heappush(queue, (best[source], source))
        return np.array(best, np.int64)

    def _find_unbounded(self, numbers: list[int]) -> None:
        recursive = self._recursive(numbers)
        targets = {number: _certain_targets(self._components[number]) for number in numbers}
        unbounded = {
            number: _reaching(after, _on_cycles(self._components[number], after)) for number, after in targets.items()
        }
        known = ChainMap(unbounded, self._unbounded)

        def again(number: int) -> NDArray[np.bool_]:
            component = self._components[number]
            if self._has_many_values(number):
                return _before_the_end(component)
            seeds = unbounded[number].copy()
            for callee, after in component.calls:
                if callee in recursive or (callee >= 0 and known[callee][self._components[callee].dfa.start]):
                    seeds |= after != 0
                elif callee == Mark.BEGIN and self._starts_open(number):
                    start = component.dfa.start
                    seeds[start] |= seeds[after[start]]
            return _reaching(targets[number], seeds)

        self._settle(unbounded, again)
        self._unbounded.update(unbounded)

    def _recursive(self, numbers: list[int]) -> set[int]:
        """Those of some components that lead back to themselves."""
        callees = {
            number: {callee for callee, _ in self._components[number].calls if callee >= 0} for number in numbers
        }
        recursive = set()
        for number, direct in callees.items():
            reached, todo = set(direct), list(direct)
            while todo and number not in reached:
                # Of others all is known already, so they do not lead here.
                for callee in callees.get(todo.pop(), set()) - reached:
                    reached.add(callee)
                    todo.append(callee)
            if number in reached:
                recursive.add(number)
        return recursive


def _before_the_end(component: Component) -> NDArray[np.bool_]:
    """(states,) those from which the mark ``END`` still comes, in a component in which it always does."""
    before = np.ones(component.dfa.states, np.bool_)
    before[0] = False
    todo = [state for callee, after in component.calls if callee == Mark.END for state in np.unique(after).tolist()]
    while todo:
        state = todo.pop()
        if before[state]:
            before[state] = False
            todo += np.unique(component.dfa.table[state]).tolist()
    return before


def _moves(
    components: Components, bytes_of: dict[int, list[list[int]]], component: int, state: int, width: int
) -> list[tuple[int, int]]:
    """Bytes that may come, at most ``width`` of each class, and the state after each."""
    row = components[component].dfa.table[state]
    by_class = bytes_of.get(component)
    if by_class is None:
        by_class = bytes_of[component] = _bytes_by_class(components[component])
    return [(byte, int(row[letter])) for letter in np.flatnonzero(row).tolist() for byte in by_class[letter][:width]]


def _endings(
    components: Components, moves: Callable[[int, int, int], list[tuple[int, int]]], component: int, state: int
) -> tuple[bytes, ...] | None:
    """The bytes by which what has begun in the component may end; None where there may be many, or calls."""
    dfa, calls = components[component].dfa, components[component].calls
    calling = set(np.flatnonzero(components[component].shape.after_calls.any(0)).tolist())
    endings: list[bytes] = []
    todo = [(state, b"")]
    for _ in range(_MAX_STEPS):
        if not todo:
            return tuple(endings)
        here, path = todo.pop()
        asked = [callee for callee, after in calls if after[here]] if here in calling else []  # few states call
        if asked == [Mark.END]:
            endings.append(path)
        elif asked or dfa.accepting[here]:
            return None
        todo += [(after, path + bytes((byte,))) for byte, after in moves(component, here, 256)]
        if len(endings) + len(todo) > _MAX_ENDINGS:
            return None
    return None


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
    edges = _Edges.of(np.delete(targets, left_out, 1))
    onwards = np.bincount(edges.sources, minlength=dfa.states).tolist()  # edges from each state that may reach one
    todo = [state for state, count in enumerate(onwards) if not count]
    for state in todo:  # grows meanwhile
        for source, _ in edges.to(state):
            onwards[source] -= 1
            if not onwards[source]:
                todo.append(source)
    left: NDArray[np.bool_] = np.array(onwards) > 0
    return left


def _reaching(targets: NDArray[np.int64], seeds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(states,) from which one of the states is reached."""
    edges = _Edges.of(targets)
    reaching: NDArray[np.bool_] = seeds.copy()
    reaching[0] = False
    todo = np.flatnonzero(reaching).tolist()
    while todo:
        for source, _ in edges.to(todo.pop()):
            if not reaching[source]:
                reaching[source] = True
                todo.append(source)
    return reaching


class _Edges(NamedTuple):
    """The edges between states, by the state to which they lead; none to the dead state.

    Args:
        begin: of each state, where the edges to it begin.
        sources, weights: of each edge.
    """

    begin: list[int]
    sources: list[int]
    weights: list[int]

    @classmethod
    def of(cls, targets: NDArray[Any], weights: Sequence[int] | None = None) -> _Edges:
        """Those from each state to its targets (states, n), with a weight for each of the n, if that is not too far."""
        states, columns = targets.shape
        of_column = np.array([0] * columns if weights is None else weights, np.int64)
        found = []
        for weight in np.unique(of_column[of_column < UNREACHABLE]).tolist():
            some = targets[:, of_column == weight].astype(np.int64)
            pairs = np.unique(some * states + np.arange(states)[:, None])  # of a target and a source
            found.append(np.stack((pairs, np.full(len(pairs), weight)))[:, pairs >= states])
        pairs, weights_of = np.concatenate(found or [np.empty((2, 0), np.int64)], 1)
        order = np.argsort(pairs, kind="stable")
        pairs = pairs[order]
        begin = np.searchsorted(pairs, np.arange(states + 1) * states)
        return cls(begin.tolist(), (pairs % states).tolist(), weights_of[order].tolist())

    def to(self, state: int) -> Iterator[tuple[int, int]]:
        """The source and the weight of each edge to a state."""
        first, last = self.begin[state : state + 2]
        return zip(self.sources[first:last], self.weights[first:last], strict=True)


def _bytes_by_class(component: Component) -> list[list[int]]:
    """For each class its bytes, readable ones first."""
    found: list[list[int]] = [[] for _ in range(component.dfa.table.shape[1])]
    for byte in (*_READABLE, *(byte for byte in range(256) if byte not in _READABLE)):
        found[component.dfa.byte_class[byte]].append(byte)
    return found
