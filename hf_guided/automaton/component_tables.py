"""What tokens do inside one component of a network: which stay in it, and where the others leave.

Found once for all networks of a vocabulary: strings and numbers are the same component in all of them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .lru_bytes import ByteCache
from .refine import ranges
from .rtn import Component
from .token_trie import TokenTrie
from .token_walk import TokenWalk

Ints = NDArray[np.integer[Any]]
Words = NDArray[np.int32]
_FEW = 2_000  # nodes of which a mask is made when it is needed
_BYTES = 16 * 2**20  # of the tables; as many of the nodes that they are made of, and of the automata


class Nodes:
    """Nodes of the trie from which tokens are followed together.

    Args:
        tokens: the vocabulary.
        nodes: (n,) of the trie, ascending.
    """

    def __init__(self, tokens: TokenTrie, nodes: Ints):
        self._tokens, self.nodes = tokens, nodes

    @cached_property
    def children(self) -> list[tuple[int, Nodes]]:
        """The nodes after each byte."""
        trie = self._tokens.trie
        starts = trie.child[self.nodes]
        below = ranges(starts, trie.child[self.nodes + 1] - starts)
        order = np.argsort(trie.byte[below], kind="stable")
        counts = np.bincount(trie.byte[below], minlength=256)
        letters = np.flatnonzero(counts)
        parts = np.split(below[order], np.cumsum(counts[letters])[:-1])
        return [(letter, Nodes(self._tokens, nodes)) for letter, nodes in zip(letters.tolist(), parts, strict=False)]

    @cached_property
    def by_characters(self) -> list[tuple[int, Nodes]]:
        """Those with equally many characters of a JSON string on the way to them, and how many."""
        counts = self._tokens.json_characters[self.nodes]
        different = np.unique(counts).tolist()
        if len(different) == 1:
            return [(different[0], self)]
        return [(count, Nodes(self._tokens, self.nodes[counts == count])) for count in different]

    @property
    def longer_token_ids(self) -> Ints:
        """The tokens that end below them."""
        found, todo = [], [self]
        while todo:
            for _, below in todo.pop().children:
                found.append(self._tokens.tokens_at(below.nodes)[0])
                todo.append(below)
        return np.concatenate(found) if found else np.empty(0, np.int64)


class Stay(NamedTuple):
    """The nodes of the trie that are reached in one component.

    Args:
        nodes: (n,) int32; those where it begins, and then, breadth first, those below.
        states: (n,) int32 of the component there.
    """

    nodes: Ints
    states: Ints

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.nodes.nbytes + self.states.nbytes


Leaving = tuple[tuple[int, Nodes], ...]


class Table(NamedTuple):
    """What tokens do from one state of a component.

    Args:
        nodes: where they are in the component still; empty where there are many.
        words: the tokens that end there; None where they are so few that a mask is made when it is needed.
        leaving: states where other than bytes may come, with the nodes that reach them and have more bytes.
    """

    nodes: Ints
    words: Words | None
    leaving: Leaving

    def mask(self, tokens: TokenTrie) -> Words:
        """(words,) int32: the tokens that end in the component."""
        return tokens.mask_of(self.nodes) if self.words is None else self.words

    def add_to(self, words: Words, tokens: TokenTrie) -> None:
        """Add them to a mask."""
        if self.words is None:
            tokens.add_to(words, self.nodes)
        else:
            np.bitwise_or(words, self.words, out=words)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        words = 0 if self.words is None else self.words.nbytes
        return 256 + self.nodes.nbytes + words + sum(256 + 2 * below.nodes.nbytes for _, below in self.leaving)


class _Walk(NamedTuple):
    walk: TokenWalk
    leaves: NDArray[np.bool_]

    @property
    def nbytes(self) -> int:
        return self.walk.nbytes + self.leaves.nbytes


class ComponentTables:
    """The tables of a vocabulary, those that were used last; thread safe.

    Args:
        tokens: the vocabulary.
    """

    def __init__(self, tokens: TokenTrie):
        self.tokens = tokens
        self._root = Nodes(tokens, np.zeros(1, np.int32))
        self._walks: ByteCache[_Walk] = ByteCache(_BYTES)
        self._stays: ByteCache[Stay] = ByteCache(_BYTES)
        self._tables: ByteCache[Table] = ByteCache(_BYTES)

    def leaves(self, component: Component) -> NDArray[np.bool_]:
        """(states,) whether anything but bytes may come."""
        return self._walk(component).leaves

    def stay(self, component: Component, state: int) -> Stay:
        """The nodes that are reached from the root of the trie, ascending."""
        key = _owner(component), state
        stay = self._stays.get(key)
        if stay is None:
            stay = self.below(component, state, self._root)
            self._stays.put(key, stay)
        return stay

    def table(self, component: Component, state: int, begun: Nodes | None = None) -> Table:
        """What tokens do.

        Args:
            component: where they are.
            state: of the component.
            begun: the nodes where they are in this state, themselves no part of the table; None is the root.
        """
        key = _owner(component), state, begun
        table = self._tables.get(key)
        if table is None:
            stay = self.stay(component, state) if begun is None else self.below(component, state, begun)
            table = self._made(component, stay, 1 if begun is None else len(begun.nodes))
            self._tables.put(key, table)
        return table

    def _made(self, component: Component, stay: Stay, begun: int) -> Table:
        nodes, states = stay.nodes[begun:], stay.states[begun:]
        leaves = self.leaves(component)[states] & self.tokens.has_longer[nodes]
        left, reached = nodes[leaves], states[leaves]
        leaving = tuple(
            (to, Nodes(self.tokens, left[reached == to])) for to in np.flatnonzero(np.bincount(reached)).tolist()
        )
        if len(nodes) > _FEW:
            return Table(nodes[:0], self.tokens.mask_of(nodes), leaving)
        return Table(nodes.copy(), None, leaving)  # a copy, so that the rest may go

    def below(self, component: Component, state: int, begun: Nodes) -> Stay:
        """The nodes that are reached from some nodes, which come first; not kept."""
        return Stay(*self._walk(component).walk.below(begun.nodes, np.full(len(begun.nodes), state)))

    def _walk(self, component: Component) -> _Walk:
        owner = _owner(component)
        walk = self._walks.get(owner)
        if walk is None:
            leaves = component.dfa.accepting.copy()
            for _, after in component.calls:
                leaves |= after != 0
            walk = _Walk(TokenWalk(component.dfa, self.tokens), leaves)
            self._walks.put(owner, walk)
        return walk


def _owner(component: Component) -> Component | ByteDfa:
    """What tables depend on: without calls the automaton alone, which networks share."""
    return component if component.calls else component.dfa
