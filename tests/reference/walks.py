"""Walks of tokens in Python, node by node: an oracle for token_walk.c."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.component_walk import ComponentWalk
from hf_guided.automaton.string_dfas import stand
from hf_guided.automaton.token_trie import TokenTrie
from hf_guided.automaton.token_walk import TokenWalk

MANY_BYTES = 24
Left = list[tuple[int, list[int]]]


def children(tokens: TokenTrie, node: int) -> range:
    """The nodes one byte below."""
    return range(int(tokens.trie.child[node]), int(tokens.trie.child[node + 1]))


def below(walk: TokenWalk, nodes: NDArray[Any], states: NDArray[Any]) -> tuple[list[int], list[int]]:
    """As ``TokenWalk.below``."""
    reached = list(zip(nodes.tolist(), states.tolist(), strict=True))
    for node, state in reached:  # grows meanwhile
        for child in children(walk.tokens, node):
            if moved := walk.after(state, walk.tokens.letters[child]):
                reached.append((child, moved))
    return [node for node, _ in reached], [state for _, state in reached]


def mask_of(tokens: TokenTrie, nodes: list[int]) -> list[int]:
    """As ``TokenTrie.mask_of``."""
    ids = [tokens.token_ids[tokens.token_start[node] : tokens.token_start[node + 1]].tolist() for node in nodes]
    bits = np.zeros(tokens.size, np.bool_)
    bits[[token_id for of_node in ids for token_id in of_node]] = True
    return np.packbits(bits, bitorder="little").view("<i4").tolist()


def left(walk: ComponentWalk, state: int, begun: NDArray[Any]) -> tuple[list[int], Left]:
    """As ``ComponentWalk._left``."""
    nodes, states = (part[len(begun) :] for part in below(walk, begun, np.full(len(begun), state)))
    leaving: dict[int, list[int]] = {}
    for node, there in zip(nodes, states, strict=True):
        if walk.leaves[there] and children(walk.tokens, node):
            leaving.setdefault(there, []).append(node)
    return nodes, sorted(leaving.items())


def changed(
    walk: ComponentWalk, words: NDArray[Any], state: int, other: int, most: int
) -> tuple[list[int], list[list[int]]] | None:
    """As ``ComponentWalk.changed``."""
    tokens, different = walk.tokens, [(0, state, other)]
    for node, ours, theirs in different:  # grows meanwhile
        for child in children(tokens, node):
            letter = tokens.letters[child]
            there = walk.after(ours, letter), walk.after(theirs, letter)
            if there[0] != there[1]:
                different.append((child, *there))
    del different[0]
    if len(different) > most:
        return None
    one_alone = mask_of(tokens, [node for node, ours, theirs in different if not ours or not theirs])
    kept: list[list[int]] = [[], [], []]
    for node, *states in different:
        ours, theirs = (there if walk.leaves[there] and children(tokens, node) else 0 for there in states)
        if ours or theirs:
            for numbers, number in zip(kept, (node, ours, theirs), strict=True):
                numbers.append(number)
    return (words ^ np.array(one_alone, np.int32)).tolist(), kept


def body_of(walk: ComponentWalk, state: int) -> int:
    """As ``ComponentWalk.body_of``."""
    body = _most_frequent(walk, state)
    return body if body and (body == state or _most_frequent(walk, body) == body) else 0


def _most_frequent(walk: ComponentWalk, state: int) -> int:
    counts = np.bincount(walk.dfa.table[state][walk.dfa.byte_class])
    counts[0] = 0
    frequent = int(counts.argmax())
    return frequent if counts[frequent] >= MANY_BYTES else 0


def after_quote(form: ByteDfa, walk: ComponentWalk, state: int) -> int:
    """The state after the quote that ends the string of which a state is the body; 0 where it is no body."""
    states = np.array(stand(form, walk, state))
    body = states[:-1]
    expected = body[form.table[:, form.byte_class]]
    after = expected[form.start, ord('"')] = walk.after(state, ord('"'))
    is_copy = np.array_equal(walk.dfa.table[body][:, walk.dfa.byte_class], expected)
    return int(after) if states[-1] == state and is_copy and not walk.leaves[body].any() else 0
