"""The table of a state of a component made from that of another state, where few nodes of the trie tell them apart.

Along the name of a declared member each state is one of its own, but nearly all tokens do from it what they do inside
any other name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from .component_walk import ComponentWalk, Table
from .token_nodes import Ints

MOST_DIFFERENT = 16_384  # nodes; where there are more, a walk of its own takes about as long


def differing(walk: ComponentWalk, state: int, base: Table, other: int) -> Table | None:
    """The table of a state from the root of the trie; None where it has little in common with that of the other one.

    Args:
        walk: the component.
        state: of the component.
        base: the table of the other state, with ``words``.
        other: this state.
    """
    different = walk.differences(state, other, MOST_DIFFERENT)
    if different is None or base.words is None:
        return None
    nodes, ours, theirs = different
    tokens = walk.tokens
    words = base.words ^ tokens.mask_of(nodes[(ours == 0) | (theirs == 0)])  # those that only one of the two has
    has_longer = tokens.has_longer[nodes]
    come, gone = has_longer & walk.leaves[ours], has_longer & walk.leaves[theirs]
    leaving = dict(base.leaving)
    for to, dropped in _by_state(nodes[gone], theirs[gone]):
        left = leaving.pop(to).nodes
        kept = np.ones(len(left), np.bool_)
        kept[np.searchsorted(left, dropped)] = False
        if kept.any():
            leaving[to] = walk.sets.of(left[kept])
    for to, added in _by_state(nodes[come], ours[come]):
        known = leaving.get(to)
        leaving[to] = walk.sets.of(added if known is None else np.sort(np.concatenate((known.nodes, added))))
    return Table(base.nodes, words, tuple(sorted(leaving.items())))


def _by_state(nodes: Ints, states: Ints) -> Iterator[tuple[int, Ints]]:
    """Nodes (n,), together those with the same state (n,), ascending like all of them."""
    order = np.argsort(states, kind="stable")
    nodes, states = nodes[order], states[order]
    firsts = [0, *(np.flatnonzero(states[1:] != states[:-1]) + 1).tolist(), len(nodes)]
    for low, high in pairwise(firsts if len(nodes) else ()):
        yield int(states[low]), nodes[low:high]
