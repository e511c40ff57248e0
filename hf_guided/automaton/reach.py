"""From which states the end can be reached with this vocabulary: token by token, not byte by byte.

Where every byte that the language uses is a token of its own, that is all of them. Otherwise (T5 has no token with
``{`` in it, and writes é with one token but none of its two bytes) some states cannot reach the end, and no token may
lead there. Single bytes settle nearly all states; only the remaining states are walked through the vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa, backwards
from .limits import EDGES, WorkMeter
from .token_trie import TokenTrie
from .token_walk import TokenWalk, level_steps


class Reach(NamedTuple):
    """What ``reach`` found.

    Args:
        can_end: (states,) whether the end can be reached, token by token.
        single: (states,) whether it can be reached with tokens of one byte alone.
        edges: (edges, 2) int64, moves by one token that lead to the end where single bytes do not.
    """

    can_end: NDArray[np.bool_]
    single: NDArray[np.bool_]
    edges: NDArray[np.int64]


def classes_with(dfa: ByteDfa, wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(classes,) which have a byte among the wanted ones (256,)."""
    return np.bincount(dfa.byte_class, weights=wanted, minlength=dfa.table.shape[1]) > 0


def single_byte_tokens(tokens: TokenTrie) -> NDArray[np.bool_]:
    """(256,) the bytes that are tokens."""
    trie = tokens.trie
    first = slice(trie.child[0], trie.child[1])
    single = np.zeros(256, np.bool_)
    single[trie.byte[first][tokens.has_token[first]]] = True
    return single


def reach(walk: TokenWalk, meter: WorkMeter) -> Reach:
    """Which states can end.

    Args:
        walk: the automaton and the vocabulary.
        meter: counts the work of the walks through the vocabulary.
    """
    dfa, trie = walk.dfa, walk.tokens.trie
    if not (dfa.table[:, dfa.byte_class[~single_byte_tokens(walk.tokens)]] != 0).any():
        live = np.arange(dfa.states) > 0
        return Reach(live, live, np.empty((0, 2), np.int64))
    sources, classes, targets = dfa.edges()
    ends = np.flatnonzero(dfa.accepting).tolist()

    def by_bytes(wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        kept = classes_with(dfa, wanted)[classes]
        return backwards(sources[kept], targets[kept], dfa.states, ends, meter)

    single = by_bytes(single_byte_tokens(walk.tokens))
    can_end = single.copy()
    held = np.zeros(256, np.bool_)
    held[trie.byte[1:]] = True
    first = np.zeros(256, np.bool_)
    first[trie.byte[trie.child[0] : trie.child[1]]] = True
    begins = (dfa.table[:, classes_with(dfa, first)] != 0).any(1)
    edges: list[tuple[int, int]] = []
    if not can_end[1:].all():
        waiting: dict[int, list[int]] = {}  # states by one that they lead to
        # Those near the end first: most find one that is settled at once.
        for state in _from_the_end(dfa, np.flatnonzero(by_bytes(held) & begins & ~can_end), meter):
            met: set[int] = set()
            for _, leads in walk.levels(state):
                meter.spend(level_steps(len(leads)))
                settled = leads[can_end[leads]]
                if len(settled):
                    _settle(state, int(settled[0]), can_end, waiting, edges)
                    break
                met.update(leads.tolist())
            else:
                for other in met:
                    waiting.setdefault(other, []).append(state)
    return Reach(can_end, single, np.array(edges, np.int64).reshape(-1, 2))


def _settle(
    state: int, target: int, can_end: NDArray[np.bool_], waiting: dict[int, list[int]], edges: list[tuple[int, int]]
) -> None:
    todo = [(state, target)]
    while todo:
        source, target = todo.pop()
        if not can_end[source]:
            can_end[source] = True
            edges.append((source, target))
            todo += [(other, source) for other in waiting.pop(source, ())]


def _from_the_end(dfa: ByteDfa, states: NDArray[np.int64], meter: WorkMeter) -> list[int]:
    """The states in the order of their distance from the end, in bytes."""
    distance = distances(dfa, np.ones(dfa.table.shape[1], np.bool_), meter)
    ordered: list[int] = states[np.argsort(distance[states], kind="stable")].tolist()
    return ordered


def distances(dfa: ByteDfa, classes: NDArray[np.bool_], meter: WorkMeter) -> NDArray[np.int64]:
    """(states,) how many bytes of these classes lead to the end at least; -1 where they do not."""
    sources, by, targets = dfa.edges()
    meter.spend(dfa.states + len(sources) // EDGES)
    meter.spend_cells(dfa.table.size)
    kept = classes[by]
    sources, targets = sources[kept], targets[kept]
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(dfa.states + 1)).tolist()
    before = sources[order].tolist()
    distance = [-1] * dfa.states
    queue = np.flatnonzero(dfa.accepting).tolist()
    for state in queue:
        distance[state] = 0
    for state in queue:  # grows meanwhile
        for source in before[starts[state] : starts[state + 1]]:
            if distance[source] < 0:
                distance[source] = distance[state] + 1
                queue.append(source)
    return np.array(distance)
