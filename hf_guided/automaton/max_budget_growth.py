"""How much more may be needed behind one token than before it: how early a budget has to be heeded.

The tokens are searched, those first that could cost most if every byte of theirs did its worst. What a byte can do, it
is let do from every state of the network; of the stack nothing is known, so a frame may return to whoever calls it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .rtn import Frame
from .shortest_paths import NO_WAY, Ways
from .token_trie import TokenTrie

# Of work: states looked at, behind all beginnings of tokens. The worst there could still be is the answer then.
_MAX_STEPS = 100_000
State = tuple[int, int]  # frame, state


def worst_step(frames: Sequence[Frame], ways: Ways, tokens: TokenTrie) -> int:
    """Tokens that any one token may add to those needed without reaching across the ends of frames, at most."""
    return _Search(frames, ways, tokens).worst()


class _Search:
    def __init__(self, frames: Sequence[Frame], ways: Ways, tokens: TokenTrie):
        self._frames, self._ways, self._tokens = frames, ways, tokens
        self._rows = [frame.dfa.table.tolist() for frame in frames]
        self._class_of = [frame.dfa.byte_class.tolist() for frame in frames]
        self._accepting = [frame.dfa.accepting.tolist() for frame in frames]
        # From a state without a byte: into a frame that is called, and what that adds; out of one, to its callers.
        self._calls: dict[State, list[tuple[State, int]]] = {}
        self._returns: dict[int, set[State]] = {}
        for number, frame in enumerate(frames):
            needed = ways.of[number].tokens
            for callee, behind in frame.calls:
                start = frames[callee].dfa.start
                inside = ways.of[callee].tokens[start]
                for state in np.flatnonzero(behind).tolist():
                    after = inside + needed[int(behind[state])]
                    if after < NO_WAY:
                        self._returns.setdefault(callee, set()).add((number, int(behind[state])))
                        self._calls.setdefault((number, state), []).append(((callee, start), after - needed[state]))

    def worst(self) -> int:
        trie, has_token = self._tokens.trie, self._tokens.has_token
        along = self._tokens.along(self._by_byte())
        ahead = np.where(has_token, along, 0)  # the most that a token below a node could add
        for low, high in reversed(list(zip(trie.levels[1:-1], trie.levels[2:], strict=True))):
            np.maximum.at(ahead, trie.parent[low:high], ahead[low:high])
        begin = {
            (number, state): 0
            for number, least in enumerate(self._ways.of)
            for state, needed in enumerate(least.tokens)
            if needed < NO_WAY
        }
        queue = [(-int(ahead[0]), 0, begin)]
        worst = steps = 0
        while steps < _MAX_STEPS:
            if not queue or -queue[0][0] <= worst:
                return worst
            _, node, added = heapq.heappop(queue)
            steps += 1 + len(added)
            if node:
                added = self._step(added, int(trie.byte[node]))
                if not added:
                    continue
                if has_token[node]:
                    worst = max(worst, *added.values())
            added = self._closed(added)
            steps += len(added)
            most = max(added.values())
            for child in range(int(trie.child[node]), int(trie.child[node + 1])):
                bound = most + int(ahead[child] - along[node])
                if bound > worst:
                    heapq.heappush(queue, (-bound, child, added))
        return max(worst, -queue[0][0]) if queue else worst

    def _step(self, added: dict[State, int], byte: int) -> dict[State, int]:
        after: dict[State, int] = {}
        for (frame, state), so_far in added.items():
            moved = self._rows[frame][state][self._class_of[frame][byte]]
            if moved:
                needed = self._ways.of[frame].tokens
                if needed[moved] < NO_WAY:
                    here = so_far + needed[moved] - needed[state]
                    if here > after.get((frame, moved), -NO_WAY):
                        after[frame, moved] = here
        return after

    def _closed(self, added: dict[State, int]) -> dict[State, int]:
        """With what is reached by calls and returns."""
        found = dict(added)
        todo = list(found)
        while todo:
            one = todo.pop()
            frame, state = one
            more = [(there, found[one] + extra) for there, extra in self._calls.get(one, ())]
            if self._accepting[frame][state]:
                more += [(there, found[one]) for there in self._returns.get(frame, ())]
            for there, so_far in more:
                if so_far > found.get(there, -NO_WAY):
                    found[there] = so_far
                    todo.append(there)
        return found

    def _by_byte(self) -> NDArray[np.int64]:
        """(256,) what each byte adds at its worst, with a call before it."""
        by_byte = np.zeros(256, np.int64)
        calls = 0
        begins = np.zeros(256, np.bool_)
        for number, frame in enumerate(self._frames):
            dfa, tokens = frame.dfa, np.array(self._ways.of[number].tokens)
            possible = tokens < NO_WAY
            more = np.where((dfa.table != 0) & possible[dfa.table], tokens[dfa.table] - tokens[:, None], 0)
            more[~possible] = 0
            by_byte = np.maximum(by_byte, more.max(0)[dfa.byte_class])
            for callee, _ in frame.calls:
                inside = self._frames[callee].dfa
                begins |= (inside.table[inside.start] != 0)[inside.byte_class]
        for some in self._calls.values():
            calls = max(calls, *(extra for _, extra in some))
        return by_byte + calls * begins
