"""The shortest way out of every state of a network of frames: least instances, by fixpoint.

First in bytes, where a call weighs what its frame takes at least; that gives every state one move on a shortest way.
Then in tokens along those ways, so the count is one that can be kept: a row that has so many tokens left gets out.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter
from .rtn import Frame, callers

if TYPE_CHECKING:
    from ..vocabulary.tokens import Vocabulary

NO_WAY = 1 << 29  # two of them can be added
_READABLE = b"0123456789abcdefghijklmnopqrstuvwxyz"  # before other bytes, where a way may take any
_LOOK_AHEAD = 32  # bytes of the longest token tried
MAX_TEXT = 1 << 16  # bytes of a way that are written out
_COUNT_STEPS = 10  # of work for each state whose tokens are counted


class Least:
    """Ways out of one frame.

    Args:
        frame: the automaton.
        writable: (256,) bytes that a way may take.
    """

    def __init__(self, frame: Frame, writable: NDArray[np.bool_]):
        self.frame = frame
        dfa = frame.dfa
        self.size = [NO_WAY] * dfa.states  # in bytes, to the end of the frame
        self.move = [0] * dfa.states  # the byte that is next on the way, or -1 - which call
        self.tokens = [NO_WAY] * dfa.states
        self._before = self._reversed(writable)
        self._order: list[int] = []

    def _reversed(self, writable: NDArray[np.bool_]) -> list[list[tuple[int, int]]]:
        """For each state the moves that lead there: where from, and by what."""
        dfa = self.frame.dfa
        byte_of = np.full(dfa.table.shape[1], -1)
        preferred = np.array([*_READABLE, *(byte for byte in range(256) if byte not in _READABLE)])[::-1]
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
        for i, (_, behind) in enumerate(self.frame.calls):
            for source in np.flatnonzero(behind).tolist():
                before[int(behind[source])].append((source, -1 - i))
        return before

    def shorten(self, weights: Sequence[int], meter: WorkMeter) -> bool:
        """Find the shortest ways in bytes; whether that of the start has become shorter.

        Args:
            weights: what each call takes.
            meter: counts the work.
        """
        size, known = [NO_WAY] * len(self.size), self.size[self.frame.dfa.start]
        ends = np.flatnonzero(self.frame.dfa.accepting).tolist()
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
        return size[self.frame.dfa.start] < known

    def count(self, vocabulary: Vocabulary, weights: Sequence[int], meter: WorkMeter) -> bool:
        """Count the tokens along the shortest ways; whether that of the start has become fewer.

        Args:
            vocabulary: the tokens.
            weights: tokens that each call takes.
            meter: counts the work.
        """
        start = self.frame.dfa.start
        tokens, known = self.tokens, self.tokens[start]
        meter.spend(_COUNT_STEPS * len(self._order))
        for state in self._order:
            if not self.size[state]:
                tokens[state] = 0
            elif self.move[state] < 0:
                call = -1 - self.move[state]
                tokens[state] = weights[call] + tokens[int(self.frame.calls[call][1][state])]
            else:
                text, behind = self._run(state)
                tokens[state] = min((1 + tokens[behind[i - 1]] for i in vocabulary.lengths_at(text)), default=NO_WAY)
        return tokens[start] < known

    def _run(self, state: int) -> tuple[bytes, list[int]]:
        """The next bytes of the way, up to its first call, and the states behind each."""
        text, behind, dfa = bytearray(), [], self.frame.dfa
        while self.size[state] and self.move[state] >= 0 and len(text) < _LOOK_AHEAD:
            text.append(self.move[state])
            state = int(dfa.table[state, dfa.byte_class[self.move[state]]])
            behind.append(state)
        return bytes(text), behind


class Ways:
    """The shortest ways out of all frames of a network.

    Args:
        frames: the network.
        vocabulary: the tokens.
        writable: (256,) bytes that are tokens of their own.
        meter: counts the work.
    """

    def __init__(self, frames: Sequence[Frame], vocabulary: Vocabulary, writable: NDArray[np.bool_], meter: WorkMeter):
        self.frames = frames
        self.of = [Least(frame, writable) for frame in frames]
        self._settle(lambda least, calls: least.shorten([self.of[i].size[frames[i].dfa.start] for i in calls], meter))
        self._settle(
            lambda least, calls: least.count(vocabulary, [self.of[i].tokens[frames[i].dfa.start] for i in calls], meter)
        )

    def _settle(self, improve: Callable[[Least, list[int]], bool]) -> None:
        """Again and again, until no frame's start gets better: whoever calls one that did has to look again."""
        called_by = callers(self.frames)
        todo = dict.fromkeys(reversed(range(len(self.frames))))  # who is called comes behind who calls, mostly
        while todo:
            number = next(iter(todo))
            del todo[number]
            if improve(self.of[number], [callee for callee, _ in self.frames[number].calls]):
                todo.update(dict.fromkeys(called_by.get(number, ())))

    def text(self, number: int, state: int) -> bytes:
        """The way out of a frame; empty if it is longer than MAX_TEXT."""
        if self.of[number].size[state] > MAX_TEXT:
            return b""
        found = bytearray()
        todo = [(number, state)]
        while todo:
            number, state = todo.pop()
            least, dfa = self.of[number], self.frames[number].dfa
            while least.size[state]:
                by = least.move[state]
                if by < 0:
                    callee, behind = self.frames[number].calls[-1 - by]
                    todo += [(number, int(behind[state])), (callee, self.frames[callee].dfa.start)]
                    break
                found.append(by)
                state = int(dfa.table[state, dfa.byte_class[by]])
        return bytes(found)
