"""A trie of byte strings as arrays, level after level: the children of a node are adjacent and in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .limits import WorkMeter

_ENTRIES = 8  # of arrays, for each string at each level


@dataclass(frozen=True, eq=False)
class Trie:
    """Node 0 is the root; the nodes of a level are adjacent, and so are the children of a node.

    Args:
        levels: (depths + 1,) where each level begins, the root's first; then how many nodes there are.
        byte: (nodes,) uint8, the byte that leads here; the root's means nothing.
        parent: (nodes,) int64; the root's is 0.
        child: (nodes + 1,) int64, where each node's children begin; they end where those of the next begin.
        node_of: (strings,) int64, the node in which each of the strings ends.
    """

    levels: tuple[int, ...]
    byte: NDArray[np.uint8]
    parent: NDArray[np.int64]
    child: NDArray[np.int64]
    node_of: NDArray[np.int64]

    def child_by(self, node: int, byte: int) -> int:
        """The child of a node by a byte; 0 if there is none."""
        place = _place(self, node, byte)
        return place if place < self.child[node + 1] and self.byte[place] == byte else 0


def ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[i], starts[i] + 1 ...``, ``counts[i]`` of them, one after another."""
    total = int(counts.sum())
    shift = starts - np.concatenate(([0], np.cumsum(counts)[:-1])) if len(counts) else starts
    indices: NDArray[np.int64] = np.arange(total) + np.repeat(shift, counts)
    return indices


def build_trie(strings: Sequence[bytes], meter: WorkMeter | None = None, max_nodes: int | None = None) -> Trie:
    """The trie of byte strings that are sorted; equal ones end in one node.

    Args:
        strings: sorted.
        meter: counts the work of every level.
        max_nodes: with a meter, how many nodes there may be.
    """
    text = np.frombuffer(b"".join(strings), np.uint8)
    lengths = np.fromiter(map(len, strings), np.int64, len(strings))
    offsets = np.cumsum(lengths) - lengths
    node_of = np.zeros(len(strings), np.int64)
    active = np.flatnonzero(lengths > 0)
    levels, bytes_, parents = [0, 1], [np.zeros(1, np.uint8)], [np.zeros(1, np.int64)]
    depth = 0
    while len(active):
        if meter is not None:
            meter.check_states(levels[-1], max_nodes)
            meter.spend_cells(_ENTRIES * len(active))
        above, byte = node_of[active], text[offsets[active] + depth]
        first = np.ones(len(active), np.bool_)
        first[1:] = (above[1:] != above[:-1]) | (byte[1:] != byte[:-1])
        node_of[active] = levels[-1] + np.cumsum(first) - 1
        bytes_.append(byte[first])
        parents.append(above[first])
        levels.append(levels[-1] + int(np.count_nonzero(first)))
        depth += 1
        active = active[lengths[active] > depth]
    parent = np.concatenate(parents)
    child = 1 + np.searchsorted(parent[1:], np.arange(levels[-1] + 1))
    return Trie(tuple(levels), np.concatenate(bytes_), parent, child, node_of)


def with_strings(trie: Trie, strings: Sequence[bytes]) -> tuple[Trie, NDArray[np.int64]]:
    """A trie with a few more strings: the arrays are copied, and nothing else depends on its size.

    Args:
        trie: not changed.
        strings: sorted; some may be in the trie already.

    Returns:
        The trie, whose ``node_of`` is that of these strings; (nodes of ``trie``,) their numbers in it.
    """
    known = {b"": 0}  # the nodes of the prefixes of the strings
    new: set[bytes] = set()
    for string in strings:
        for end in range(1, len(string) + 1):
            above, prefix = known.get(string[: end - 1]), string[:end]
            if above is None:
                new.add(prefix)
            elif prefix not in known:
                if node := trie.child_by(above, prefix[-1]):
                    known[prefix] = node
                else:
                    new.add(prefix)
    ordered = sorted(new, key=lambda prefix: (len(prefix), prefix))  # the order of the nodes of a trie
    before: dict[bytes, int] = {}  # before which node of the trie each comes
    for prefix in ordered:
        above = known.get(prefix[:-1])
        before[prefix] = int(trie.child[before[prefix[:-1]]]) if above is None else _place(trie, above, prefix[-1])
    places = np.array([before[prefix] for prefix in ordered], np.int64)
    size = len(trie.byte)
    numbers = np.arange(size) + np.cumsum(np.bincount(places, minlength=size + 1))[:size]
    nodes = {prefix: int(numbers[node]) for prefix, node in known.items()}
    nodes |= {prefix: before[prefix] + i for i, prefix in enumerate(ordered)}
    parent = np.insert(numbers[trie.parent], places, [nodes[prefix[:-1]] for prefix in ordered])
    child = np.ones(len(parent) + 1, np.int64)
    np.cumsum(np.bincount(parent[1:], minlength=len(parent)), out=child[1:])
    child[1:] += 1
    deepest = max(len(trie.levels) - 1, 1 + max(map(len, ordered), default=0))
    levels = [*trie.levels, *[size] * (deepest + 1 - len(trie.levels))]
    levels = [low + sum(len(prefix) < depth for prefix in ordered) for depth, low in enumerate(levels)]
    byte = np.insert(trie.byte, places, [prefix[-1] for prefix in ordered])
    node_of = np.array([nodes[string] for string in strings], np.int64)
    return Trie(tuple(levels), byte, parent, child, node_of), numbers


def _place(trie: Trie, above: int, byte: int) -> int:
    """The first child of a node that is not below a byte; else where the next node's children begin."""
    low, high = trie.child[above : above + 2].tolist()
    return int(low + np.searchsorted(trie.byte[low:high], byte))
