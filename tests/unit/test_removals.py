"""The removals are up to date; making them takes minutes, and is left to ``python -m tests.removals``."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.removals import REMOVALS, ROOT, Removal

read = cache(Path.read_text)


def is_up_to_date(removal: Removal) -> bool:
    file, _, test = removal.test.partition("::")
    named = not test or f"def {test.partition('[')[0]}(" in read(ROOT / file, "utf-8")
    return named and read(ROOT / "hf_guided" / removal.file, "utf-8").count(removal.old) == 1


def test_what_a_removal_takes_away_stands_there_once() -> None:
    assert not [removal.name for removal in REMOVALS if not is_up_to_date(removal)]


@pytest.mark.slow
def test_the_default_run_has_every_test_that_a_removal_names() -> None:
    """So that ``make test`` alone catches each of them."""
    named = {removal.test for removal in REMOVALS}
    files = sorted({one.partition("::")[0] for one in named})
    command = [sys.executable, "-m", "pytest", "--collect-only", *files]  # the settings say -q, which lists them
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    found = done.stdout.splitlines()
    assert not [
        one for one in named if not any(test == one or test.startswith((f"{one}[", f"{one}::")) for test in found)
    ]
