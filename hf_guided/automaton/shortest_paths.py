"""The shortest path out of every state of a component, in bytes: a call weighs the shortest text of the callee."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter
from .rtn import Component

UNREACHABLE = 1 << 29  # the sum of two still fits in an int32


class ComponentPaths:
    """Shortest paths out of one component.

    Args:
        component: the automaton.
        writable: (256,) bytes that a path may take.
        preferred: the first bytes to take where a path may take any.
    """

    def __init__(self, component: Component, writable: NDArray[np.bool_], preferred: bytes):
        self.component = component
        dfa = component.dfa
        self.size = [UNREACHABLE] * dfa.states  # in bytes, to the end of the component
        self.move = [0] * dfa.states  # the next byte on the path, or -1 - the index of a call
        self._before = self._reversed(writable, preferred)
        self._order: list[int] = []

    def _reversed(self, writable: NDArray[np.bool_], readable: bytes) -> list[list[tuple[int, int]]]:
        """For each state the moves that lead there: the source state, and the byte or call."""
        dfa = self.component.dfa
        byte_of = np.full(dfa.table.shape[1], -1)
        preferred = np.array([*readable, *(byte for byte in range(256) if byte not in readable)])[::-1]
        usable = preferred[writable[preferred]]
        byte_of[dfa.byte_class[usable]] = usable  # the last one stays
        sources, classes = np.nonzero(dfa.table)
        targets = dfa.table[sources, classes].astype(np.int64)
        kept = byte_of[classes] >= 0
        sources, by, targets = sources[kept], byte_of[classes[kept]], targets[kept]
        first = np.unique(sources * dfa.states + targets, return_index=True)[1]
        before: list[list[tuple[int, int]]] = [[] for _ in range(dfa.states)]
        for source, byte, target in zip(
            sources[first].tolist(), by[first].tolist(), targets[first].tolist(), strict=True
        ):
            before[target].append((source, byte))
        for i, (_, after_call) in enumerate(self.component.calls):
            for source in np.flatnonzero(after_call).tolist():
                before[int(after_call[source])].append((source, -1 - i))
        return before

    def shorten(self, weights: Sequence[int], meter: WorkMeter) -> bool:
        """Find the shortest paths in bytes; return whether the one from the start has become shorter.

        Args:
            weights: bytes that each call takes.
            meter: counts the work.
        """
        size, known = [UNREACHABLE] * len(self.size), self.size[self.component.dfa.start]
        ends = np.flatnonzero(self.component.dfa.accepting).tolist()
        for state in ends:
            size[state] = 0
        queue = [(0, state) for state in ends]
        self._order = []
        while queue:
            here, state = heapq.heappop(queue)
            if here > size[state]:
                continue
            self._order.append(state)
            before = self._before[state]
            meter.spend(1 + len(before))
            for source, by in before:
                there = here + (1 if by >= 0 else weights[-1 - by])
                if there < size[source]:
                    size[source], self.move[source] = there, by
                    heapq.heappush(queue, (there, source))
        self.size = size
        return size[self.component.dfa.start] < known
