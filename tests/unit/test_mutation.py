"""The mutation tool: the code that it changes, and the code that it does not change."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = '''"""A docstring with 3 words."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections import deque

Rows = list[int]
SIZE = 4


def first(rows: list[int], *, most: int = 2) -> None:
    """Another one."""
    assert len(rows) < 10
    if not rows:
        raise ValueError(f"{1 + 1} rows of 3")
    warnings.warn("more than 7 rows", stacklevel=2)
    rows.append(max(rows, default=0))
    kind = "greedy"
    for row, _ in zip(rows, rows, strict=True):
        if row == most and kind == "greedy":
            return
'''
EXPECTED = {
    ("SIZE = 4", "SIZE = 5"),
    ("def first(rows: list[int], *, most: int = 2) -> None:", "def first(rows: list[int], *, most: int = 3) -> None:"),
    ('warnings.warn("more than 7 rows", stacklevel=2)', "pass"),
    ("if not rows:", "if rows:"),
    ("if not rows:", "if True:"),
    ("if not rows:", "if False:"),
    ("rows.append(max(rows, default=0))", "pass"),
    ("rows.append(max(rows, default=0))", "rows.append(max(rows, default=1))"),
    ("rows.append(max(rows, default=0))", "rows.append(max(rows, ))"),
    ('kind = "greedy"', 'kind = "XXgreedyXX"'),
    ('if row == most and kind == "greedy":', 'if row != most and kind == "greedy":'),
    ('if row == most and kind == "greedy":', 'if row == most or kind == "greedy":'),
    ('if row == most and kind == "greedy":', 'if row == most and kind != "greedy":'),
    ('if row == most and kind == "greedy":', 'if row == most and kind == "XXgreedyXX":'),
    ('if row == most and kind == "greedy":', "if True:"),
    ('if row == most and kind == "greedy":', "if False:"),
}


def test_mutants_of_a_file(tmp_path: Path) -> None:
    pytest.importorskip("mutmut", reason="the extra dev, which makes mutants, is not installed")
    from tests.mutation.mutants import changes

    (tmp_path / "first.py").write_text(SOURCE, "utf-8")
    mutants = [change.mutant() for change in changes("first.py", tmp_path)]
    changed = {(mutant.old, mutant.new) for mutant in mutants if mutant is not None}
    assert changed == EXPECTED
    for mutant in mutants:
        assert mutant is not None
        lines = mutant.source.splitlines()
        assert lines[mutant.line - 1].strip() == mutant.new
        lines[mutant.line - 1] = SOURCE.splitlines()[mutant.line - 1]
        assert lines == SOURCE.splitlines(), "the mutant changes another line"
