"""The removals are up to date; making them takes minutes, and is left to ``python -m tests.removals``."""

from __future__ import annotations

import pytest

from tests.removals import REMOVALS, ROOT, Removal


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda removal: removal.name)
def test_what_a_removal_takes_away_stands_there_once(removal: Removal) -> None:
    assert (ROOT / "hf_guided" / removal.file).read_text(encoding="utf-8").count(removal.old) == 1
    file, _, test = removal.test.partition("::")
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not test or f"def {test.partition('[')[0]}(" in text
