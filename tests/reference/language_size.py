"""How many strings an automaton accepts, which tells whether it has too many."""

from __future__ import annotations

import numpy as np

from hf_guided.automaton.byte_dfa import ByteDfa


def language_size(dfa: ByteDfa) -> int | None:
    """How many strings the language has; None if there are infinitely many."""
    if not dfa.start:
        return 0
    sources, classes = np.nonzero(dfa.table)
    targets = dfa.table[sources, classes].astype(np.int64)
    class_sizes = np.bincount(dfa.byte_class, minlength=dfa.table.shape[1])
    starts = np.searchsorted(sources, np.arange(dfa.states + 1)).tolist()
    nexts, byte_counts = targets.tolist(), class_sizes[classes].tolist()
    open_edges = np.bincount(targets, minlength=dfa.states).tolist()
    # Topological order, begun at the one state that nothing leads to; a cycle leaves some state out.
    counts: list[int] = [0] * dfa.states  # byte strings that lead to the state
    counts[dfa.start] = 1
    ready, seen = ([] if open_edges[dfa.start] else [dfa.start]), 0
    while ready:
        state = ready.pop()
        seen += 1
        for i in range(starts[state], starts[state + 1]):
            target = nexts[i]
            counts[target] += counts[state] * byte_counts[i]
            open_edges[target] -= 1
            if not open_edges[target]:
                ready.append(target)
    if seen < dfa.states - 1:
        return None
    return sum(count for count, ends in zip(counts, dfa.accepting.tolist(), strict=True) if ends)
