"""Which cells of a matrix of parameters the default run has; the others are marked slow.

An error that needs one value fails in one of the cells that have each value once (`once_each`), and one that needs two
together in one of those that have every pair of values (`pairwise`). Where several tests share a list of values, each
test has other ones of them (`one_in`).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

import pytest

Names = tuple[str, ...]
Pair = tuple[int, str, int, str]


def pairs_of(row: Names) -> list[Pair]:
    """The pairs of values in a row, each value with its column; a value is a pair with itself."""
    return [(i, row[i], j, row[j]) for i, j in itertools.combinations_with_replacement(range(len(row)), 2)]


def values_of(row: Names) -> list[Pair]:
    """Each value of a row with its column, as a pair with itself."""
    return [(i, value, i, value) for i, value in enumerate(row)]


def covering(
    parts_of: Callable[[Names], list[Pair]],
    rows: Sequence[Names],
    keep: Collection[Names] = (),
    cost: Callable[[Names], float] = lambda row: 1.0,
) -> list[Names]:
    """Choose rows so that every part that some row has occurs in a chosen one.

    Greedy and deterministic: the row with the most new parts for its cost comes next, and the first of equals. At the
    end, rows without a part of their own are dropped again.

    Args:
        parts_of: the pairs of a row, or its values.
        rows: all rows, usually a product; the same row twice is an error.
        keep: rows to choose in any case.
        cost: how much a row costs; only ratios count.
    """
    assert len(set(rows)) == len(rows), "a row occurs twice"
    assert set(keep) <= set(rows), f"no such rows: {set(keep) - set(rows)}"
    chosen = list(dict.fromkeys(keep))
    left = {part for row in rows for part in parts_of(row)} - {part for row in chosen for part in parts_of(row)}
    while left:
        best = max(rows, key=lambda row: len(left.intersection(parts_of(row))) / cost(row))
        chosen.append(best)
        left.difference_update(parts_of(best))
    counts = Counter(part for row in chosen for part in parts_of(row))
    for row in sorted(set(chosen) - set(keep), key=lambda row: (-cost(row), rows.index(row))):
        if all(counts[part] > 1 for part in parts_of(row)):
            chosen.remove(row)
            counts.subtract(parts_of(row))
    return [row for row in rows if row in chosen]


def selected(
    parts_of: Callable[[Names], list[Pair]],
    *columns: Iterable[Any],
    keep: Collection[str] = (),
    cost: Callable[[Names], float] = lambda row: 1.0,
    only_slow: Callable[[Names], bool] = lambda row: False,
) -> list[Any]:
    """The product of the columns as parameters; cells without a part of their own are marked slow.

    Args:
        parts_of: the pairs of a cell, or its values.
        columns: the values of each parameter; ``str`` names them in the test's id.
        keep: ids of cells that the default run has in any case.
        cost: how much a cell costs, by the names of its values.
        only_slow: cells that are slow in any case; their parts need not occur in the default run.
    """
    cells = {tuple(map(str, values)): values for values in itertools.product(*columns)}
    kept = [row for row in cells if "-".join(row) in keep]
    assert len(kept) == len(keep), f"no such cells among {keep}"
    chosen = set(covering(parts_of, [row for row in cells if row in kept or not only_slow(row)], kept, cost))
    return [_cell(*values, id="-".join(row), slow=row not in chosen) for row, values in cells.items()]


def _cell(*values: Any, id: str | None = None, slow: bool) -> Any:
    return pytest.param(*values, id=id, marks=[pytest.mark.slow] * slow)


all_pairs, all_values = partial(covering, pairs_of), partial(covering, values_of)
pairwise, once_each = partial(selected, pairs_of), partial(selected, values_of)


def one_in(number: int, values: Iterable[Any], first: int = 0) -> list[Any]:
    """One in so many of the values, from index ``first`` on, as parameters; the others are marked slow."""
    return [_cell(value, slow=i % number != first) for i, value in enumerate(values)]
