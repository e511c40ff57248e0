"""Every hostile constraint ends within its limits, in success or in the right error.

Each runs in a process of its own, which is measured from outside: its CPU time and its greatest memory, and those of
the processes that it has started (``wait4`` and ``getrusage``).
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

import hf_guided as hg
from hf_guided.errors import MAX_MESSAGE, CompileLimitExceeded
from hf_guided.options import CompilerOptions
from tests import effort, vocabularies
from tests.integration.hostile_constraints import HOSTILE

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

CPU_S = 10.0 if effort.everything else 3.0
PARENT_CPU_S = 4.0  # of this process, beside the worker: the constructor, the estimate, an engine made again, one mask
WORKER_CPU_S = 8.0  # that the worker takes for what is not counted: starts, torch for xgrammar, the vocabulary
MOST_BYTES = 1_200_000_000
SOME = (
    "bounds of 4,000 digits",
    "100,000 alternatives",
    "nested counts",
    "minItems of 10**18",
    "contains of contains",
    "a long key over many schemas",
)
assert len(HOSTILE) > 70


@pytest.fixture(scope="module")
def ask() -> Iterator[Callable[[str], dict[str, Any]]]:
    """The answers of hostile_process.py."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.integration.hostile_process", str(CPU_S)]
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
    assert found["cpu_s"] < PARENT_CPU_S, found
    assert found["worker_cpu_s"] < CPU_S + WORKER_CPU_S, found
    if sys.platform == "linux":
        assert found["bytes"] < MOST_BYTES, found
        assert found["worker_bytes"] < MOST_BYTES, found


RULES = "GBNF of 100,000 rules"


@pytest.mark.parametrize(
    ("name", "backend", "options", "message"),
    [
        pytest.param(
            "five periods",
            "llguidance",
            {},
            r"^llguidance needed more than 1 s of CPU time; .*make the constraint smaller$",
            marks=pytest.mark.slow,
        ),
        (RULES, "xgrammar", {"cpu_s": 0.3}, r"^xgrammar needed more than 0\.(3|29\d) s of CPU time; .* raise .*cpu_s"),
        pytest.param(
            RULES,
            "xgrammar",
            {"memory_bytes": 2**28},
            r"^xgrammar needed more memory than 256 MiB; .* raise .*memory_bytes",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_message_names_engine_limit_and_next_step(
    name: str, backend: str, options: dict[str, Any], message: str
) -> None:
    tokenizer = vocabularies.demo()
    limited = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(**options))
    with pytest.raises(CompileLimitExceeded, match=message):
        limited.compile(HOSTILE[name](), backend)
