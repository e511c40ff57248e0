r"""Tables of repeated characters, as ``[^",]*`` has them: made from what each token is made of, without a walk.

Which ASCII characters are on the way to each node of the trie is found once for a vocabulary, as two words of 64 bits;
where all others are in a set, once for each set of others: ``\w`` and ``[\w.-]`` have the same. A walk through the
whole vocabulary takes milliseconds, and every pattern may have sets of characters of its own.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa
from .component_walk import NO_NODES, ComponentWalk, Table, Words, scratch_of_thread
from .core import CORE
from .lru_bytes import ByteCache
from .rtn import Component
from .token_trie import Nodes, NodeSets, packed

_MANY = 20  # ASCII characters; with fewer the walk is short
_ASCII = 128
_BYTE, _AGAIN, _ALONE = 255, 256, 512
_STATE = 1  # the number of the state itself among those that other characters go through
_BYTES = 2 * 2**20  # bytes of the facts about sets of others; as many of the nodes before some bytes


class _Texts(NamedTuple):
    """The bytes of nodes or tokens."""

    characters: NDArray[np.uint64]  # (n, 2) uint64, one bit for each ASCII character on the way
    heads: NDArray[np.uint16]  # (n,) the first byte on the way; _AGAIN where it is repeated, _ALONE where it is all

    @classmethod
    def of(cls, characters: NDArray[np.uint64], heads: NDArray[np.uint16]) -> _Texts:
        more = -len(heads) % 32
        return cls(np.pad(characters, ((0, more), (0, 0))), np.pad(heads, (0, more)))

    def made_of(self, inside: NDArray[np.bool_], first: int | None, among: Words) -> Words:
        """(words,) the texts among some (words,) whose ASCII characters are all in ``inside`` (128,).

        They begin with ``first``, which need not be inside and is not the whole text; None is any first byte.
        """
        mask = head = 0
        if first is not None:
            mask, head = _BYTE | _ALONE | (0 if inside[first] else _AGAIN), first
            inside = inside | (np.arange(_ASCII) == first)
        others, made = np.packbits(~inside, bitorder="little"), np.empty(len(among), np.int32)
        arrays = self.characters.ctypes.data, self.heads.ctypes.data, among.ctypes.data
        CORE.made_of(*arrays, len(among), others.ctypes.data, mask, head, made.ctypes.data)
        return made


class _Among(NamedTuple):
    """Nodes and tokens, a bit for each: those that have certain characters that are not ASCII, and no other such."""

    nodes: Words  # nodes at the end of a character, and with longer tokens
    tokens: Words  # tokens whose last character need not be whole

    @property
    def nbytes(self) -> int:
        return 1024 + self.nodes.nbytes + self.tokens.nbytes


class ClassTables:
    """The tables of a vocabulary; thread safe."""

    def __init__(self, sets: NodeSets):
        self._sets, self._trie = sets, sets.tokens.trie
        self._among: ByteCache[_Among] = ByteCache(_BYTES)
        self._before: ByteCache[Words] = ByteCache(_BYTES)

    def table(self, walk: ComponentWalk, state: int, begun: Nodes, following: bytes | None) -> Table | None:
        """The table of a state; None where it is not that of a repeated set with many ASCII characters.

        Tokens are in this state at ``begun``; None is returned for others than the root, or after one ASCII byte. One
        of the bytes ``following`` comes after the nodes where tokens leave; None is any.
        """
        node, first = int(begun.nodes[0]) if len(begun.nodes) == 1 else -1, None
        if not 0 <= node < self._trie.child[1] or not walk.repeats(state):
            return None
        targets = walk.dfa.table[state][walk.dfa.byte_class]
        inside = targets[:_ASCII] == state
        if np.count_nonzero(inside) < _MANY or (targets[:_ASCII][~inside] != 0).any():
            return None
        if node and (first := int(self._trie.byte[node])) >= _ASCII:
            return None
        others = _others(walk, state, targets)
        if others is None:
            return None
        among, (tokens, nodes) = self._among.of(others.tobytes(), lambda: self._among_of(others)), self._texts
        words = tokens.made_of(inside, first, among.tokens)
        words.flags.writeable = False
        if not walk.leaves[state]:
            return Table(NO_NODES, words, ())
        before = among.nodes
        if following is not None:
            before = before & self._before.of(following, lambda: _bits(self._sets.tokens.are_before(following)))
        left = _ones(nodes.made_of(inside, first, before))
        return Table(NO_NODES, words, ((state, self._sets.of(left)),) if len(left) else ())

    def _among_of(self, others: NDArray[np.unsignedinteger[Any]]) -> _Among:
        """The texts whose characters that are not ASCII lead from a state to itself; see ``_others``."""
        trie, tokens = self._trie, self._sets.tokens
        is_any, is_whole = self._is_ascii.copy(), self._is_ascii.copy()
        begins = self._first_others[others[_STATE, trie.byte[self._first_others] - _ASCII] != 0]
        if len(begins):
            table = np.zeros((len(others), _ASCII + 1), np.int32)  # columns: all ASCII characters, and other bytes
            table[:, 1:], table[_STATE, 0] = others, _STATE
            byte_class = np.maximum(np.arange(256) - _ASCII + 1, 0).astype(np.uint8)
            dfa = ByteDfa(table, byte_class, np.zeros(len(table), np.bool_), _STATE)
            walk = ComponentWalk(Component.without_calls(dfa), self._sets)
            reached, states = walk.below(begins, others[_STATE, trie.byte[begins] - _ASCII])
            reached = reached.astype(np.intp)  # for indices of 32 bits numpy takes three times as long
            is_any[reached], is_whole[reached] = True, states == _STATE
        return _Among(_bits(is_whole & (trie.child[1:] > trie.child[:-1])), packed(is_any[tokens.node_of]))

    @cached_property
    def _texts(self) -> tuple[_Texts, _Texts]:
        trie, node_of = self._trie, self._sets.tokens.node_of
        by_byte = np.zeros((256, 2), np.uint64)
        for half in (0, 1):
            by_byte[64 * half : 64 * half + 64, half] = np.uint64(1) << np.arange(64, dtype=np.uint64)
        characters, heads = by_byte[trie.byte], trie.byte.astype(np.uint16)
        characters[0] = 0
        for low, high in pairwise(trie.levels[1:]):
            above = trie.parent[low:high]
            characters[low:high] |= characters[above]
            if low > 1:
                known = heads[above] & ~np.uint16(_ALONE)
                heads[low:high] = known | np.where((known & _BYTE) == trie.byte[low:high], np.uint16(_AGAIN), 0)
            else:
                heads[low:high] |= _ALONE
        return _Texts.of(characters[node_of], heads[node_of]), _Texts.of(characters, heads)

    @cached_property
    def _is_ascii(self) -> NDArray[np.bool_]:
        """(nodes,) whether ASCII characters lead there; not to the root, which is no part of a table."""
        trie = self._trie
        is_ascii = trie.byte < _ASCII
        for low, high in pairwise(trie.levels[1:]):
            is_ascii[low:high] &= is_ascii[trie.parent[low:high]] | (low == 1)
        is_ascii[0] = False
        return is_ascii

    @cached_property
    def _first_others(self) -> NDArray[np.int64]:
        """(n,) the nodes at the first byte on the way that is not ASCII."""
        parent_is_ascii = self._is_ascii[self._trie.parent] | (self._trie.parent == 0)
        return np.flatnonzero((self._trie.byte >= _ASCII) & parent_is_ascii)


def _others(
    walk: ComponentWalk, state: int, targets: NDArray[np.integer[Any]]
) -> NDArray[np.unsignedinteger[Any]] | None:
    """States after bytes that are not ASCII, in new numbers; None where anything else may come before they lead back.

    From ``state``, whose number is ``_STATE``, each byte leads to ``targets`` (256,). The result is (states, 128); row
    0 has no moves, and there are no more rows where there are none at all.
    """
    dfa, high = walk.dfa, walk.dfa.byte_class[_ASCII:]
    columns, low = np.unique(high), np.unique(dfa.byte_class[:_ASCII])
    between, new = np.zeros(dfa.states, np.bool_), np.zeros(dfa.states, np.bool_)
    new[targets[_ASCII:]] = True
    new[[0, state]] = False
    while new.any():
        rows = dfa.table[new]
        if walk.leaves[new].any() or rows[:, low].any():
            return None
        between |= new
        new[rows[:, columns]] = True
        new[[0, state]] = False
        new &= ~between
    states = [0, state, *np.flatnonzero(between).tolist()]
    numbers = np.zeros(dfa.states, np.uint32)
    numbers[states] = np.arange(len(states))
    if len(states) < 1 << 16:
        numbers = numbers.astype(np.uint16)
    return numbers.take(dfa.table[states]).take(high, 1)


def _bits(values: NDArray[np.bool_]) -> Words:
    return packed(np.pad(values, (0, -len(values) % 32)))


def _ones(bits: Words) -> NDArray[np.int32]:
    scratch, address = scratch_of_thread(32 * len(bits) + 1)
    found: NDArray[np.int32] = scratch[: CORE.ones(bits.ctypes.data, len(bits), address)].copy()
    return found
