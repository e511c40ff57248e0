"""The list of removals is current. Applying them takes minutes, and is done by ``python -m tests.removals``."""

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
    test_exists = not test or f"def {test.partition('[')[0]}(" in read(ROOT / file, "utf-8")
    return test_exists and read(ROOT / "hf_guided" / removal.file, "utf-8").count(removal.old) == 1


def test_every_removal_applies_exactly_once() -> None:
    assert not [removal.name for removal in REMOVALS if not is_up_to_date(removal)]


@pytest.mark.slow
def test_default_run_contains_every_test_named_by_a_removal() -> None:
    """So ``make test`` detects every removal."""
    named = {removal.test for removal in REMOVALS}
    files = sorted({test.partition("::")[0] for test in named})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        *files,
    ]  # the settings contain -q, which lists the tests
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    collected = done.stdout.splitlines()
    assert not [
        name
        for name in named
        if not any(test == name or test.startswith((f"{name}[", f"{name}::")) for test in collected)
    ]
