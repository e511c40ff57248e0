"""The mask of each state: made at the first visit by a walk of the whole vocabulary, then kept.

- States that agree on all words as long as the longest token have one mask, and one walk. (Far from its end, a string
  of at most 1,000 letters is in the same position at every letter.)
- What walks find is stored once if it is equal, and the least recently used masks go when there are too many bytes.
- No token leads to a state from which the end cannot be reached with this vocabulary.

Shared by all rows of a constraint, on any thread: the lock covers the look-up, not the walk, so two threads may walk
for the same mask, and find the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

import numpy as np
from numpy.typing import NDArray

from .limits import Clock
from .refine import refine
from .token_walk import TokenWalk

MASK_BYTES = 16 * 2**20  # of one constraint; a thousand masks of 131k tokens
Words = NDArray[np.int32]


class TokenMasks:
    """Masks by state.

    Args:
        walk: the automaton and the vocabulary.
        can_end: (states,) where tokens may lead.
        clock: for what is done at once: which states share a mask.
        max_bytes: bound on the masks kept.
    """

    def __init__(self, walk: TokenWalk, can_end: NDArray[np.bool_], clock: Clock, max_bytes: int = MASK_BYTES):
        self._walk, self._can_end, self._max_bytes = walk, can_end, max_bytes
        dfa = walk.dfa
        used = (dfa.table != 0).any(0)[dfa.byte_class]
        kinds = np.where(can_end, 1, 2)
        kinds[0] = 0
        labels = np.unique(kinds, return_inverse=True)[1].reshape(-1)
        groups = refine(dfa.table, labels, clock, rounds=walk.tokens.longest_of(used))
        self._group: list[int] = groups.tolist()
        self._kept: OrderedDict[int, Words] = OrderedDict()  # by group
        self._by_content: dict[bytes, tuple[Words, int]] = {}  # and how many groups have it
        self._nbytes = 0
        self._lock = threading.Lock()
        self.walks = 0

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all masks would take, or may."""
        return min(self._max_bytes, (max(self._group) + 1) * self._walk.tokens.size // 8) + 8 * len(self._group)

    def of(self, state: int) -> Words:
        """(words,) int32, read-only: the tokens that may come in this state; stop tokens are 0."""
        group = self._group[state]
        with self._lock:
            words = self._kept.get(group)
            if words is not None:
                self._kept.move_to_end(group)
                return words
        return self._keep(group, self._walked(state))

    def _walked(self, state: int) -> Words:
        nodes, states = self._walk.nodes(state)
        return self._walk.tokens.mask(self._walk.tokens_at(nodes[self._can_end[states]])[0])

    def _keep(self, group: int, words: Words) -> Words:
        content = words.tobytes()
        with self._lock:
            self.walks += 1
            if group in self._kept:
                return self._kept[group]
            words, count = self._by_content.get(content, (words, 0))
            self._by_content[content] = words, count + 1
            self._nbytes += 0 if count else words.nbytes
            self._kept[group] = words
            while self._nbytes > self._max_bytes and len(self._kept) > 1:
                self._forget(*self._kept.popitem(last=False))
            return words

    def _forget(self, group: int, words: Words) -> None:
        content = words.tobytes()
        _, count = self._by_content[content]
        if count > 1:
            self._by_content[content] = words, count - 1
        else:
            del self._by_content[content]
            self._nbytes -= words.nbytes
