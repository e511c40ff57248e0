"""The shortest path out of every state of an RTN, computed as a fixpoint.

First in bytes, where a call weighs the shortest text of the callee; that gives every state one move on a shortest path.
Then in tokens along those paths, so the count is achievable: a row that has this many tokens left reaches the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter
from .rtn import Component, callers

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

UNREACHABLE = 1 << 29  # the sum of two still fits in an int32
_READABLE = b"0123456789abcdefghijklmnopqrstuvwxyz"  # preferred where a path may take any byte
_LOOK_AHEAD = 32  # bytes of the longest token tried
MAX_TEXT = 1 << 16  # bytes of a path that are written out
_COUNT_STEPS = 10  # of work for each state whose tokens are counted


class ComponentPaths:
    """Shortest paths out of one component.

    Args:
        component: the automaton.
        writable: (256,) bytes that a path may take.
        preferred: the first bytes to take where a path may take any.
    """

    def __init__(self, component: Component, writable: NDArray[np.bool_], preferred: bytes = _READABLE):
        self.component = component
        dfa = component.dfa
        self.size = [UNREACHABLE] * dfa.states  # in bytes, to the end of the component
        self.move = [0] * dfa.states  # the next byte on the path, or -1 - the index of a call
        self.tokens = [UNREACHABLE] * dfa.states
        self._before = self._reversed(writable, preferred)
        self._order: list[int] = []

    def _reversed(self, writable: NDArray[np.bool_], readable: bytes) -> list[list[tuple[int, int]]]:
        """For each state the moves that lead there: the source state, and the byte or call."""
        dfa = self.component.dfa
        byte_of = np.full(dfa.table.shape[1], -1)
        preferred = np.array([*readable, *(byte for byte in range(256) if byte not in readable)])[::-1]
        usable = preferred[writable[preferred]]
        byte_of[dfa.byte_class[usable]] = usable  # the last one stays
        sources, classes, targets = dfa.edges()
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

    def count(self, vocabulary: Vocabulary, weights: Sequence[int], meter: WorkMeter) -> bool:
        """Count the tokens along the shortest paths; return whether the count of the start has become smaller.

        Args:
            vocabulary: the tokens.
            weights: tokens that each call takes.
            meter: counts the work.
        """
        dfa = self.component.dfa
        tokens, known = self.tokens, self.tokens[dfa.start]
        meter.spend(_COUNT_STEPS * len(self._order))
        # For each state the next bytes of its path, up to the first call, and the state after each byte.
        runs: dict[int, tuple[bytes, tuple[int, ...]]] = {}
        for state in self._order:
            if not self.size[state]:
                tokens[state] = 0
            elif self.move[state] < 0:
                call = -1 - self.move[state]
                tokens[state] = weights[call] + tokens[int(self.component.calls[call][1][state])]
            else:
                after = int(dfa.table[state, dfa.byte_class[self.move[state]]])
                further, states = runs.get(after, (b"", ()))
                text, states = (
                    bytes((self.move[state],)) + further[: _LOOK_AHEAD - 1],
                    (after, *states[: _LOOK_AHEAD - 1]),
                )
                runs[state] = text, states
                tokens[state] = min(
                    (1 + tokens[states[i - 1]] for i in vocabulary.lengths_at(text)), default=UNREACHABLE
                )
        return tokens[dfa.start] < known


class ShortestPaths:
    """The shortest paths out of all components of an RTN.

    Args:
        components: the RTN.
        vocabulary: the tokens.
        writable: (256,) bytes that are tokens of their own.
        meter: counts the work.
    """

    def __init__(
        self, components: Sequence[Component], vocabulary: Vocabulary, writable: NDArray[np.bool_], meter: WorkMeter
    ):
        self.components = components
        self.of = [ComponentPaths(component, writable) for component in components]
        self._settle(
            lambda paths, calls: paths.shorten([self.of[i].size[components[i].dfa.start] for i in calls], meter)
        )
        self._settle(
            lambda paths, calls: paths.count(
                vocabulary, [self.of[i].tokens[components[i].dfa.start] for i in calls], meter
            )
        )

    def _settle(self, improve: Callable[[ComponentPaths, list[int]], bool]) -> None:
        """Repeat until no component's start improves; after an improvement the callers are computed again."""
        called_by = callers(dict(enumerate(self.components)))
        todo = dict.fromkeys(reversed(range(len(self.components))))  # callees mostly come after their callers
        while todo:
            number = next(iter(todo))
            del todo[number]
            if improve(self.of[number], [callee for callee, _ in self.components[number].calls]):
                todo.update(dict.fromkeys(called_by.get(number, ())))

    def text(self, number: int, state: int) -> bytes:
        """The shortest path out of a component; empty if it is longer than MAX_TEXT."""
        if self.of[number].size[state] > MAX_TEXT:
            return b""
        path = bytearray()
        todo = [(number, state)]
        while todo:
            number, state = todo.pop()
            paths, dfa = self.of[number], self.components[number].dfa
            while paths.size[state]:
                by = paths.move[state]
                if by < 0:
                    callee, after_call = self.components[number].calls[-1 - by]
                    todo += [(number, int(after_call[state])), (callee, self.components[callee].dfa.start)]
                    break
                path.append(by)
                state = int(dfa.table[state, dfa.byte_class[by]])
        return bytes(path)
