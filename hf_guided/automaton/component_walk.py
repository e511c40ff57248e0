"""Walks all tokens through one component of a network: which stay in it, and where the others leave."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .core import CORE, record
from .rtn import Component
from .token_trie import Ints, Nodes, NodeSets, TokenTrie

Words = NDArray[np.int32]
FEW = 2_000  # nodes: a table with no more of them has no mask until one is needed
MOST_DIFFERENT = 16_384  # nodes at which two states differ; with more, a walk takes as long
_FEW_NODES = 500  # maximum number of nodes for which one scan per state is faster than sorting
_MOST_NEW = 256  # states in which tokens leave, and did not in the other table
NO_NODES = np.empty(0, np.int32)

_of_thread = threading.local()


def scratch_of_thread(numbers: int) -> tuple[NDArray[np.int32], int]:
    """(numbers or more,) int32 for one call, and its address: to allocate it each time would take longer than walks."""
    kept: tuple[NDArray[np.int32], int] | None = getattr(_of_thread, "scratch", None)
    if kept is None or len(kept[0]) < numbers:
        scratch = np.empty(numbers, np.int32)
        kept = _of_thread.scratch = scratch, scratch.ctypes.data
    return kept


class StayingNodes(NamedTuple):
    """The nodes of the trie that are reached in one component."""

    nodes: Ints  # (n,) int32; those where it begins, and then, breadth first, those below
    states: Ints  # (n,) int32 of the component there

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self.nodes.nbytes + self.states.nbytes


LeavingNodes = tuple[tuple[int, Nodes], ...]


class Table(NamedTuple):
    """The nodes and tokens that one state of a component leads to."""

    nodes: Ints  # nodes inside the component; empty where there are many
    words: Words | None  # the tokens that end there; None where they are so few that a mask is made when it is needed
    leaving: LeavingNodes  # states where other than bytes may come, with the nodes that reach them and have more bytes

    def mask(self, tokens: TokenTrie) -> Words:
        """(words,) int32: the tokens that end in the component."""
        return tokens.mask_of(self.nodes) if self.words is None else self.words

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        words = 0 if self.words is None else self.words.nbytes
        return 256 + self.nodes.nbytes + words + sum(256 + 2 * below.nodes.nbytes for _, below in self.leaving)


def joined(sets: NodeSets, first: Mapping[int, Nodes], second: LeavingNodes) -> LeavingNodes:
    """The nodes that leave in one of two ways."""
    together = dict(first)
    for to, left in second:
        known = together.get(to)
        together[to] = left if known is None else sets.of(np.union1d(known.nodes, left.nodes))
    return tuple(sorted(together.items()))


class ComponentWalk:
    """A component and a vocabulary; immutable, shared by threads."""

    def __init__(self, component: Component, sets: NodeSets):
        self.dfa, self.sets, self.tokens = component.dfa, sets, sets.tokens
        self.leaves = component.leaves  # (states,) whether anything but bytes may come
        self._classes: int = self.dfa.table.shape[1]
        self._table: NDArray[np.int32] = np.ascontiguousarray(self.dfa.table, np.int32).ravel()
        self._next: memoryview[int] = self._table.data  # for one look at a time
        self._byte_class = self.dfa.byte_class.astype(np.uint8)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held in addition to the component and the trie."""
        return self._table.nbytes + self.leaves.nbytes

    @property
    def content(self) -> bytes:
        """A digest, the same for components that have the same tables: their callees do not matter."""
        content = blake2b(digest_size=16)
        for array in (np.array(self.dfa.table.shape), self._table, self._byte_class, self.leaves):
            content.update(array.tobytes())
        return content.digest()

    @cached_property
    def _addresses(self) -> tuple[int, ...]:
        trie = self.tokens.trie
        return tuple(array.ctypes.data for array in (trie.child, trie.byte, self._byte_class, self._table))

    @cached_property
    def _leaves_address(self) -> int:
        return self.leaves.ctypes.data

    def below(self, nodes: Ints, states: Ints) -> tuple[Ints, Ints]:
        """(m,) int32 some nodes (n,) of the trie, then all reached below, breadth first; and (m,) the states there."""
        count = len(nodes)
        room = len(self.tokens.trie.byte)
        while True:
            room += count
            scratch, address = scratch_of_thread(2 * room)
            scratch[:count], scratch[room : room + count] = nodes, states
            found = CORE.descend(*self._addresses, self._classes, count, room, address, address + 4 * room)
            if found >= 0:
                return scratch[:found].copy(), scratch[room : room + found].copy()
            room *= 2  # below some of the nodes are others, and what they have in common is found twice

    def repeats(self, state: int) -> bool:
        """Whether any byte leads from a state to itself."""
        begin = state * self._classes
        return state in self._next[begin : begin + self._classes]

    def body_of(self, state: int) -> int:
        """The state that most bytes lead to, if they lead from there to itself, as in a string; else 0."""
        return int(CORE.body(*self._addresses[2:], self._classes, state))

    def after_copy(self, state: int, form: NDArray[np.int32], start: int, byte: int) -> int:
        """The state after a byte, if a state is like ``start`` of another automaton but for this byte; else 0.

        The automaton is ``form`` (states, 256), and the byte does not leave ``start``. The state, and those that are
        like its others, must be left by bytes alone.
        """
        states = len(form)
        _, address = scratch_of_thread(2 * states)
        return int(
            CORE.after_copy(
                *self._addresses[2:], self._classes, self._leaves_address, state,
                form.ctypes.data, states, start, byte, address, address + 4 * states,
            )
        )  # fmt: skip

    def table(self, state: int, begun: Ints) -> Table:
        """The table of a state; the nodes (n,) where tokens begin are no part of it."""
        nodes, left = self._left(state, begun)
        for _, left_there in left if len(begun) > 1 else ():
            left_there.sort()  # breadth first they ascend, if those where they begin are on one level
        leaving = tuple((to, self.sets.of(left_there)) for to, left_there in left)
        if len(nodes) > FEW:
            return Table(NO_NODES, self.tokens.mask_of(nodes), leaving)
        return Table(nodes, None, leaving)

    def _left(self, state: int, begun: Ints) -> tuple[NDArray[np.int32], list[tuple[int, NDArray[np.int32]]]]:
        """The nodes of a table; and those of them where longer tokens may leave the component, by state."""
        count, room, states = len(begun), len(self.tokens.trie.byte), self.dfa.states
        while True:
            room += count
            scratch, address = scratch_of_thread(3 * room + 3 * states + 1)
            scratch[:count], scratch[room : room + count] = begun, state
            found = CORE.leave(
                *self._addresses, self._classes, self._leaves_address, states, count, room,
                address, address + 4 * room, address + 8 * room, address + 12 * room,
            )  # fmt: skip
            if found >= 0:
                left, groups = scratch[2 * room :], scratch[3 * room :]
                ends = groups[1 : 1 + 2 * int(groups[0])].tolist()
                parts, low = [], 0
                for to, high in zip(ends[::2], ends[1::2], strict=True):
                    parts.append((to, left[low:high].copy()))
                    low = high
                return scratch[count:found].copy(), parts
            room *= 2  # see ``below``

    def differing(self, state: int, base: Table, other: int) -> Table | None:
        """The table of a state, from the root; None where it has little in common with ``base``, that of ``other``.

        Along the name of a declared member each state is one of its own, but nearly all tokens do from it what they do
        inside any other name: see derived_tables.c.
        """
        if base.words is None:
            return None
        room, words, known = MOST_DIFFERENT + 1, base.words.copy(), base.leaving
        scratch, address = scratch_of_thread(3 * room)
        scratch[0], scratch[room], scratch[2 * room] = 0, state, other
        arrays = address, address + 4 * room, address + 8 * room
        differences = CORE.change(
            *self._addresses, self._classes, room, *arrays, self._leaves_address, *self.tokens.addresses,
            words.ctypes.data,
        )  # fmt: skip
        if differences < 0:
            return None
        counts = [len(left.nodes) for _, left in known]
        of_known, place = record(*[left.address for _, left in known], *counts, *[to for to, _ in known])
        groups = len(known) + min(differences, _MOST_NEW)
        written = np.empty(3 * groups + (sum(counts) + differences + 1) // 2, np.int64)
        kept = CORE.write_leaving(place, len(known), *arrays, differences, groups, written.ctypes.data)
        if kept < 0:
            return None
        _, counts, states = written[: 3 * groups].reshape(3, groups)[:, :kept].tolist()
        parts = np.split(written[3 * groups :].view(np.int32)[: sum(counts)], np.cumsum(counts[:-1]))
        leaving = [(to, self.sets.of(left.copy())) for to, left in zip(states, parts, strict=False)]
        return Table(base.nodes, words, tuple(sorted(leaving, key=lambda group: group[0])))


def by_state(nodes: Ints, states: Ints) -> list[tuple[int, NDArray[np.int32]]]:
    """Nodes (n,) apart by their states (n,) other than 0, each part in the order of all."""
    narrow: NDArray[np.int32] = nodes.astype(np.int32, copy=False)
    if len(nodes) <= _FEW_NODES:
        return [(state, narrow[states == state]) for state in sorted(set(states.tolist())) if state]
    order = np.argsort(states, kind="stable")
    states = states[order]
    begins = np.flatnonzero(np.diff(states, prepend=0))
    return [*zip(states[begins].tolist(), np.split(narrow[order], begins)[1:], strict=True)]
