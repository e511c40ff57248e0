"""Walks all tokens through an automaton at once: level by level down the trie, from one state."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .refine import ranges
from .token_trie import TokenTrie

Ints = NDArray[np.int64]
States = NDArray[np.int32]
_FEW_NODES = 150  # looked at one by one; more are faster in arrays
_FEW_MOVES = 40
_FEW_CHILDREN = 150
_ALL_CHILDREN = 6  # so few are looked at all, more are looked up by the bytes that continue
_SPARSE = 6  # a level where fewer than 1 in this many nodes has a live parent is looked up node by node


def level_steps(nodes: int) -> int:
    """The work of one level of a walk, in the steps of a ``WorkMeter``.

    Args:
        nodes: how many tokens were found on the level.
    """
    return 40 + nodes // 8


class TokenWalk:
    """An automaton and a vocabulary; immutable, shared by threads.

    Args:
        dfa: the automaton.
        tokens: the vocabulary.
    """

    def __init__(self, dfa: ByteDfa, tokens: TokenTrie):
        self.dfa, self.tokens = dfa, tokens
        self._classes: int = dfa.table.shape[1]
        # A state is stored as the offset of its row, so that one addition finds the next.
        self._next: NDArray[np.int32] = (dfa.table.astype(np.int32) * np.int32(self._classes)).ravel()
        self._rows: memoryview[int] = memoryview(self._next)
        self._letters = dfa.byte_class.astype(np.uint8).tobytes()  # for bytes.translate
        self._bytes_of: list[list[int]] = [[] for _ in range(self._classes)]
        for byte, letter in enumerate(self._letters):
            self._bytes_of[letter].append(byte)
        self._moves: dict[int, list[tuple[int, int]] | None] = {}

    def over(self, tokens: TokenTrie) -> TokenWalk:
        """The same automaton with another vocabulary."""
        other = copy(self)
        other.tokens = tokens
        other.__dict__.pop("_class_of", None)
        return other

    @cached_property
    def _class_of(self) -> NDArray[np.uint8]:
        return self.dfa.byte_class.astype(np.uint8)[self.tokens.trie.byte]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held in addition to the automaton and the trie."""
        return int(self._next.nbytes) + len(self.tokens.trie.byte)

    def advance(self, state: int, data: bytes) -> int:
        """The state after these bytes; 0 if they do not fit."""
        row = state * self._classes
        for letter in data.translate(self._letters):
            row = self._rows[row + letter]
        return row // self._classes

    def moved(self, state: int, letter: int) -> int:
        """The state after one class of bytes."""
        return self._rows[state * self._classes + letter] // self._classes

    def few(self, state: int) -> list[int] | None:
        """The nodes of the tokens that fit, found one by one; None where they may be many.

        Most states of a JSON text allow a handful of tokens: then this takes microseconds, and a walk of the levels a
        hundred.
        """
        tokens, rows, class_of = self.tokens, self._rows, self._letters
        child, letters, has_token = tokens.children, tokens.letters, tokens.ends
        nodes: list[int] = []
        todo = [(0, state * self._classes)]
        room = _FEW_NODES  # for nodes that are still to be looked at
        while todo:
            node, row = todo.pop()
            low, high = child[node], child[node + 1]
            moves = self._moves_from(row) if high - low > _ALL_CHILDREN else None
            if moves is not None:
                for byte, next_row in moves:
                    at = letters.find(byte, low, high)
                    if at >= 0:
                        if has_token[at]:
                            nodes.append(at)
                        if child[at] != child[at + 1]:
                            todo.append((at, next_row))
            elif high - low <= _FEW_CHILDREN:
                for at in range(low, high):
                    next_row = rows[row + class_of[letters[at]]]
                    if next_row:
                        if has_token[at]:
                            nodes.append(at)
                        if child[at] != child[at + 1]:
                            todo.append((at, next_row))
            else:
                return None
            room -= 1
            if len(todo) > room:
                return None
        return nodes

    def _moves_from(self, row: int) -> list[tuple[int, int]] | None:
        """Each byte that continues from here and the row it leads to; None if they are many."""
        if row not in self._moves:
            live = self._next[row : row + self._classes].nonzero()[0].tolist()
            moves = [
                (byte, self._rows[row + letter]) for letter in live[:_FEW_MOVES] for byte in self._bytes_of[letter]
            ]
            self._moves[row] = moves if max(len(live), len(moves)) <= _FEW_MOVES else None
        return self._moves[row]

    def nodes(self, state: int) -> tuple[Ints, States]:
        """The nodes of the trie in which fitting tokens end, and the states they lead to."""
        levels = list(self.levels(state))
        nodes = np.concatenate([nodes for nodes, _ in levels]) if levels else np.empty(0, np.int64)
        states = np.concatenate([states for _, states in levels]) if levels else np.empty(0, np.int32)
        return nodes, states

    def levels(self, state: int) -> Iterator[tuple[Ints, States]]:
        """As ``nodes``, one level of the trie after another, those too in which no token ends but longer ones live."""
        for nodes, rows in self.rows(state):
            yield nodes, rows // self._classes

    def rows(self, state: int) -> Iterator[tuple[Ints, States]]:
        """As ``levels``, but where the rows of the states begin, which takes no division of every one."""
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
                live, rows, *_ = self._below(live, rows)
                alive = len(live)
                ends = np.flatnonzero(tokens.has_token.take(live))
                nodes, end_rows = live.take(ends), rows.take(ends)
            else:
                if not dense:
                    every = np.zeros(low - above, np.int64)
                    every[live - above] = rows
                    rows, dense = every, True
                entries = rows.take(tokens.parent_in_level[low:high])
                entries += self._class_of[low:high]
                rows = self._next.take(entries)  # the row of the dead state holds nothing but itself
                alive = int(np.count_nonzero(rows))
                nodes = tokens.ends_in_level[depth]
                end_rows = rows.take(nodes - low)
                ends = np.flatnonzero(end_rows)
                nodes, end_rows = nodes.take(ends), end_rows.take(ends)
            if not alive:
                return
            yield nodes, end_rows

    def descend(self, nodes: Ints, states: Ints) -> Iterator[tuple[Ints, States]]:
        """All living nodes below some nodes of the trie, at any depth, and the states there.

        Args:
            nodes: where to begin, each once.
            states: of the automaton, one for each.
        """
        nodes, rows, *_ = self._below(nodes, (states * self._classes).astype(np.int32))
        while len(nodes):
            yield nodes, rows // self._classes
            nodes, rows, *_ = self._below(nodes, rows)

    def successors(self, states: Ints) -> tuple[NDArray[np.bool_], int]:
        """Where a token leads, from several states in one walk.

        Args:
            states: (n,) of the automaton, each once.

        Returns:
            (n, states of the automaton) whether a token leads from the one to the other; and the steps of work.
        """
        reached = np.zeros((len(states), self.dfa.states), np.bool_)
        nodes, rows, steps = np.zeros(len(states), np.int64), (states * self._classes).astype(np.int32), 0
        origins = np.arange(len(states))
        while len(nodes):
            nodes, rows, counts, kept = self._below(nodes, rows)
            origins = np.repeat(origins, counts).take(kept)
            ends = np.flatnonzero(self.tokens.has_token.take(nodes))
            reached[origins.take(ends), rows.take(ends) // self._classes] = True
            steps += level_steps(len(nodes))
        return reached, steps

    def _below(self, nodes: Ints, rows: States) -> tuple[Ints, States, Ints, Ints]:
        """One level down from some nodes of the trie: the living children, one node's after the other's.

        Args:
            nodes: (n,) of the trie.
            rows: (n,) of the automaton's states there.

        Returns:
            The living children; their rows; (n,) how many children each node has; and which of all those live.
        """
        trie = self.tokens.trie
        starts = trie.child.take(nodes)
        counts = trie.child.take(nodes + 1) - starts
        children = ranges(starts, counts)
        moved = self._next.take(np.repeat(rows, counts) + self._class_of.take(children))
        kept = np.flatnonzero(moved)
        return children.take(kept), moved.take(kept), counts, kept

    def tokens_at(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The tokens that end in these nodes, one node after the other, and how many each node has."""
        starts = self.tokens.token_start.take(nodes)
        counts = self.tokens.token_start.take(nodes + 1) - starts
        return self.tokens.token_ids[ranges(starts, counts)], counts
