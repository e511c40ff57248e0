"""How many tokens it takes to finish, from every state.

The answer is found on a graph whose edges are moves by one token:

- from every state, all tokens that lie along one shortest path to the end, in bytes;
- from as many states as a bound on the work allows to walk, all tokens of the vocabulary.

Every edge is an allowed token, so the count is always achievable: a row that has at least this number of
tokens left can finish, and has a token that leaves it so. If all states were walked (``exact``) the count is also the
least there is; a state from which one token leads to the end, and one that may stop, need no walk for that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .limits import EDGES, WorkMeter
from .reach import Reach, classes_with, distances, single_byte_tokens
from .token_walk import TokenWalk

Ints = NDArray[np.int64]
_SEARCHED = 32  # entries of arrays that looking up one node of a trie costs
NEVER = np.iinfo(np.int32).max
WALK_STEPS = 150_000  # of work: a hundred states of a vocabulary of 131k tokens, where many tokens fit
_STEPS_TOGETHER = 20_000  # of as many states as are walked at once
_PAIRS_TOGETHER = 1_000_000  # of a state that is walked and one that it may lead to: a byte each


@dataclass(frozen=True, eq=False)
class TokenBudget:
    """What it takes to finish.

    Args:
        needed: (states,) int64, tokens to the end, the stop token counted; NEVER where there is no path.
        exact: whether no vocabulary-wide search could find fewer.
    """

    needed: Ints
    exact: bool


def token_budget(walk: TokenWalk, reached: Reach, meter: WorkMeter, walk_steps: int = WALK_STEPS) -> TokenBudget:
    """Count the tokens to the end.

    Args:
        walk: the automaton and the vocabulary.
        reached: which states can end.
        meter: counts the work of finding the paths; it may give up.
        walk_steps: how much work walking states may take then; the count known by then remains valid.
    """
    accepting = walk.dfa.accepting
    edges = [reached.edges, _along_shortest(walk, reached.single, meter)]
    meter.spend(sum(map(len, edges)) // EDGES)
    needed = _counted(edges, accepting)
    open_states = np.flatnonzero(reached.can_end & (needed > 2))
    rest = open_states[np.argsort(needed[open_states], kind="stable")]
    together, most = 1, max(1, _PAIRS_TOGETHER // len(accepting))
    while len(rest) and walk_steps > 0:
        sources, rest = rest[:together], rest[together:]
        reaches, steps = walk.successors(sources)
        walk_steps -= steps
        which, targets = reaches.nonzero()
        edges.append(np.stack((sources[which], targets), 1))
        together = max(1, min(2 * together, most, _STEPS_TOGETHER * len(sources) // steps))
    return TokenBudget(_counted(edges, accepting), not len(rest))


def _counted(edges: list[Ints], accepting: NDArray[np.bool_]) -> Ints:
    """Tokens to the end on this graph: from the end backwards, one token at a time."""
    every = np.concatenate(edges)
    needed = np.full(len(accepting), NEVER, np.int64)
    needed[accepting] = 1
    sources, targets = every[:, 0], every[:, 1]
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(len(accepting) + 1)).tolist()
    before = sources[order].tolist()
    count = needed.tolist()
    queue = np.flatnonzero(accepting).tolist()
    for state in queue:  # grows meanwhile
        for source in before[starts[state] : starts[state + 1]]:
            if count[source] == NEVER:
                count[source] = count[state] + 1
                queue.append(source)
    return np.array(count)


def _along_shortest(walk: TokenWalk, single: NDArray[np.bool_], meter: WorkMeter) -> Ints:
    """The tokens along one shortest path to the end, for all states from which single bytes lead there."""
    dfa, trie = walk.dfa, walk.tokens.trie
    wanted = single_byte_tokens(walk.tokens)
    usable = classes_with(dfa, wanted)
    distance = distances(dfa, usable, meter)
    ahead = np.where(usable, np.where(dfa.table != 0, distance[dfa.table], -1), -1)
    nearer = ahead == (distance - 1)[:, None]
    nearer[distance < 1] = False
    by = nearer.argmax(1)
    byte_of = np.zeros(dfa.table.shape[1], np.int64)
    letters = np.flatnonzero(wanted)[::-1]
    byte_of[dfa.byte_class[letters]] = letters  # the first of each class
    step, byte = dfa.table[np.arange(dfa.states), by].astype(np.int64), byte_of[by]
    keys = trie.parent[1:] * 256 + trie.byte[1:]  # sorted
    source = np.flatnonzero(single & (distance > 0))
    here, node = source, np.zeros(len(source), np.int64)
    edges = []
    while len(source):
        meter.spend_cells(_SEARCHED * len(source))
        key = node * 256 + byte[here]
        index = np.minimum(np.searchsorted(keys, key), len(keys) - 1)
        hit = keys[index] == key
        source, here, node = source[hit], step[here[hit]], index[hit] + 1
        ends = walk.tokens.has_token[node]
        edges.append(np.stack((source[ends], here[ends]), 1))
        goes_on = distance[here] > 0
        source, here, node = source[goes_on], here[goes_on], node[goes_on]
    return np.concatenate(edges) if edges else np.empty((0, 2), np.int64)
