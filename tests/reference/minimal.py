"""Minimal automata by Moore's algorithm as it is in books: an oracle for minimize.c, and for what is trimmed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.byte_dfa import NOTHING, ByteDfa
from hf_guided.automaton.limits import EDGES, SORTED, WorkMeter


def trimmed(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """As that of byte_dfa.py."""
    table, accepting, start = productive(table, accepting, start, meter)
    return finished(table, byte_class, accepting, start, meter)


def productive(
    table: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> tuple[NDArray[Any], NDArray[np.bool_], int]:
    """The rows of the dead state and of those that reach the end, which of them end, and the start, 0 if it is dead."""
    live, more = accepting, accepting | accepting[table].any(1)
    while (more != live).any():
        live, more = more, more | more[table].any(1)
    meter.spend(len(table) + np.count_nonzero(table) // EDGES)
    kept = np.flatnonzero(live | (np.arange(len(table)) == 0))
    number = np.zeros(len(table), np.int64)
    number[kept] = np.arange(len(kept))
    return number[table[kept]], accepting[kept], int(number[start])


def finished(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """As that of byte_dfa.py: the states of one kind become the first of them, equal columns the first of those."""
    if not start:
        return NOTHING
    meter.spend_cells((SORTED + 1) * table.size)
    kind = np.where(accepting, 2, 1)
    kind[0] = 0
    kind = numbered([kind])
    while True:  # states of one kind that lead to different kinds are of different ones
        finer = numbered([kind, *kind[table].T])
        if finer.max() == kind.max():
            break
        kind = finer
    _, chosen = np.unique(kind, return_index=True)
    rows = kind[table[chosen]]
    columns = numbered(rows)
    which = columns[byte_class]
    _, kept = np.unique(columns, return_index=True)
    width = np.uint16 if len(rows) <= 1 << 16 else np.uint32
    return ByteDfa(rows[:, kept].astype(width), which.astype(np.uint8), accepting[chosen], int(kind[start]))


def numbered(rows: Any) -> NDArray[np.int64]:
    """(n,) for each column of rows (k, n) a number, equal for equal ones, in the order of the first ones."""
    numbers: dict[bytes, int] = {}
    columns = np.ascontiguousarray(np.array(rows).T)
    return np.array([numbers.setdefault(column.tobytes(), len(numbers)) for column in columns])
