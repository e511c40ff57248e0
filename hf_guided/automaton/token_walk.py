"""Walks all tokens through an automaton at once: level by level down the trie, from one state."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .core import CORE
from .token_trie import TokenTrie
from .trie import ranges

Ints = NDArray[np.integer[Any]]
_FEW_NODES = 150


def level_steps(nodes: int) -> int:
    """The work of one level of a walk, in the steps of a ``WorkMeter``.

    Args:
        nodes: how many tokens were found on the level.
    """
    return 40 + nodes // 8


_of_thread = threading.local()


def scratch_of_thread(numbers: int) -> tuple[NDArray[np.int32], int]:
    """(numbers or more,) int32 for one call, and its address: to allocate it each time would take longer than walks."""
    kept: tuple[NDArray[np.int32], int] | None = getattr(_of_thread, "scratch", None)
    if kept is None or len(kept[0]) < numbers:
        scratch = np.empty(numbers, np.int32)
        kept = _of_thread.scratch = scratch, scratch.ctypes.data
    return kept


class TokenWalk:
    """An automaton and a vocabulary; immutable, shared by threads.

    Args:
        dfa: the automaton.
        tokens: the vocabulary.
    """

    def __init__(self, dfa: ByteDfa, tokens: TokenTrie):
        self.dfa, self.tokens = dfa, tokens
        self._classes: int = dfa.table.shape[1]
        self._table: NDArray[np.int32] = np.ascontiguousarray(dfa.table, np.int32).ravel()
        self._next: memoryview[int] = self._table.data  # for one look at a time
        self._byte_class = dfa.byte_class.astype(np.uint8)
        self._letters = self._byte_class.tobytes()  # for bytes.translate

    def over(self, tokens: TokenTrie) -> TokenWalk:
        """The same automaton with another vocabulary."""
        other = copy(self)
        other.tokens = tokens
        for computed in ("_class_of", "_addresses"):
            other.__dict__.pop(computed, None)
        return other

    @cached_property
    def _class_of(self) -> NDArray[np.uint8]:
        return self._byte_class[self.tokens.trie.byte]

    @cached_property
    def _addresses(self) -> tuple[int, ...]:
        trie = self.tokens.trie
        return tuple(array.ctypes.data for array in (trie.child, trie.byte, self._byte_class, self._table))

    @property
    def nbytes(self) -> int:
        """Bytes of memory held in addition to the automaton and the trie."""
        return self._table.nbytes

    def advance(self, state: int, data: bytes) -> int:
        """The state after these bytes; 0 if they do not fit."""
        following, classes = self._next, self._classes
        for letter in data.translate(self._letters):
            state = following[state * classes + letter]
        return state

    def after(self, state: int, byte: int) -> int:
        """The state after one byte."""
        return self._next[state * self._classes + self._letters[byte]]

    def moved(self, state: int, letter: int) -> int:
        """The state after one class of bytes."""
        return self._next[state * self._classes + letter]

    def few(self, state: int) -> Ints | None:
        """The nodes in which fitting tokens end; None where they may be many.

        Most states of a JSON text allow a handful of tokens: then this takes microseconds.
        """
        found = self._descended(np.zeros(1, np.int32), np.array([state]), _FEW_NODES)
        return None if found is None else self._ends(*found)[0]

    def nodes(self, state: int) -> tuple[Ints, Ints]:
        """The nodes of the trie in which fitting tokens end, ascending, and the states they lead to."""
        return self._ends(*self.below(np.zeros(1, np.int32), np.array([state])))

    def levels(self, state: int) -> Iterator[tuple[Ints, Ints]]:
        """As ``nodes``, one level of the trie after another, those too in which no token ends but longer ones live."""
        nodes: Ints = np.zeros(1, np.int32)
        states: Ints = np.array([state])
        while len(nodes):
            nodes, states, *_ = self._children(nodes, states)
            yield self._ends(nodes, states)

    def below(self, nodes: Ints, states: Ints) -> tuple[Ints, Ints]:
        """Some nodes of the trie and all living nodes below them, breadth first, and the states there.

        Args:
            nodes: (n,) where to begin.
            states: (n,) of the automaton.

        Returns:
            (m,) int32 both; the given ones first.
        """
        room = len(self.tokens.trie.byte)
        while (found := self._descended(nodes, states, len(nodes) + room)) is None:
            room *= 2  # below some of the nodes are others, and what they have in common is found twice
        return found

    def _descended(self, nodes: Ints, states: Ints, room: int) -> tuple[Ints, Ints] | None:
        """As ``below``; None if there is no room for the result."""
        scratch, address = scratch_of_thread(2 * room)
        begun = len(nodes)
        scratch[:begun], scratch[room : room + begun] = nodes, states
        count = CORE.descend(*self._addresses, self._classes, begun, room, address, address + 4 * room)
        return None if count < 0 else (scratch[:count].copy(), scratch[room : room + count].copy())

    def _ends(self, nodes: Ints, states: Ints) -> tuple[Ints, Ints]:
        """Those in which tokens end."""
        ends = self.tokens.has_token.take(nodes)
        return nodes[ends], states[ends]

    def successors(self, states: Ints) -> tuple[NDArray[np.bool_], int]:
        """Where a token leads, from several states in one walk.

        Args:
            states: (n,) of the automaton, each once.

        Returns:
            (n, states of the automaton) whether a token leads from the one to the other; and the steps of work.
        """
        reached = np.zeros((len(states), self.dfa.states), np.bool_)
        nodes: Ints = np.zeros(len(states), np.int64)
        origins, steps = np.arange(len(states)), 0
        while len(nodes):
            nodes, states, counts, kept = self._children(nodes, states)
            origins = np.repeat(origins, counts).take(kept)
            ends = np.flatnonzero(self.tokens.has_token.take(nodes))
            reached[origins.take(ends), states.take(ends)] = True
            steps += level_steps(len(nodes))
        return reached, steps

    def _children(self, nodes: Ints, states: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """One level down from some nodes of the trie: the living children, one node's after the other's.

        Args:
            nodes: (n,) of the trie.
            states: (n,) of the automaton there.

        Returns:
            The living children; their states; (n,) how many children each node has; and which of all those live.
        """
        trie = self.tokens.trie
        starts = trie.child.take(nodes)
        counts = trie.child.take(nodes + 1) - starts
        children = ranges(starts, counts)
        moved = self._table.take(np.repeat(states * self._classes, counts) + self._class_of.take(children))
        kept = np.flatnonzero(moved)
        return children.take(kept), moved.take(kept), counts, kept
