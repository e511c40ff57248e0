"""The selections contain every pair or every value, have few rows, and contain the rows to keep."""

from __future__ import annotations

import itertools
import random

import pytest

from tests.pairs import all_pairs, all_values, once_each, one_in, pairs_of, pairwise


def product(*sizes: int) -> list[tuple[str, ...]]:
    return [tuple(map(str, row)) for row in itertools.product(*map(range, sizes))]


@pytest.mark.parametrize("sizes", [(1,), (3,), (4, 5), (3, 3, 3), (26, 6, 3), (9, 3, 5), (2, 2, 2, 2, 2), (5, 4, 3, 2)])
def test_every_pair_occurs(sizes: tuple[int, ...]) -> None:
    rows = product(*sizes)
    chosen = all_pairs(rows)
    assert {pair for row in chosen for pair in pairs_of(row)} == {pair for row in rows for pair in pairs_of(row)}
    assert set(chosen) <= set(rows) and len(set(chosen)) == len(chosen)
    assert all_pairs(rows) == chosen, "not deterministic"
    largest = sorted(sizes)[-2:]
    assert len(sizes) < 2 or len(chosen) <= 2 * largest[0] * largest[1], (
        "the selection has almost as many rows as the product"
    )


@pytest.mark.parametrize("sizes", [(1,), (4, 5), (26, 6, 3), (2, 2, 2, 2, 2)])
def test_every_value_occurs(sizes: tuple[int, ...]) -> None:
    rows = product(*sizes)
    chosen = all_values(rows)
    for column, size in enumerate(sizes):
        assert {row[column] for row in chosen} == set(map(str, range(size)))
    assert len(chosen) == max(sizes)
    assert all_values(rows, keep=rows[-2:])[-2:] == rows[-2:]


def test_selection_ignores_impossible_pairs_and_avoids_expensive_rows() -> None:
    rng = random.Random(0)
    for _ in range(30):
        rows = product(*(rng.randint(1, 5) for _ in range(rng.randint(2, 4))))
        rows = rng.sample(rows, rng.randint(1, len(rows)))
        keep = rng.sample(rows, min(len(rows), rng.randint(0, 3)))
        chosen = all_pairs(rows, keep, lambda row: 1 + int(row[0]))
        assert {pair for row in chosen for pair in pairs_of(row)} == {pair for row in rows for pair in pairs_of(row)}
        assert set(keep) <= set(chosen)
    cheap = all_pairs(product(4, 4, 3), cost=lambda row: 10.0 if row[2] == "2" else 1.0)
    assert sum(row[2] == "2" for row in cheap) == 4  # one for each value of the other parameters


def test_cells_not_selected_are_marked_slow() -> None:
    cells = pairwise("abc", [1, 2], [True, False], keep=["c-2-True"], only_slow=lambda row: row[0] == "b")
    assert len(cells) == 12
    default = {cell.id for cell in cells if not cell.marks}
    assert "c-2-True" in default and len(default) == 4
    assert not [name for name in default if name.startswith("b")]
    with pytest.raises(AssertionError, match="no such cells"):
        pairwise("ab", keep=["c"])


def test_fewer_cells_have_each_value_once() -> None:
    cells = once_each("abc", [1, 2], [True, False], keep=["c-2-True"], only_slow=lambda row: row[0] == "b")
    assert len(cells) == 12
    assert [cell.id for cell in cells if not cell.marks] == ["a-1-False", "c-2-True"]


def test_one_in_three() -> None:
    chosen = [[cell.values[0] for cell in one_in(3, "abcdefg", first) if not cell.marks] for first in range(3)]
    assert chosen == [["a", "d", "g"], ["b", "e"], ["c", "f"]]
    assert [cell.values[0] for cell in one_in(3, "abcdefg")] == list("abcdefg")
