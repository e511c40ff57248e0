"""Every hostile constraint ends within its limits, in success or in the right error.

Each runs in a process of its own, which measures its CPU time and its greatest memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_guided.errors import MAX_MESSAGE
from tests.integration.hostile_constraints import HOSTILE

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

CPU_S = 3.0  # two seconds, on a busy machine
MOST_BYTES = 280_000_000
SOME = (
    "bounds of 4,000 digits",
    "100,000 alternatives",
    "nested counts",
    "minItems of 10**18",
    "contains of contains",
    "a long key over many schemas",
    "five periods",
    "an enum of 38,000 texts",
    "Lark, intersections",
    "Lark, one long step",
)
SERVED = ("an enum of 38,000 texts", "a Literal of 50,000 texts", "600 tools", "60 ifs inside each other")
assert len(HOSTILE) > 70


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str], dict[str, Any]]]:
    """The answers of hostile_process.py."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.integration.hostile_process"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def answer(name: str) -> dict[str, Any]:
            stdin.write(f"{name}\n")
            stdin.flush()
            return dict(json.loads(stdout.readline()))

        yield answer
        stdin.close()


@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE]
)
def test_hostile_constraint_ends_within_its_limits(name: str, ask: Callable[[str], dict[str, Any]]) -> None:
    found = ask(name)
    assert found["outcome"] in ("compiled", "refused"), found
    assert found.get("message", "x")
    assert len(found.get("message", "")) <= MAX_MESSAGE
    assert found["cpu_s"] < CPU_S, found
    assert found["bytes"] < MOST_BYTES, found
    if name in SERVED:
        assert found["outcome"] == "compiled", found
