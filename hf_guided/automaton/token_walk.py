"""All tokens at once through an automaton: level after level down the trie, from one state."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .refine import ranges
from .token_trie import TokenTrie

Ints = NDArray[np.int64]
States = NDArray[np.int32]
_SPARSE = 6  # a level of which less than 1 in so many nodes has a living parent is looked up node by node


class TokenWalk:
    """An automaton and a vocabulary; immutable, shared by threads.

    Args:
        dfa: the language.
        tokens: the vocabulary.
    """

    def __init__(self, dfa: ByteDfa, tokens: TokenTrie):
        self.dfa, self.tokens = dfa, tokens
        self._classes: int = dfa.table.shape[1]
        # A state is kept as the place where its row begins, so that one addition finds the next.
        self._next: NDArray[np.int32] = (dfa.table.astype(np.int32) * np.int32(self._classes)).ravel()
        self._rows: memoryview[int] = memoryview(self._next)
        self._letters = dfa.byte_class.astype(np.uint8).tobytes()  # for bytes.translate
        self._class_of: NDArray[np.uint8] = dfa.byte_class.astype(np.uint8)[tokens.trie.byte]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held beside the automaton and the trie."""
        return int(self._next.nbytes + self._class_of.nbytes)

    def advance(self, state: int, data: bytes) -> int:
        """The state after these bytes; 0 if they do not fit."""
        row = state * self._classes
        for letter in data.translate(self._letters):
            row = self._rows[row + letter]
        return row // self._classes

    def nodes(self, state: int) -> tuple[Ints, States]:
        """The nodes of the trie in which tokens end that do not die on the way, and the states they lead to."""
        levels = list(self.levels(state))
        nodes = np.concatenate([nodes for nodes, _ in levels]) if levels else np.empty(0, np.int64)
        states = np.concatenate([states for _, states in levels]) if levels else np.empty(0, np.int32)
        return nodes, states

    def levels(self, state: int) -> Iterator[tuple[Ints, States]]:
        """As ``nodes``, one level of the trie after another."""
        trie, tokens = self.tokens.trie, self.tokens
        # The level above: its living nodes and their states; or, while they are many, the states of all its nodes.
        live, rows = np.zeros(1, np.int64), np.array([state * self._classes])
        dense = False
        alive = 1
        for depth in range(1, len(trie.levels) - 1):
            above, low, high = trie.levels[depth - 1 : depth + 2]
            if alive * _SPARSE < low - above:
                if dense:
                    kept = np.flatnonzero(rows)
                    live, rows, dense = kept + above, rows.take(kept), False
                starts = trie.child.take(live)
                counts = trie.child.take(live + 1) - starts
                below = ranges(starts, counts)
                moved = self._next.take(np.repeat(rows, counts) + self._class_of.take(below))
                kept = np.flatnonzero(moved)
                live, rows = below.take(kept), moved.take(kept)
                alive = len(live)
                ends = np.flatnonzero(tokens.has_token.take(live))
                if len(ends):
                    yield live.take(ends), rows.take(ends) // self._classes
            else:
                if not dense:
                    every = np.zeros(low - above, np.int64)
                    every[live - above] = rows
                    rows, dense = every, True
                places = rows.take(tokens.parent_in_level[low:high])
                places += self._class_of[low:high]
                rows = self._next.take(places)  # the row of the dead state holds nothing but itself
                alive = int(np.count_nonzero(rows))
                nodes = tokens.ends_in_level[depth]
                found = rows.take(nodes - low)
                ends = np.flatnonzero(found)
                if len(ends):
                    yield nodes.take(ends), found.take(ends) // self._classes
            if not alive:
                return

    def tokens_at(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The tokens that end in these nodes, one node behind the other, and how many each node has."""
        starts = self.tokens.token_start.take(nodes)
        counts = self.tokens.token_start.take(nodes + 1) - starts
        return self.tokens.token_ids[ranges(starts, counts)], counts
