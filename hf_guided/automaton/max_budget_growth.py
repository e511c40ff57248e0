"""The largest growth of the needed tokens over one token: it decides how early masks must respect a budget.

Far from the end of a budget a rough bound is enough, which takes a millisecond. Only near it the growth is searched.

The search tries first the tokens whose bytes could cost most in the worst case. Each byte is applied in every state of
the RTN. The stack is unknown, so a component may return to any of its callers.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from .rtn import Component
from .shortest_paths import UNREACHABLE, ShortestPaths
from .token_trie import TokenTrie

# States visited, over all beginnings of tokens. After that the answer is the upper bound known so far.
_MAX_STEPS = 100_000
State = tuple[int, int]  # frame, state


class MaxBudgetGrowth:
    """The most that one token may add to the tokens needed, where no token crosses the ends of components.

    Args:
        components: of the RTN.
        paths: out of them.
        tokens: the vocabulary.
    """

    def __init__(self, components: Sequence[Component], paths: ShortestPaths, tokens: TokenTrie):
        self._components, self._paths, self._tokens = components, paths, tokens
        self._rows = [component.dfa.table.tolist() for component in components]
        self._class_of = [component.dfa.byte_class.tolist() for component in components]
        self._accepting = [component.dfa.accepting.tolist() for component in components]
        # Moves without a byte: into a called component, with the tokens that adds; out of a component, to its callers.
        self._calls: dict[State, list[tuple[State, int]]] = {}
        self._returns: dict[int, set[State]] = {}
        for number, component in enumerate(components):
            needed = paths.of[number].tokens
            for callee, after_call in component.calls:
                start = components[callee].dfa.start
                inside = paths.of[callee].tokens[start]
                for state in np.flatnonzero(after_call).tolist():
                    after = inside + needed[int(after_call[state])]
                    if after < UNREACHABLE:
                        self._returns.setdefault(callee, set()).add((number, int(after_call[state])))
                        self._calls.setdefault((number, state), []).append(((callee, start), after - needed[state]))
        self._known = 0, UNREACHABLE  # the growth is at least, and at most
        self._search = self._bounds()
        self._lock = threading.Lock()

    def is_at_most(self, most: int) -> bool:
        """Whether no token adds more than ``most``. Searches only until this is known. Thread safe."""
        with self._lock:
            while self._known[0] <= most < self._known[1]:
                closer = next(self._search, None)
                if closer is None:
                    break
                self._known = closer
            return self._known[1] <= most

    def _bounds(self) -> Iterator[tuple[int, int]]:
        """What the growth is at least, and at most, closer and closer."""
        trie, has_token = self._tokens.trie, self._tokens.has_token
        by_byte = self._by_byte()
        yield 0, int(by_byte.max()) * (len(trie.levels) - 2)  # all bytes of the longest token
        along = self._tokens.along(by_byte)
        ahead = np.where(has_token, along, 0)  # the most that a token below a node could add
        for low, high in reversed([*pairwise(trie.levels[1:])]):
            first = np.flatnonzero(np.diff(trie.parent[low:high], prepend=-1))  # the first child of each parent
            parents = trie.parent[low:high][first]
            ahead[parents] = np.maximum(ahead[parents], np.maximum.reduceat(ahead[low:high], first))
        begin = {
            (number, state): 0
            for number, leaving in enumerate(self._paths.of)
            for state, needed in enumerate(leaving.tokens)
            if needed < UNREACHABLE
        }
        queue = [(-int(ahead[0]), 0, begin)]
        largest = steps = 0
        while queue and -queue[0][0] > largest and steps < _MAX_STEPS:
            yield largest, -queue[0][0]
            _, node, added = heapq.heappop(queue)
            steps += 1 + len(added)
            if node:
                added = self._step(added, int(trie.byte[node]))
                if not added:
                    continue
                if has_token[node]:
                    largest = max(largest, *added.values())
            added = self._closed(added)
            steps += len(added)
            most = max(added.values())
            for child in range(int(trie.child[node]), int(trie.child[node + 1])):
                bound = most + int(ahead[child] - along[node])
                if bound > largest:
                    heapq.heappush(queue, (-bound, child, added))
        yield largest, max(largest, -queue[0][0]) if queue else largest

    def _step(self, added: dict[State, int], byte: int) -> dict[State, int]:
        after: dict[State, int] = {}
        for (component, state), so_far in added.items():
            moved = self._rows[component][state][self._class_of[component][byte]]
            if moved:
                needed = self._paths.of[component].tokens
                if needed[moved] < UNREACHABLE:
                    here = so_far + needed[moved] - needed[state]
                    if here > after.get((component, moved), -UNREACHABLE):
                        after[component, moved] = here
        return after

    def _closed(self, added: dict[State, int]) -> dict[State, int]:
        """These states, and the states reached by calls and returns."""
        reached = dict(added)
        todo = list(reached)
        while todo:
            source = todo.pop()
            component, state = source
            more = [(there, reached[source] + extra) for there, extra in self._calls.get(source, ())]
            if self._accepting[component][state]:
                more += [(there, reached[source]) for there in self._returns.get(component, ())]
            for there, so_far in more:
                if so_far > reached.get(there, -UNREACHABLE):
                    reached[there] = so_far
                    todo.append(there)
        return reached

    def _by_byte(self) -> NDArray[np.int64]:
        """(256,) the most that each byte adds, including the calls before it."""
        by_byte = np.zeros(256, np.int64)
        begins = np.zeros(256, np.bool_)
        for number, component in enumerate(self._components):
            dfa, tokens = component.dfa, np.array(self._paths.of[number].tokens)
            possible = tokens < UNREACHABLE
            more = np.where((dfa.table != 0) & possible[dfa.table], tokens[dfa.table] - tokens[:, None], 0)
            more[~possible] = 0
            by_byte = np.maximum(by_byte, more.max(0)[dfa.byte_class])
            for callee, _ in component.calls:
                inside = self._components[callee].dfa
                begins |= (inside.table[inside.start] != 0)[inside.byte_class]
        known: dict[State, int] = {}
        return by_byte + max([self._by_calls(state, known) for state in self._calls], default=0) * begins

    def _by_calls(self, state: State, known: dict[State, int]) -> int:
        """The most that calls add which follow one another without a byte; written into ``known``."""
        if state not in known:
            known[state] = 0  # of a call that leads back to itself
            known[state] = max(
                (extra + self._by_calls(start, known) for start, extra in self._calls.get(state, ())), default=0
            )
        return known[state]
