"""SECURITY.md names the tests that hold each line of its table; they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_that_the_table_names_are_there() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    files = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    named = re.findall(r"`(test_[a-z_]+\.py)(?:::(test_[a-z0-9_]+))?`|`(test_[a-z0-9_]+)`", text)
    assert len(named) > 20
    last = ""
    for file, test, other in named:
        last = file or last
        assert last in files, last
        assert f"def {test or other or 'test_'}" in files[last], (last, test or other)
