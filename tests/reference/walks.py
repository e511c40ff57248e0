"""Walks of tokens in Python, node by node: an oracle for token_walk.c."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.automaton.component_walk import ComponentWalk
from hf_guided.automaton.token_trie import TokenTrie

MANY_BYTES = 24
Left = list[tuple[int, list[int]]]


def children(tokens: TokenTrie, node: int) -> range:
    """The nodes one byte below."""
    return range(int(tokens.trie.child[node]), int(tokens.trie.child[node + 1]))


def _after(walk: ComponentWalk, state: int, byte: int) -> int:
    return walk.dfa.advance(state, bytes((byte,)))


def below(walk: ComponentWalk, nodes: NDArray[Any], states: NDArray[Any]) -> tuple[list[int], list[int]]:
    """As ``ComponentWalk.below``."""
    reached = list(zip(nodes.tolist(), states.tolist(), strict=True))
    for node, state in reached:  # grows meanwhile
        for child in children(walk.tokens, node):
            if moved := _after(walk, state, walk.tokens.letters[child]):
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
    after = expected[form.start, ord('"')] = _after(walk, state, ord('"'))
    is_copy = np.array_equal(walk.dfa.table[body][:, walk.dfa.byte_class], expected)
    return int(after) if states[-1] == state and is_copy and not walk.leaves[body].any() else 0


@lru_cache(maxsize=2)
def _first_moves(form: ByteDfa) -> tuple[tuple[int, int, int], ...]:
    """A move to each state but the first, and to ``form.states`` for the end of a character.

    Each is a source, a byte and a target; the moves to its source come before it.
    """
    targets = form.table[:, form.byte_class].astype(np.int64)  # (states, bytes)
    targets[targets == form.start] = form.states
    moves, todo = {}, [form.start]
    for source in todo:
        for target, byte in zip(*np.unique(targets[source], return_index=True), strict=True):
            if target and target not in moves:
                moves[target] = source, int(byte), int(target)
                if target != form.states:
                    todo.append(int(target))
    return tuple(moves.values())


def stand(form: ByteDfa, walk: ComponentWalk, state: int) -> list[int]:
    """The states of a component that stand for those of a string and the one after a character; this is not checked.

    Args:
        form: one of ``string_dfas``.
        walk: of the component.
        state: of it, where characters begin.
    """
    states = [0] * (form.states + 1)
    states[form.start] = state
    for source, byte, target in _first_moves(form):
        states[target] = _after(walk, states[source], byte)
    return states
