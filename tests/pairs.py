"""All-pairs selection: a few cells of a product of parameters in which every pair of values occurs.

An error that needs one value, or two together, fails in one of these cells. The other cells are marked slow.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import pytest

Names = tuple[str, ...]
Pair = tuple[int, str, int, str]


def pairs_of(row: Names) -> list[Pair]:
    """The pairs of values in a row, each value with its column; a value is a pair with itself."""
    return [(i, row[i], j, row[j]) for i, j in itertools.combinations_with_replacement(range(len(row)), 2)]


def all_pairs(
    rows: Sequence[Names], keep: Collection[Names] = (), cost: Callable[[Names], float] = lambda row: 1.0
) -> list[Names]:
    """Choose rows so that every pair of values that occurs in some row occurs in a chosen one.

    Greedy and deterministic: the row with the most new pairs for its cost comes next, and the first of equals. At the
    end, rows without a pair of their own are dropped again.

    Args:
        rows: all rows, usually a product; the same row twice is an error.
        keep: rows to choose in any case.
        cost: how much a row costs; only ratios count.
    """
    assert len(set(rows)) == len(rows), "a row occurs twice"
    assert set(keep) <= set(rows), f"no such rows: {set(keep) - set(rows)}"
    chosen = list(dict.fromkeys(keep))
    left = {pair for row in rows for pair in pairs_of(row)} - {pair for row in chosen for pair in pairs_of(row)}
    while left:
        best = max(rows, key=lambda row: len(left.intersection(pairs_of(row))) / cost(row))
        chosen.append(best)
        left.difference_update(pairs_of(best))
    counts = Counter(pair for row in chosen for pair in pairs_of(row))
    for row in sorted(set(chosen) - set(keep), key=lambda row: (-cost(row), rows.index(row))):
        if all(counts[pair] > 1 for pair in pairs_of(row)):
            chosen.remove(row)
            counts.subtract(pairs_of(row))
    return [row for row in rows if row in chosen]


def pairwise(
    *columns: Iterable[Any],
    keep: Collection[str] = (),
    cost: Callable[[Names], float] = lambda row: 1.0,
    only_slow: Callable[[Names], bool] = lambda row: False,
) -> list[Any]:
    """The product of the columns as parameters; cells that the pairs do not need are marked slow.

    Args:
        columns: the values of each parameter; ``str`` names them in the test's id.
        keep: ids of cells that the default run has in any case.
        cost: how much a cell costs, by the names of its values.
        only_slow: cells that are slow in any case; their pairs need not occur in the default run.
    """
    cells = {tuple(map(str, values)): values for values in itertools.product(*columns)}
    kept = [row for row in cells if "-".join(row) in keep]
    assert len(kept) == len(keep), f"no such cells among {keep}"
    chosen = set(all_pairs([row for row in cells if row in kept or not only_slow(row)], kept, cost))
    return [
        pytest.param(*values, id="-".join(row), marks=[] if row in chosen else [pytest.mark.slow])
        for row, values in cells.items()
    ]
