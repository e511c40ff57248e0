"""Automata that are made without an NFA: of a list of words, and of the multiples of a number."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from decimal import Decimal

import numpy as np

from .byte_dfa import ByteDfa, trimmed
from .limits import NFA_STATES, WorkMeter
from .token_trie import build_trie

_TRIE_NODES = 2_000_000  # before common ends are joined
_CHUNK = 1024  # nodes that become Python's objects at the same time
_NODE_STEPS, _NODE_BYTES, _STATE_BYTES = 10, 60, 200  # work and memory: of a node's arrays, of a state's objects


def dawg_dfa(words: Iterable[bytes], meter: WorkMeter) -> ByteDfa:
    """The minimal automaton of a finite set of byte strings, at least one; neither order nor repetition matters.

    It is their DAWG, the smallest acyclic graph that spells them: prefixes and suffixes are shared.
    """
    trie = build_trie(sorted(set(words)), meter, _TRIE_NODES)
    nodes = len(trie.byte)
    meter.hold(_NODE_BYTES * nodes)
    ends = np.zeros(nodes, np.bool_)
    ends[trie.node_of] = True
    is_followed = np.append(trie.parent[1:] == trie.parent[:-1], False)  # by a sibling
    first_child = trie.child[:-1]
    is_parent = first_child < trie.child[1:]
    allowed = NFA_STATES * meter.limits.max_states
    # A state is (does a word end here, list of edges); a list is (byte, state, the rest of the list). Both are numbered
    # in the order of this loop: children before parents, later siblings before earlier ones.
    states: dict[tuple[bool, int], int] = {}
    lists: dict[tuple[int, int, int], int] = {}
    list_of = array("i", bytes(4 * (nodes + 1)))  # the list of each node and its later siblings; 0 is the empty one
    held = 0
    for begin in reversed(range(0, nodes, _CHUNK)):
        chunk = slice(begin, begin + _CHUNK)
        meter.check_states(len(states), allowed)
        meter.spend(_CHUNK * _NODE_STEPS)
        held, before = len(states) + len(lists), held
        meter.hold(_STATE_BYTES * (held - before))
        columns = ends[chunk], trie.byte[chunk], is_followed[chunk], is_parent[chunk], first_child[chunk]
        rows = zip(*(column[::-1].tolist() for column in columns), strict=True)
        for node, (is_end, byte, has_sibling, has_child, child) in zip(
            range(min(begin + _CHUNK, nodes) - 1, begin - 1, -1), rows, strict=True
        ):
            state = states.setdefault((is_end, list_of[child] if has_child else 0), len(states) + 1)
            rest = list_of[node + 1] if has_sibling else 0
            list_of[node] = lists.setdefault((byte, state, rest), len(lists) + 1)
    meter.check_states(len(states), allowed)
    meter.spend(len(lists) + len(states))
    meter.check_states(len(states) + 1)
    edges, letters = [(0, 0, 0), *lists], np.unique(trie.byte[1:])
    # A class for each byte that occurs, and the last one for all others.
    byte_class = np.full(256, len(letters))
    byte_class[letters] = np.arange(len(letters))
    class_of = byte_class.tolist()
    size = len(states) + 1
    meter.hold(4 * size * (len(letters) + 1))
    table = np.zeros((size, min(len(letters) + 1, 256)), np.uint16 if size <= 1 << 16 else np.uint32)
    for (_, head), source in states.items():
        while head:
            letter, target, head = edges[head]
            table[source, class_of[letter]] = target
    accepting = np.array([False, *(is_final for is_final, _ in states)])
    return ByteDfa(table, byte_class.astype(np.uint8), accepting, len(states))


def multiples_dfa(factor: Decimal, meter: WorkMeter) -> ByteDfa:
    """Decimals, with or without a sign and a point, that are a multiple of ``factor``, which is positive.

    The states are the remainders of the digits so far, at each decimal place: no list of endings tells. Leading zeros
    are accepted too; another automaton decides how numbers are written.
    """
    whole, _, fraction = f"{factor:f}".partition(".")
    fraction = fraction.rstrip("0")
    places, modulus = len(fraction), int(whole + fraction)  # the factor in units of 10 ** -places
    meter.check_states(modulus * (places + 2))
    meter.spend_cells(4 * 13 * modulus * (places + 2))  # the table is written, and once read
    # States: dead, start, after the sign, trailing zeros; then for each remainder one state for the digits before the
    # point, and one for each number of digits after it, from none to all places.
    start, signed, zeros, before = range(1, 5)
    table = np.zeros((before + modulus * (places + 2), 13), np.int64)  # ten digits, the sign, the point, all others
    accepting = np.zeros(len(table), np.bool_)
    remainders = np.arange(modulus)
    following = (remainders[:, None] * 10 + np.arange(10)) % modulus  # (remainders, digits)
    table[start, :10] = table[signed, :10] = before + following[0]
    table[start, 10] = signed
    table[before : before + modulus, :10] = before + following
    table[before : before + modulus, 11] = before + modulus + remainders
    accepting[before : before + modulus] = remainders * pow(10, places, modulus) % modulus == 0
    for digits in range(places + 1):
        low = before + modulus * (1 + digits)
        if digits < places:
            table[low : low + modulus, :10] = low + modulus + following
        if digits:  # not directly after the point
            accepting[low : low + modulus] = remainders * pow(10, places - digits, modulus) % modulus == 0
    table[[low, zeros], 0] = zeros  # all places are there and nothing remains
    accepting[zeros] = True
    byte_class = np.full(256, 12)
    byte_class[[*b"0123456789-."]] = np.arange(12)
    return trimmed(table, byte_class, accepting, start, meter)
