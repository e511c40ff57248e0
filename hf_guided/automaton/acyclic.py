"""Equivalent states of a table without cycles, in one pass from the end; Moore's rounds would take one per byte.

A bounded string is a chain of thousands of states, and two of its states can only be equivalent if their targets are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def order_from_the_end(table: NDArray[Any]) -> list[int] | None:
    """All states but the dead one, each after all its targets; None if there is a cycle.

    Args:
        table: (states, classes), where each class of bytes leads; state 0 is the dead one.
    """
    sources, classes = np.nonzero(table)
    targets = table[sources, classes].astype(np.int64)
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(len(table) + 1)).tolist()
    before = sources[order].tolist()
    open_edges = np.bincount(sources, minlength=len(table)).tolist()
    ordered = [state for state in range(1, len(table)) if not open_edges[state]]
    for state in ordered:  # grows meanwhile
        for source in before[starts[state] : starts[state + 1]]:
            open_edges[source] -= 1
            if not open_edges[source]:
                ordered.append(source)
    return ordered if len(ordered) == len(table) - 1 else None


def labels_of_acyclic(table: NDArray[Any], labels: Ints, order: list[int]) -> Ints:
    """The coarsest labels, as of ``refine``.

    Args:
        table: see ``refine``.
        labels: see ``refine``.
        order: of its states, from the end.
    """
    number = np.zeros(len(table), np.int64)
    kinds: dict[tuple[int, bytes], int] = {}
    kind_of = labels.tolist()
    for state in order:
        number[state] = 1 + kinds.setdefault((kind_of[state], number[table[state]].tobytes()), len(kinds))
    return number
