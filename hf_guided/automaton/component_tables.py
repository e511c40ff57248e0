"""The effect of tokens inside one component of a network: which stay in it, and where the others leave.

Found once for all networks of a vocabulary: components with the same automaton share their tables. A walk through the
whole vocabulary takes milliseconds, so few tables are made by one: the body of a string has the same table everywhere
but for the state after it (string_tables.py), repeated characters of a set need none (class_tables.py), and the states
along a declared name have nearly the table of the body (``ComponentWalk.differing``).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from .class_tables import ClassTables
from .component_walk import FEW, ComponentWalk, StayingNodes, Table, Words, by_state
from .counted_string import CountedString
from .lru_bytes import ByteCache
from .rtn import Component
from .string_tables import StringTables
from .token_trie import Ints, Nodes, NodeSets, TokenTrie

_BYTES = 16 * 2**20  # bytes of the tables; as many of each of the other caches


class ComponentTables:
    """The tables of a vocabulary, those that were used last; thread safe."""

    def __init__(self, tokens: TokenTrie):
        self.tokens, self.nodes = tokens, NodeSets(tokens)
        self._root = self.nodes.of(np.zeros(1, np.int32))
        self._strings, self._classes = StringTables(self.nodes), ClassTables(self.nodes)
        self._walks: ByteCache[ComponentWalk] = ByteCache(_BYTES)
        self._by_content: WeakValueDictionary[bytes, ComponentWalk] = WeakValueDictionary()
        self._stays: ByteCache[StayingNodes] = ByteCache(_BYTES)
        self._by_state: ByteCache[_ByState] = ByteCache(_BYTES)
        self._at_most: ByteCache[Words] = ByteCache(_BYTES)
        self._all_at_most: dict[int, Words] = {}  # by the id of an array that the trie keeps
        self._tables: ByteCache[Table] = ByteCache(_BYTES)

    def stay(self, component: Component, state: int) -> StayingNodes:
        """The nodes that are reached from the root of the trie, ascending: in a string takes milliseconds."""
        return self._stays.of((self._walk(component), state), lambda: self._below(component, state))

    def table(
        self, component: Component, state: int, begun: Nodes | None = None, string: CountedString | None = None
    ) -> Table:
        """The table of a state.

        Tokens are in this state at the nodes ``begun``, which are no part of the table; None is the root. Where a state
        of ``string`` is left, the nodes where it may not end are left out.
        """
        walk, following = self._walk(component), None
        if string is not None and string.begins[state]:
            following = string.following
        table = self._tables.get((walk, state, begun, following))
        if table is None and following is not None:
            table = self._tables.get((walk, state, begun, None))
        if table is None:
            table = self._classes.table(walk, state, begun or self._root, following)
            if table is None:
                following = None
                table = walk.table(state, begun.nodes) if begun else self._from_root(component, walk, state)
            self._tables.put((walk, state, begun, following), table)
        if string is None:
            return table
        ends = tuple([(to, string.ends(left) if string.begins[to] else left) for to, left in table.leaving])
        return table._replace(leaving=ends)

    def _from_root(self, component: Component, walk: ComponentWalk, state: int) -> Table:
        body, table = walk.body_of(state), None
        if body == state:
            table = self._strings.table(walk, state)
        elif body:
            table = walk.differing(state, self.table(component, body), body)
        return walk.table(state, self._root.nodes) if table is None else table

    def at_most(
        self, component: Component, state: int, characters: NDArray[np.int64], owed: Ints, begun: Nodes | None
    ) -> Words | None:
        """(n, words) int32: of the tokens that stay in a string, those that have at most 0, 1 ... characters.

        ``n`` is one more than the longest of these tokens has characters. Where characters are owed (states,), a token
        that counts for more because of them is in no row; elsewhere there are other tokens in the rows too. The way to
        each node has ``characters`` (nodes,). With nodes ``begun`` (see ``table``), None where characters are owed.
        ``characters`` and ``owed`` are the same for equal components, so they are not in the key.
        """
        if not owed.any():
            return self._short(characters)
        if begun is not None:
            return None
        key = self._walk(component), state
        known = self._at_most.get(key)
        if known is None:
            stay = self.stay(component, state)
            alone = characters[stay.nodes]
            known = _at_most(self.tokens, stay.nodes, alone + owed[stay.states], int(alone.max()))
            self._at_most.put(key, known)
        return known

    def _short(self, characters: NDArray[np.int64]) -> Words:
        known = self._all_at_most.get(id(characters))
        if known is None:
            nodes = np.flatnonzero(self.tokens.has_token)
            counts = characters[nodes]
            known = self._all_at_most[id(characters)] = _at_most(self.tokens, nodes, counts, int(counts.max()))
        return known

    def _below(self, component: Component, state: int) -> StayingNodes:
        return StayingNodes(*self._walk(component).below(self._root.nodes, np.full(1, state)))

    def by_state(self, component: Component, state: int) -> tuple[Reached, ...]:
        """The nodes that are reached inside the component from a state, apart for each state there."""
        key = self._walk(component), state
        known = self._by_state.get(key)
        if known is None:
            parts = by_state(*self.stay(component, state))
            known = _ByState(tuple([Reached.of(self.tokens, *part) for part in parts]))
            self._by_state.put(key, known)
        return known.reached

    def _walk(self, component: Component) -> ComponentWalk:
        walk = self._walks.get(component.dfa)
        if walk is None:
            walk = ComponentWalk(component, self.nodes)
            walk = self._by_content.setdefault(walk.content, walk)
            self._walks.put(component.dfa, walk)
        return walk


class Reached(NamedTuple):
    """Nodes at which tokens are in one state of a component."""

    state: int  # ignored where the nodes are not in one state
    nodes: NDArray[np.int32]
    words: Words | None  # (words,) int32, the mask of their tokens; None where they are few

    @classmethod
    def of(cls, tokens: TokenTrie, state: int, nodes: NDArray[np.int32]) -> Reached:
        """The nodes, with their mask where they are many."""
        return cls(state, nodes, tokens.mask_of(nodes) if len(nodes) > FEW else None)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return 256 + self.nodes.nbytes + (0 if self.words is None else self.words.nbytes)


class _ByState(NamedTuple):
    reached: tuple[Reached, ...]

    @property
    def nbytes(self) -> int:
        return sum([some.nbytes for some in self.reached])


def _at_most(tokens: TokenTrie, nodes: Ints, characters: NDArray[np.int64], most: int) -> Words:
    nodes, characters = nodes[characters <= most], characters[characters <= most]
    counts = characters.astype(np.uint16)  # short integers are sorted quickly
    by_count = nodes[np.argsort(counts, kind="stable")]
    parts = np.split(by_count, np.cumsum(np.bincount(counts, minlength=most + 1))[:-1])
    masks = np.zeros((len(parts), tokens.size // 32), np.int32)
    for part, words in zip(parts, masks, strict=True):
        tokens.add_to(words, part)
    for fewer, words in pairwise(masks):  # np.bitwise_or.accumulate takes a column at a time, many times as long
        np.bitwise_or(fewer, words, out=words)
    return masks
