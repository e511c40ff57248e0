"""The table of a state of a component made from that of another state, where few nodes of the trie tell them apart.

Along the name of a declared member each state is one of its own, but nearly all tokens do from it what they do inside
any other name.
"""

from __future__ import annotations

from collections.abc import Iterator

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
    changed = None if base.words is None else walk.changed(base.words, state, other, MOST_DIFFERENT)
    if changed is None:
        return None
    words, (nodes, ours, theirs) = changed
    if not len(nodes):
        return Table(base.nodes, words, base.leaving)
    leaving = dict(base.leaving)
    for to, dropped in _by_state(nodes, theirs):
        left = leaving.pop(to).nodes
        kept = np.ones(len(left), np.bool_)
        kept[np.searchsorted(left, dropped)] = False
        if kept.any():
            leaving[to] = walk.sets.of(left[kept])
    for to, added in _by_state(nodes, ours):
        known = leaving.get(to)
        leaving[to] = walk.sets.of(added if known is None else np.sort(np.concatenate((known.nodes, added))))
    return Table(base.nodes, words, tuple(sorted(leaving.items())))


def _by_state(nodes: Ints, states: Ints) -> Iterator[tuple[int, Ints]]:
    """Nodes (n,), together those with the same state (n,) other than 0, ascending like all of them."""
    for state in sorted({*states.tolist()} - {0}):
        yield state, nodes[states == state]
