"""A finite set of words as a DAWG, the smallest acyclic graph that spells them: prefixes and suffixes are shared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .byte_dfa import ByteDfa
from .limits import NFA_STATES, WorkMeter
from .trie import build_trie

_TRIE_NODES = 40  # times max_states, before common ends are joined


@dataclass(frozen=True)
class Dawg:
    """States 0, 1 ...; each leads to earlier ones only, and the last is where the words begin.

    Args:
        nexts: for each state the edges from it: byte and target.
        final: for each state whether a word ends there.
    """

    nexts: list[list[tuple[int, int]]]
    final: list[bool]


def build_dawg(words: Iterable[bytes], meter: WorkMeter) -> Dawg:
    """The minimal graph of some words; neither their order nor repetition matters."""
    trie = build_trie(sorted(set(words)), meter, _TRIE_NODES * meter.limits.max_states)
    ends = np.zeros(len(trie.byte), np.bool_)
    ends[trie.node_of] = True
    final, byte = ends.tolist(), trie.byte.tolist()
    child, parent = trie.child.tolist(), trie.parent.tolist()
    allowed = NFA_STATES * meter.limits.max_states
    # A state is (does a word end here, list of edges); a list is (byte, state, the rest of the list). Both are numbered
    # in the order of this loop: children before parents, later siblings before earlier ones.
    states: dict[tuple[bool, int], int] = {}
    lists: dict[tuple[int, int, int], int] = {}
    list_of = [0] * (len(byte) + 1)  # of the node and its later siblings; 0 is the empty list
    for node in range(len(byte) - 1, -1, -1):
        if node % 1024 == 0:
            meter.check_states(len(states), allowed)
            meter.spend(1024)
        first = child[node]
        state = states.setdefault((final[node], list_of[first] if first < child[node + 1] else 0), len(states))
        rest = list_of[node + 1] if node + 1 < len(byte) and parent[node + 1] == parent[node] else 0
        list_of[node] = lists.setdefault((byte[node], state, rest), len(lists) + 1)
    meter.check_states(len(states), allowed)
    meter.spend(len(lists) + len(states))
    edges = list(lists)
    nexts = []
    for _, head in states:
        here = []
        while head:
            letter, target, head = edges[head - 1]
            here.append((letter, target))
        nexts.append(here)
    return Dawg(nexts, [is_final for is_final, _ in states])


def dawg_dfa(words: Iterable[bytes], meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of a finite set of byte strings, at least one; the graph already is that automaton."""
    graph = build_dawg(words, meter)
    meter.check_states(len(graph.nexts) + 1)
    counts = np.fromiter(map(len, graph.nexts), np.int64, len(graph.nexts))
    edges = np.array([edge for nexts in graph.nexts for edge in nexts], np.int64).reshape(-1, 2)
    # A class for each byte that occurs, and the last one for all others.
    letters, classes = np.unique(edges[:, 0], return_inverse=True)
    byte_class = np.full(256, len(letters))
    byte_class[letters] = np.arange(len(letters))
    table = np.zeros((len(counts) + 1, min(len(letters) + 1, 256)), np.uint16 if len(counts) < 1 << 16 else np.uint32)
    table[np.repeat(np.arange(1, len(counts) + 1), counts), classes.reshape(-1)] = edges[:, 1] + 1
    return ByteDfa(table, byte_class.astype(np.uint8), np.array([False, *graph.final]), len(counts))
