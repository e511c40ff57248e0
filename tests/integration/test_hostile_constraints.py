"""Every hostile constraint ends within its limits, in success or in the right error.

Each runs in a process of its own, which is measured from outside: its CPU time and its greatest memory, and those of
the processes that it has started (``wait4`` and ``getrusage``).
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from functools import cache
from typing import Any, NoReturn

import psutil
import pytest

import hf_guided as hg
from hf_guided.backends.subprocess_worker import SHARED
from hf_guided.bitmask import allocate_bitmask
from hf_guided.constraints.coerce import coerce
from hf_guided.errors import (
    CompileLimitExceeded,
    HFGuidedError,
    InvalidConstraint,
    UnsupportedConstraint,
)
from hf_guided.options import CompilerOptions
from tests import vocabularies
from tests.integration.hostile_constraints import HOSTILE

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")

CPU_S = 10.0
PARENT_CPU_S = 4.0  # of this process, beside the worker: the constructor, the estimate, an engine made again, one mask
WORKER_CPU_S = 8.0  # that the worker takes for what is not counted: starts, torch for xgrammar, the vocabulary
MOST_BYTES = 1_200_000_000
BARE_BYTES = 600_000_000  # of a process with torch and a guide, before it compiles anything
REFUSALS = InvalidConstraint, UnsupportedConstraint, CompileLimitExceeded
SOME = (
    "five periods",
    "bounds of 4,000 digits",
    "100,000 alternatives",
    "nested counts",
    "minItems of 10**18",
    "contains of contains",
    "a long key over many schemas",
)
assert len(HOSTILE) > 70


@cache
def guide() -> hg.Guide:
    """Made before any fork, with its engines: what they take once is no compile's."""
    tokenizer = vocabularies.demo()
    made = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(cpu_s=CPU_S, tiering=False))
    for constraint, backend in (hg.Regex("a"), "llguidance"), (hg.Regex("a"), "xgrammar"), (hg.Regex("a"), "automaton"):
        made.compile(constraint, backend)
    made.compile({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}})
    return made


def attempt(name: str) -> dict[str, Any]:
    """In the child: make the constraint, compile it, and fill one mask."""
    began, found = time.process_time(), dict[str, Any]()
    try:
        compiled = guide().compile(coerce(HOSTILE[name]()))
        bitmask = allocate_bitmask(1, guide().vocabulary.padded_size)
        compiled.matcher().fill_next_token_bitmask(bitmask)
        found["outcome"] = "compiled"
    except HFGuidedError as error:
        found.update(outcome="refused" if isinstance(error, REFUSALS) else repr(error)[:500], message=str(error))
    SHARED.close()  # so that its process counts
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["cpu_s"] = time.process_time() - began
    found["worker_cpu_s"] = children.ru_utime + children.ru_stime
    found["worker_bytes"] = children.ru_maxrss * 1024
    return found


def run_child(name: str, pipe: int) -> NoReturn:
    """In the child of a fork."""
    signal.alarm(600)  # a test that hangs fails
    try:
        os.write(pipe, json.dumps(attempt(name)).encode())
        os._exit(0)
    except BaseException as error:
        os.write(pipe, repr(error)[:2000].encode())
    os._exit(1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # newer Pythons warn of any fork with threads
@pytest.mark.filterwarnings("ignore:the schema has keywords")
@pytest.mark.parametrize(
    "name", [name if name in SOME else pytest.param(name, marks=pytest.mark.slow) for name in HOSTILE]
)
def test_hostile_constraint_ends_within_its_limits(name: str) -> None:
    guide()
    before = psutil.Process().memory_info().rss  # Linux counts what a process had before the fork, and before exec
    read, write = os.pipe()
    child = os.fork()
    if not child:
        run_child(name, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
    found = json.loads(said)
    assert found["outcome"] in ("compiled", "refused"), found
    assert found.get("message", "x")
    assert len(found.get("message", "")) <= 4000
    assert found["cpu_s"] < PARENT_CPU_S, found
    assert found["worker_cpu_s"] < CPU_S + WORKER_CPU_S, found
    if sys.platform == "linux":
        peak = used.ru_maxrss * 1024
        assert peak - before < MOST_BYTES - BARE_BYTES, (peak, before)
        assert found["worker_bytes"] < MOST_BYTES or found["worker_bytes"] <= peak, found


RULES = "GBNF of 100,000 rules"


@pytest.mark.parametrize(
    ("name", "backend", "options", "message"),
    [
        (
            "five periods",
            "llguidance",
            {},
            r"^llguidance needed more than 1 s of CPU time; .*make the constraint smaller$",
        ),
        (RULES, "xgrammar", {"cpu_s": 0.3}, r"^xgrammar needed more than 0\.(3|29\d) s of CPU time; .* raise .*cpu_s"),
        (
            RULES,
            "xgrammar",
            {"memory_bytes": 2**28},
            r"^xgrammar needed more memory than 256 MiB; .* raise .*memory_bytes",
        ),
    ],
)
def test_message_names_engine_limit_and_next_step(
    name: str, backend: str, options: dict[str, Any], message: str
) -> None:
    tokenizer = vocabularies.demo()
    limited = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(tiering=False, **options))
    with pytest.raises(CompileLimitExceeded, match=message):
        limited.compile(HOSTILE[name](), backend)
