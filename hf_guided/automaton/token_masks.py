"""The mask of each state: made at the first visit, then kept.

- Where a handful of tokens may come they are found one by one, and inside JSON strings what any string lets pass is
  known; only elsewhere the whole vocabulary is walked.
- A state equivalent to one that was walked before, for as long as the longest token that got through, has its mask
  without a walk. (Far from its end, a string of at most 1,000 letters is in the same position at every letter.)
- Equal masks are stored once, and the least recently used ones go when there are too many bytes.
- No token leads to a state from which the end cannot be reached with this vocabulary.

Shared by all rows of a constraint, on any thread: the lock covers the cache, not the walk, so two threads may walk
for the same mask, and find the same. A mask that is there is found without it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Hashable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .json_string_masks import JsonStringMasks
from .state_equivalence import StateEquivalence
from .token_walk import Ints, TokenWalk

MASK_BYTES = 11 * 2**20  # of one constraint; seven hundred masks of 131k tokens
Words = NDArray[np.int32]


class _Mask:
    """A mask, its key, and how many states have it."""

    __slots__ = ("content", "states", "words")

    def __init__(self, content: Hashable, words: Words):
        self.content, self.words = content, words
        self.states = 0


class TokenMasks:
    """Masks by state.

    Args:
        walk: the automaton and the vocabulary.
        can_end: (states,) where tokens may lead.
        max_bytes: bound on the masks kept.
    """

    def __init__(self, walk: TokenWalk, can_end: NDArray[np.bool_], max_bytes: int = MASK_BYTES):
        self._walk, self._can_end, self._max_bytes = walk, can_end, max_bytes
        self._all_can_end = bool(can_end[1:].all())
        self._kept: OrderedDict[int, _Mask] = OrderedDict()
        self._by_content: dict[Hashable, _Mask] = {}
        self._nbytes = 0
        self._lock = threading.Lock()
        self._is_filling = False  # half of the bytes are taken: it matters which masks were used last
        self.made = 0  # masks so far, those that were forgotten and made again too

    @property
    def nbytes(self) -> int:
        """Bytes of memory that all masks may take."""
        states = self._walk.dfa.states
        return min(self._max_bytes, states * self._walk.tokens.size // 8) + 8 * states

    def of(self, state: int) -> Words:
        """(words,) int32, read-only: the tokens that may come in this state; stop tokens are 0."""
        mask = self._kept.get(state)
        return self._looked_up(state) if mask is None or self._is_filling else mask.words

    def _looked_up(self, state: int) -> Words:
        with self._lock:
            mask = self._kept.get(state)
            if mask is not None:
                self._kept.move_to_end(state)
                return mask.words
        few = self._walk.few(state) if self._all_can_end else None
        if few is not None:
            return self._few(state, few)
        inside = self._inside_strings.mask(state) if self._all_can_end else None
        if inside is not None:
            return self._keep(state, inside.tobytes())
        twin = self._equivalence.find(state)
        if twin is not None:
            with self._lock:
                known = self._kept.get(twin)
                if known is not None:
                    return self._put(state, known)
        return self._keep(state, self._walked(state).tobytes())

    @cached_property
    def _inside_strings(self) -> JsonStringMasks:
        return JsonStringMasks(self._walk)

    @cached_property
    def _equivalence(self) -> StateEquivalence:
        return StateEquivalence(self._walk.dfa, self._can_end)

    def _few(self, state: int, nodes: Ints) -> Words:
        """The mask of the tokens in a few nodes; an array of its own only where there is none yet."""
        content = nodes.tobytes()
        with self._lock:
            known = self._by_content.get(content)
            if known is None:
                words = self._walk.tokens.mask_of(nodes)
                words.flags.writeable = False
                known = _Mask(content, words)
            return self._put(state, known)

    def _walked(self, state: int) -> Words:
        nodes, states = self._walk.below(np.zeros(1, np.int32), np.array([state]))
        self._equivalence.add(state, bisect_right(self._walk.tokens.trie.levels, int(nodes[-1])) - 1)
        ends = nodes[1:] if self._all_can_end else nodes[1:][self._can_end[states[1:]]]
        return self._walk.tokens.mask_of(ends)

    def _keep(self, state: int, content: bytes) -> Words:
        with self._lock:
            known = self._by_content.get(content)
            return self._put(state, known or _Mask(content, np.frombuffer(content, np.int32)))

    def _put(self, state: int, mask: _Mask) -> Words:
        """Keep a mask for a state; called with the lock."""
        kept = self._kept
        present = kept.get(state)
        if present is not None:
            return present.words  # another thread was faster
        self.made += 1
        if not mask.states:
            self._by_content[mask.content] = mask
            self._nbytes += mask.words.nbytes
            self._is_filling = self._nbytes > self._max_bytes // 2
        mask.states += 1
        kept[state] = mask
        while self._nbytes > self._max_bytes and len(kept) > 1:
            _, old = kept.popitem(last=False)
            old.states -= 1
            if not old.states:
                del self._by_content[old.content]
                self._nbytes -= old.words.nbytes
        return mask.words
