"""The mask of each state: made at the first visit by a walk of the whole vocabulary, then kept.

- States that agree on all words as long as the longest token have one mask, and one walk. (Far from its end, a string
  of at most 1,000 letters is in the same position at every letter.) Which states these are is found out when the walks
  so far have taken about as long as that will: not before the first mask, and never where few are asked for.
- What walks find is stored once if it is equal, and the least recently used masks go when there are too many bytes.
- No token leads to a state from which the end cannot be reached with this vocabulary.

Shared by all rows of a constraint, on any thread: the lock covers what changes, not the walk, so two threads may walk
for the same mask, and find the same. A mask that is there is found without it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..errors import CompileLimitExceeded
from .limits import Clock, Limits
from .refine import refine
from .string_bodies import StringBodies
from .token_trie import packed
from .token_walk import TokenWalk

MASK_BYTES = 16 * 2**20  # of one constraint; a thousand masks of 131k tokens
_STATES_PER_WALK = 100  # compared in the time of one walk
Words = NDArray[np.int32]


class TokenMasks:
    """Masks by state.

    Args:
        walk: the automaton and the vocabulary.
        can_end: (states,) where tokens may lead.
        limits: on finding out which states share a mask; where they do not suffice, none do.
        max_bytes: bound on the masks kept.
    """

    def __init__(self, walk: TokenWalk, can_end: NDArray[np.bool_], limits: Limits, max_bytes: int = MASK_BYTES):
        self._walk, self._can_end, self._limits, self._max_bytes = walk, can_end, limits, max_bytes
        self._all_can_end = bool(can_end[1:].all())
        self._walks_alone = 1 + walk.dfa.states // _STATES_PER_WALK
        # The group of each state (None: each is its own), and the masks by group: one pair, replaced as one.
        self._table: tuple[list[int] | None, OrderedDict[int, Words]] = None, OrderedDict()
        self._by_content: dict[bytes, tuple[Words, int]] = {}  # and how many groups have it
        self._nbytes = 0
        self._lock = threading.Lock()
        self._is_filling = False  # half of the bytes are taken: it matters which masks were used last
        self._walks = 0
        self.made = 0  # masks so far, those that were forgotten and made again too

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all masks may take."""
        states = self._walk.dfa.states
        return min(self._max_bytes, states * self._walk.tokens.size // 8) + 8 * states

    def of(self, state: int) -> Words:
        """(words,) int32, read-only: the tokens that may come in this state; stop tokens are 0."""
        groups, kept = self._table
        words = kept.get(state if groups is None else groups[state])
        return self._looked_up(state) if words is None or self._is_filling else words

    def _looked_up(self, state: int) -> Words:
        with self._lock:
            found = self._found(state)
        if found is not None:
            return found
        words = self._without_walk(state)
        if words is None:
            with self._lock:
                self._walks += 1
                shares = self._walks == self._walks_alone
            if shares:
                self._share()
                with self._lock:
                    found = self._found(state)
                if found is not None:
                    return found
            words = self._walked(state)
        return self._keep(state, words)

    @cached_property
    def _bodies(self) -> StringBodies:
        return StringBodies(self._walk)

    def _found(self, state: int) -> Words | None:
        groups, kept = self._table
        group = state if groups is None else groups[state]
        words = kept.get(group)
        if words is not None:
            kept.move_to_end(group)
        return words

    def _share(self) -> None:
        """Find out which states share a mask."""
        dfa = self._walk.dfa
        used = (dfa.table != 0).any(0)[dfa.byte_class]
        kinds = np.where(self._can_end, 1, 2)
        kinds[0] = 0
        labels = np.unique(kinds, return_inverse=True)[1].reshape(-1)
        try:
            groups = refine(dfa.table, labels, Clock(self._limits), rounds=self._walk.tokens.longest_of(used))
        except CompileLimitExceeded:
            return
        with self._lock:
            by_state: list[int] = groups.tolist()
            kept: OrderedDict[int, Words] = OrderedDict()
            for state, words in self._table[1].items():
                if by_state[state] in kept:
                    self._forget(words)
                kept[by_state[state]] = words
            self._table = by_state, kept

    def _without_walk(self, state: int) -> Words | None:
        """The mask, where there is a quicker way than to walk the whole vocabulary."""
        if not self._all_can_end:
            return None
        few = self._walk.few(state)
        if few is not None:
            return self._walk.tokens.mask_at(few)
        inside = self._bodies.tokens(state)
        return None if inside is None else packed(inside)

    def _walked(self, state: int) -> Words:
        nodes, states = self._walk.nodes(state)
        return self._walk.tokens.mask(self._walk.tokens_at(nodes[self._can_end[states]])[0])

    def _keep(self, state: int, words: Words) -> Words:
        content = words.tobytes()
        with self._lock:
            found = self._found(state)
            if found is not None:
                return found
            self.made += 1
            words, count = self._by_content.get(content, (words, 0))
            self._by_content[content] = words, count + 1
            self._nbytes += 0 if count else words.nbytes
            self._is_filling = self._nbytes > self._max_bytes // 2
            groups, kept = self._table
            kept[state if groups is None else groups[state]] = words
            while self._nbytes > self._max_bytes and len(kept) > 1:
                self._forget(kept.popitem(last=False)[1])
            return words

    def _forget(self, words: Words) -> None:
        content = words.tobytes()
        _, count = self._by_content[content]
        if count > 1:
            self._by_content[content] = words, count - 1
        else:
            del self._by_content[content]
            self._nbytes -= words.nbytes
