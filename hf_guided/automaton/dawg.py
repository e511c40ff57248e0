"""A finite set of words as the smallest graph that spells them: common beginnings and common ends are stored once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .byte_dfa import ByteDfa
from .limits import NFA_STATES, WorkMeter
from .trie import build_trie

_TRIE_NODES = 40  # times max_states, before common ends are joined


@dataclass(frozen=True)
class WordGraph:
    """States 0, 1 ...; each leads to earlier ones only, and the last is where the words begin.

    Args:
        nexts: for each state the bytes that go on, and where they lead.
        final: for each state whether a word ends there.
    """

    nexts: list[list[tuple[int, int]]]
    final: list[bool]


def word_graph(words: Iterable[bytes], meter: WorkMeter) -> WordGraph:
    """The minimal graph of some words, in whatever order and however often they come."""
    trie = build_trie(sorted(set(words)), meter, _TRIE_NODES * meter.limits.max_states)
    ends = np.zeros(len(trie.byte), np.bool_)
    ends[trie.node_of] = True
    final, byte = ends.tolist(), trie.byte.tolist()
    child, parent = trie.child.tolist(), trie.parent.tolist()
    allowed = NFA_STATES * meter.limits.max_states
    # A state is (does a word end here, list of ways on); a list is (byte, state, the rest of the list). Both are
    # numbered as they are met, children before parents and later siblings before earlier ones.
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
    ways = list(lists)
    nexts = []
    for _, head in states:
        here = []
        while head:
            letter, target, head = ways[head - 1]
            here.append((letter, target))
        nexts.append(here)
    return WordGraph(nexts, [is_final for is_final, _ in states])


def words_dfa(words: Iterable[bytes], meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of a finite set of byte strings, one at least: the graph is one already."""
    graph = word_graph(words, meter)
    meter.check_states(len(graph.nexts) + 1)
    counts = np.fromiter(map(len, graph.nexts), np.int64, len(graph.nexts))
    ways = np.array([way for nexts in graph.nexts for way in nexts], np.int64).reshape(-1, 2)
    # A class for each byte that occurs, and the last one for all others.
    letters, classes = np.unique(ways[:, 0], return_inverse=True)
    byte_class = np.full(256, len(letters))
    byte_class[letters] = np.arange(len(letters))
    table = np.zeros((len(counts) + 1, min(len(letters) + 1, 256)), np.uint16 if len(counts) < 1 << 16 else np.uint32)
    table[np.repeat(np.arange(1, len(counts) + 1), counts), classes.reshape(-1)] = ways[:, 1] + 1
    return ByteDfa(table, byte_class.astype(np.uint8), np.array([False, *graph.final]), len(counts))
