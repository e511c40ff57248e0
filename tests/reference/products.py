"""Products of automata in numpy, a batch of pairs at a time: an oracle for product.c, also for its count of work."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton import products
from hf_guided.automaton.byte_dfa import NOTHING, ByteDfa
from hf_guided.automaton.limits import EDGES, SORTED, WorkMeter
from tests.reference.minimal import trimmed

_KINDS = {
    products.intersection: (np.logical_and, (True, True)),
    products.difference: (lambda ours, theirs: ours & ~theirs, (True, False)),
}


def product(kind: Any, first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What ``kind``, one of two functions of products.py, makes of two automata."""
    combine, needs = _KINDS[kind]
    if (needs[0] and not first.start) or (needs[1] and not second.start) or not (first.start or second.start):
        return NOTHING
    both = first.byte_class.astype(np.int64) * 256 + second.byte_class
    codes, byte_class = np.unique(both, return_inverse=True)
    batch = max(1, products._CELLS_AT_ONCE // len(codes))
    table, pairs = _pairs(first, second, (codes // 256, codes % 256), needs, batch, meter)
    accepting = combine(first.accepting[pairs // second.states], second.accepting[pairs % second.states])
    return trimmed(table, byte_class.reshape(-1), accepting, min(1, len(pairs) - 1), meter)


def _pairs(
    first: ByteDfa,
    second: ByteDfa,
    classes: tuple[NDArray[np.int64], NDArray[np.int64]],
    needs: tuple[bool, bool],
    batch: int,
    meter: WorkMeter,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    width, (ours_by, theirs_by) = second.states, classes
    start = first.start * width + second.start
    ours, theirs = first.table.astype(np.int64)[:, ours_by], second.table.astype(np.int64)[:, theirs_by]
    numbers = {0: 0} | ({start: 1} if start else {})
    rows: list[NDArray[np.int64]] = [np.zeros((1, len(ours_by)), np.int64)]
    reached = [*numbers]
    done = 1
    while done < len(reached):
        part = np.array(reached[done : done + batch])
        done += len(part)
        one, other = ours[part // width], theirs[part % width]
        row = one * width + other
        if needs[0]:
            row[one == 0] = 0
        if needs[1]:
            row[other == 0] = 0
        rows.append(row)
        distinct = np.unique(row).tolist()
        meter.spend_cells(SORTED * row.size)
        meter.spend(len(distinct) // EDGES)
        for pair in distinct:
            if pair not in numbers:
                numbers[pair] = len(numbers)
                reached.append(pair)
        meter.check_states(len(numbers))
    keys = np.array(reached)
    order = np.argsort(keys)
    table = order[np.searchsorted(keys[order], np.concatenate(rows))]
    return table, keys
