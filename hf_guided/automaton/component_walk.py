"""Walks all tokens through one component of a network: which stay in it, and where the others leave.

Where the package has compiled loops (core.py) they do it, else numpy, with the same result.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import core
from .mask_builder import MaskBuilder
from .refine import ranges
from .rtn import Component
from .token_nodes import Ints, Nodes, NodeSets
from .token_trie import TokenTrie
from .token_walk import TokenWalk, scratch_of_thread

Words = NDArray[np.int32]
FEW = 2_000  # nodes: a table with no more of them has no mask until one is needed
_MANY_BYTES = 24  # of states that lead fewer bytes to one state the walk is short
_NO_NODES = np.empty(0, np.int32)


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

    def add_to(self, mask: MaskBuilder) -> None:
        """Allow them in a mask."""
        if self.words is None:
            mask.add_nodes(self.nodes)
        else:
            mask.add_words(self.words)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        words = 0 if self.words is None else self.words.nbytes
        return 256 + self.nodes.nbytes + words + sum(256 + 2 * below.nodes.nbytes for _, below in self.leaving)


def joined(sets: NodeSets, first: Mapping[int, Nodes], second: Leaving) -> Leaving:
    """What leaves in one of two ways."""
    together = dict(first)
    for to, left in second:
        known = together.get(to)
        together[to] = left if known is None else sets.of(np.union1d(known.nodes, left.nodes))
    return tuple(sorted(together.items()))


class ComponentWalk(TokenWalk):
    """A component and a vocabulary; immutable, shared by threads.

    Args:
        component: the component.
        sets: of nodes of the vocabulary.
    """

    def __init__(self, component: Component, sets: NodeSets):
        super().__init__(component.dfa, sets.tokens)
        self.sets = sets
        self.leaves = component.shape.leaves  # (states,) whether anything but bytes may come

    @property
    def nbytes(self) -> int:
        """See ``TokenWalk.nbytes``."""
        return super().nbytes + self.leaves.nbytes

    @property
    def content(self) -> bytes:
        """The same for components that have the same tables: what they call is of no account."""
        content = blake2b(digest_size=16)
        for array in (np.array(self.dfa.table.shape), self._table, self._byte_class, self.leaves):
            content.update(array.tobytes())
        return content.digest()

    @cached_property
    def _leaves_address(self) -> int:
        return self.leaves.ctypes.data

    def body_of(self, state: int) -> int:
        """The state that most bytes lead to, if they lead from there to itself, as in a string; else 0."""
        if core.CORE is not None:
            return int(core.CORE.body(*self._addresses[2:], self._classes, state, _MANY_BYTES))
        body = self._most_frequent(state)
        return body if body and (body == state or self._most_frequent(body) == body) else 0

    def after_copy(self, state: int, form: NDArray[np.int32], start: int, byte: int) -> int:
        """Where a byte leads, if a state is like the start of another automaton but for this byte; else 0.

        Only with compiled loops.

        Args:
            state: of the component; this one and those that are like its others must be left by bytes alone.
            form: (states, 256) the other automaton.
            start: of it.
            byte: that does not leave its start.
        """
        assert core.CORE is not None
        states = len(form)
        _, address = scratch_of_thread(2 * states)
        return int(
            core.CORE.after_copy(
                *self._addresses[2:], self._classes, self._leaves_address, state,
                form.ctypes.data, states, start, byte, address, address + 4 * states,
            )
        )  # fmt: skip

    def _most_frequent(self, state: int) -> int:
        """The state that most bytes lead to; 0 where they are not many."""
        counts = np.bincount(self.dfa.table[state][self.dfa.byte_class])
        counts[0] = 0
        frequent = int(counts.argmax())
        return frequent if counts[frequent] >= _MANY_BYTES else 0

    def table(self, state: int, begun: Ints) -> Table:
        """What tokens do.

        Args:
            state: of the component.
            begun: (n,) the nodes where they are in this state, themselves no part of the table.
        """
        nodes, left = self._left(state, begun)
        for _, left_there in left if len(begun) > 1 else ():
            left_there.sort()  # breadth first they ascend, if those where they begin are on one level
        leaving = tuple((to, self.sets.of(left_there)) for to, left_there in left)
        if len(nodes) > FEW:
            return Table(_NO_NODES, self.tokens.mask_of(nodes), leaving)
        return Table(nodes, None, leaving)

    def _left(self, state: int, begun: Ints) -> tuple[NDArray[np.int32], list[tuple[int, NDArray[np.int32]]]]:
        """The nodes of a table; and those of them where longer tokens may leave the component, by state."""
        count, room, states = len(begun), len(self.tokens.trie.byte), self.dfa.states
        while core.CORE is not None:
            room += count
            scratch, address = scratch_of_thread(3 * room + 3 * states + 1)
            scratch[:count], scratch[room : room + count] = begun, state
            found = core.CORE.leave(
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
        below, there = (part[count:] for part in self.below(begun, np.full(count, state)))
        leaves = self.leaves[there] & self.tokens.has_longer[below]
        nodes, reached = below.astype(np.int32), there[leaves]
        return nodes, [(to, nodes[leaves][reached == to]) for to in np.unique(reached).tolist()]

    def changed(self, words: Words, state: int, other: int, most: int) -> tuple[Words, Differences] | None:
        """The mask of the tokens that stay from a state; and where ``differences`` are and longer tokens may leave.

        Args:
            words: the mask of the other state.
            state: of the component.
            other: the other one.
            most: how many differences.

        Returns:
            The second with 0 for where tokens of the one or the other may not leave; None where there are more.
        """
        tokens = self.tokens
        if core.CORE is not None:
            room = most + 1
            scratch, address = scratch_of_thread(3 * room)
            scratch[0], scratch[room], scratch[2 * room] = 0, state, other
            words = words.copy()
            kept = core.CORE.change(
                *self._addresses, self._classes, room, address, address + 4 * room, address + 8 * room,
                self._leaves_address, *tokens.addresses, words.ctypes.data,
            )  # fmt: skip
            if kept < 0:
                return None
            return words, Differences(*(scratch[low : low + kept].copy() for low in (0, room, 2 * room)))
        different = self.differences(state, other, most)
        if different is None:
            return None
        nodes, ours, theirs = different
        words = words ^ tokens.mask_of(nodes[(ours == 0) | (theirs == 0)])  # those that only one of the two has
        has_longer = tokens.has_longer[nodes]
        ours, theirs = (np.where(has_longer & self.leaves[states], states, 0) for states in (ours, theirs))
        kept = np.flatnonzero(ours | theirs)
        return words, Differences(nodes[kept], ours[kept], theirs[kept])

    def differences(self, state: int, other: int, most: int) -> Differences | None:
        """Where tokens that begin in two states are in different ones.

        Args:
            state: of the component.
            other: the other one.
            most: how many nodes.

        Returns:
            The nodes without the root, breadth first; None where there are more.
        """
        room = most + 1
        if core.CORE is not None:
            scratch, address = scratch_of_thread(3 * room)
            scratch[0], scratch[room], scratch[2 * room] = 0, state, other
            found = core.CORE.differ(
                *self._addresses, self._classes, room, address, address + 4 * room, address + 8 * room
            )
            if found < 0:
                return None
            return Differences(*(scratch[low + 1 : low + found].copy() for low in (0, room, 2 * room)))
        trie, count = self.tokens.trie, 1
        nodes, ours, theirs = (np.array([number], np.int32) for number in (0, state, other))
        levels = []
        while len(nodes):
            starts = trie.child.take(nodes)
            counts = trie.child.take(nodes + 1) - starts
            children = ranges(starts, counts)
            letters = self._class_of.take(children)
            ours = self._table.take(np.repeat(ours * self._classes, counts) + letters)
            theirs = self._table.take(np.repeat(theirs * self._classes, counts) + letters)
            differ = np.flatnonzero(ours != theirs)
            nodes, ours, theirs = children.take(differ).astype(np.int32), ours.take(differ), theirs.take(differ)
            levels.append((nodes, ours, theirs))
            count += len(nodes)
            if count > room:
                return None
        return Differences(*map(np.concatenate, zip(*levels, strict=True)))


class Differences(NamedTuple):
    """Nodes of the trie at which two states of a component have led to different ones; below all others to the same.

    Args:
        nodes: (n,) int32.
        ours: (n,) int32, where the one leads to; 0 where it does not lead there.
        theirs: (n,) int32, where the other one leads to, likewise.
    """

    nodes: NDArray[np.int32]
    ours: NDArray[np.int32]
    theirs: NDArray[np.int32]
