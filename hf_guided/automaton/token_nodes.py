"""Sets of nodes of the trie of a vocabulary, from which tokens are followed together."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .token_trie import TokenTrie, ranges

Ints = NDArray[np.integer[Any]]


class NodeSets:
    """The sets of a vocabulary that are in use, each once: facts about one are known wherever it is reached."""

    def __init__(self, tokens: TokenTrie):
        self.tokens = tokens
        self._known: WeakValueDictionary[bytes, Nodes] = WeakValueDictionary()

    def of(self, nodes: Ints) -> Nodes:
        """The set of these nodes (n,); as a rule the same object for equal ones."""
        nodes_int32: NDArray[np.int32] = np.ascontiguousarray(nodes, np.int32)
        key = nodes_int32.tobytes()
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Nodes(self, nodes_int32)
        return known


class Nodes:
    """Nodes of the trie, ascending, from which tokens are followed together; only ``NodeSets.of`` creates it."""

    def __init__(self, sets: NodeSets, nodes: NDArray[np.int32]):
        self._sets, self.nodes = sets, nodes
        self._before: dict[bytes, Nodes] = {}

    @cached_property
    def address(self) -> int:
        """The address of ``nodes``."""
        return self.nodes.ctypes.data

    @cached_property
    def children(self) -> list[tuple[int, Nodes]]:
        """The nodes after each byte."""
        trie = self._sets.tokens.trie
        starts = trie.child[self.nodes]
        below = ranges(starts, trie.child[self.nodes + 1] - starts)
        order = np.argsort(trie.byte[below], kind="stable")
        counts = np.bincount(trie.byte[below], minlength=256)
        letters = np.flatnonzero(counts)
        parts = np.split(below[order], np.cumsum(counts[letters])[:-1])
        return [(letter, self._sets.of(nodes)) for letter, nodes in zip(letters.tolist(), parts, strict=False)]

    def by_characters(self, characters: NDArray[np.int64]) -> list[tuple[int, Nodes]]:
        """The nodes with equally many ``characters`` (all nodes,) on the way to them, and how many these are."""
        counts = characters[self.nodes]
        different = np.unique(counts).tolist()
        if len(different) == 1:
            return [(different[0], self)]
        return [(count, self._sets.of(self.nodes[counts == count])) for count in different]

    def before(self, following: bytes) -> Nodes:
        """The nodes after which one of some bytes comes in a token."""
        known = self._before.get(following)
        if known is None:
            before = self._sets.tokens.before(following)
            places = np.searchsorted(self.nodes, before)
            before, places = (part[places < len(self.nodes)] for part in (before, places))
            known = self._before[following] = self._sets.of(before[self.nodes[places] == before])
        return known

    @property
    def longer_token_ids(self) -> Ints:
        """The tokens that end below them."""
        found, todo = [], [self]
        while todo:
            for _, below in todo.pop().children:
                found.append(self._sets.tokens.tokens_at(below.nodes)[0])
                todo.append(below)
        return np.concatenate(found) if found else np.empty(0, np.int64)
