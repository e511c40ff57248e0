"""The interpreter ends while compiles work in the background: they give up, and the process ends as it would without.

A daemon thread that the end of the interpreter meets inside of numpy's C++ aborts the whole process. Each test is a
process of its own, as the end is there only once.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# Compiles for several seconds in all, far longer than a process takes to end, which waits for them without a limit.
SCRIPT = """
import atexit, sys, threading

ended = []
# Registered before the package is imported, so it runs after the package's own handler.
atexit.register(lambda: print([str(one.exception()) for one in ended if one.done() and one.exception()], flush=True))

import pydantic
import hf_guided as hg
from hf_guided.backends import compile_pool
from tests.vocabularies import tiny_byte_level

begun = threading.Event()
run = compile_pool.Pool.submit
def submit(pool, job):
    run(pool, lambda: (begun.set(), job()))
compile_pool.Pool.submit = submit
compile_pool._PATIENCE_S = 600.0
tokenizer = tiny_byte_level()
guide = hg.Guide(tokenizer, len(tokenizer))
constraints = [
    pydantic.create_model("Links", **{f"link{i}": (pydantic.HttpUrl, ...) for i in range(6)}),
    *(hg.Regex("(?:a|b)*a(?:a|b){%d}" % n) for n in (14, 13, 12)),
]
constraints = constraints[int(sys.argv[1]) :]
ended += [guide.submit(one, backend="automaton") for one in constraints]
assert begun.wait(600)
"""


def end_while_compiling(first: int) -> None:
    """Submit all constraints but the first few, and end when one is being compiled."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(first)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "the interpreter ends" in done.stdout


def test_a_type_and_large_patterns_give_up() -> None:
    end_while_compiling(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1, 1])
def test_again_and_again(first: int) -> None:
    end_while_compiling(first)
