"""The interpreter exits while background compiles run: they give up, and the process exits normally.

A daemon thread inside numpy's C++ code would abort the process at exit. Each test runs a separate process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# The compiles take several seconds in total, far longer than an exit, which waits for them without a limit.
SCRIPT = """
import atexit, sys, threading

ended = []
# Registered before the package is imported, so it runs after the package's own handler.
atexit.register(lambda: print([str(job.exception()) for job in ended if job.done() and job.exception()], flush=True))

import pydantic
import hf_guided as hg
from hf_guided.backends import compile as service
from tests.vocabularies import tiny_byte_level

started = threading.Event()
run = service.Pool.submit
def submit(pool, job):
    run(pool, lambda: (started.set(), job()))
service.Pool.submit = submit
service._PATIENCE_S = 600.0
tokenizer = tiny_byte_level()
guide = hg.Guide(len(tokenizer), tokenizer)
constraints = [
    pydantic.create_model("Links", **{f"link{i}": (pydantic.HttpUrl, ...) for i in range(6)}),
    *(hg.Regex("(?:a|b)*a(?:a|b){%d}" % n) for n in (14, 13, 12)),
]
constraints = constraints[int(sys.argv[1]) :]
ended += [guide.submit(constraint, backend="native") for constraint in constraints]
assert started.wait(600)
"""


def exit_while_compiling(first: int) -> None:
    """Submit all constraints from index ``first``, and exit as soon as one is being compiled."""
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


def test_compiles_give_up_when_the_interpreter_exits() -> None:
    exit_while_compiling(0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 1, 1])
def test_exit_while_compiling_repeatedly(first: int) -> None:
    exit_while_compiling(first)
