"""Tables of repeated characters, as ``[^",]*`` has them: made from what each token is made of, without a walk.

Which ASCII characters are on the way to each node of the trie is found once for a vocabulary, as two words of 64 bits.
A walk through the whole vocabulary takes milliseconds, and every pattern may have sets of characters of its own.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .component_walk import ComponentWalk, Table
from .nfa import utf8
from .rtn import Component
from .token_nodes import NodeSets
from .token_trie import packed

_MANY = 20  # ASCII characters; with fewer the walk is short
_ASCII = 128
_NO_NODES = np.empty(0, np.int32)
_Bits = NDArray[np.uint64]


class _Characters(NamedTuple):
    """The ASCII characters on the way to nodes, or in tokens: one bit for each."""

    low: _Bits
    high: _Bits

    def within(self, characters: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Which have no other ASCII characters than these (128,)."""
        low, high = (np.packbits(~half, bitorder="little").view("<u8")[0] for half in np.split(characters, 2))
        has_others: NDArray[np.bool_] = ((self.low & low) | (self.high & high)) != 0
        return ~has_others


class _Known(NamedTuple):
    """What nodes and tokens are made of.

    Args:
        nodes: of each node, the ASCII characters on the way.
        tokens: of each token by its id, likewise.
        ascii_nodes, any_nodes: which nodes are at the end of ASCII characters, and at the end of any characters, and
            have longer tokens.
        ascii_tokens, any_tokens: which tokens are made of ASCII characters, and of any, the last perhaps not whole.
    """

    nodes: _Characters
    tokens: _Characters
    ascii_nodes: NDArray[np.bool_]
    any_nodes: NDArray[np.bool_]
    ascii_tokens: NDArray[np.bool_]
    any_tokens: NDArray[np.bool_]


class ClassTables:
    """Those of a vocabulary; thread safe.

    Args:
        sets: of nodes of the vocabulary.
    """

    def __init__(self, sets: NodeSets):
        self._sets = sets

    def table(self, walk: ComponentWalk, state: int) -> Table | None:
        """The table of a state, from the root of the trie; None where it is not that of a repeated set of characters.

        Such a set has many ASCII characters, and all others or none.

        Args:
            walk: the component.
            state: of the component.
        """
        targets = walk.dfa.table[state][walk.dfa.byte_class]
        inside = targets[:_ASCII] == state
        if np.count_nonzero(inside) < _MANY or (targets[:_ASCII][~inside] != 0).any():
            return None
        has_others = bool(targets[_ASCII:].any())
        if has_others and not _reads_all_others(walk, state):
            return None
        known = self._known
        tokens = known.tokens.within(inside) & (known.any_tokens if has_others else known.ascii_tokens)
        nodes = known.nodes.within(inside) & (known.any_nodes if has_others else known.ascii_nodes)
        left = ((state, self._sets.of(np.flatnonzero(nodes))),) if walk.leaves[state] else ()
        return Table(_NO_NODES, packed(tokens), left)

    @cached_property
    def _known(self) -> _Known:
        tokens = self._sets.tokens
        trie = tokens.trie
        by_byte = np.zeros((3, 256), np.uint64)
        for half in (0, 1):
            by_byte[half, 64 * half : 64 * half + 64] = np.uint64(1) << np.arange(64, dtype=np.uint64)
        by_byte[2, _ASCII:] = 1
        on_the_way = by_byte[:, trie.byte]
        on_the_way[:, 0] = 0
        for low, high in pairwise(trie.levels[1:]):
            on_the_way[:, low:high] |= on_the_way[:, trie.parent[low:high]]
        walk = ComponentWalk(Component.without_calls(utf8()), self._sets)
        root = np.zeros(1, np.int32)
        reached, states = walk.below(root, np.full(1, utf8().start))
        is_longer = np.diff(trie.child) > 0
        is_ascii = on_the_way[2] == 0
        is_any, is_whole = np.zeros((2, len(trie.byte)), np.bool_)
        is_any[reached] = True
        is_whole[reached[states == utf8().start]] = True
        is_ascii[0] = is_any[0] = is_whole[0] = False  # the root is no part of a table
        node_of = np.zeros(tokens.size, np.int64)  # the root where there is no token
        node_of[tokens.token_ids] = np.repeat(np.arange(len(trie.byte)), np.diff(tokens.token_start))
        return _Known(
            _Characters(on_the_way[0], on_the_way[1]),
            _Characters(on_the_way[0][node_of], on_the_way[1][node_of]),
            is_ascii & is_longer,
            is_whole & is_longer,
            is_ascii[node_of],
            is_any[node_of],
        )


def _reads_all_others(walk: ComponentWalk, state: int) -> bool:
    """Whether every character that is not ASCII leads from a state to itself, and nothing else may come meanwhile."""
    form, dfa = utf8(), walk.dfa
    stands_for, todo = {0: 0, form.start: state}, [form.start]
    for source in todo:  # grows meanwhile
        here = stands_for[source]
        row = dfa.table[here][dfa.byte_class].astype(np.int64)
        if source != form.start and (walk.leaves[here] or row[:_ASCII].any()):
            return False
        moves = np.unique(_utf8_moves()[source, _ASCII:] * dfa.states + row[_ASCII:])
        for target, ours in zip(*(part.tolist() for part in np.divmod(moves, dfa.states)), strict=True):
            if target not in stands_for:
                stands_for[target] = ours
                todo.append(target)
            if stands_for[target] != ours or (target and not ours):
                return False
    return True


@lru_cache(maxsize=1)
def _utf8_moves() -> NDArray[np.int64]:
    """(states, 256) where each byte leads in the automaton of all texts."""
    return utf8().table[:, utf8().byte_class].astype(np.int64)
