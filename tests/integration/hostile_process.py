"""Hostile constraints, each in a fork of this process: ``python -m tests.integration.hostile_process 10``.

Its argument is the CPU time of a compile, in seconds. It reads names, a line each, and answers each with a line of
JSON. A fork counts the memory of the process that it comes from as its own, so they do not come from that of the tests,
which is as large as what ran in it before.
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

from hf_guided.backends.subprocess_worker import SHARED

import hf_guided as hg
from hf_guided.bitmask import allocate_bitmask
from hf_guided.constraints.coerce import coerce
from hf_guided.errors import CompileLimitExceeded, HFGuidedError, InvalidConstraint, UnsupportedConstraint
from hf_guided.options import CompilerOptions
from tests import vocabularies
from tests.integration.hostile_constraints import HOSTILE

REFUSALS = InvalidConstraint, UnsupportedConstraint, CompileLimitExceeded


@cache
def guide() -> hg.Guide:
    """Made before any fork, with its engines: what they take once is no compile's."""
    tokenizer = vocabularies.demo()
    made = hg.Guide(tokenizer, len(tokenizer), options=CompilerOptions(cpu_s=float(sys.argv[1])))
    for constraint, backend in (hg.Regex("a"), "llguidance"), (hg.Regex("a"), "xgrammar"), (hg.Regex("a"), "native"):
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


def measured(name: str) -> dict[str, Any]:
    """What became of a constraint, and what its process used."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        run_child(name, write)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status):
        return {"outcome": f"exit status {os.waitstatus_to_exitcode(status)}: {said!r}"}
    return {**json.loads(said), "bytes": used.ru_maxrss * 1024}


def main() -> None:
    guide()
    for line in sys.stdin:
        print(json.dumps(measured(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
