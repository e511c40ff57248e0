"""Hostile constraints, each in a fork of this process: ``python -m tests.integration.hostile_process``.

It reads names, a line each, and answers each with a line of JSON. A fork has the memory of the process that it comes
from; what it comes to need beside that is measured.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import hf_guided as hg
from hf_guided.constraints.coerce import coerce
from hf_guided.errors import CompileLimitExceeded, HFGuidedError, InvalidConstraint, UnsupportedConstraint
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import vocabularies
from tests.integration.hostile_constraints import HOSTILE

REFUSALS = InvalidConstraint, UnsupportedConstraint, CompileLimitExceeded


@cache
def guide() -> hg.Guide:
    """Made before any fork, with its engines: what they take once is no compile's."""
    tokenizer = vocabularies.demo()
    made = hg.Guide(len(tokenizer), tokenizer)
    for constraint, backend in (hg.Regex("a"), "llguidance"), (hg.Regex("a"), "xgrammar"), (hg.Regex("a"), "native"):
        made.compile(constraint, backend)
    made.compile({"type": "object", "properties": {"a": {"type": "string", "pattern": "^a"}}})
    return made


def attempt(name: str) -> dict[str, Any]:
    """In the child: make the constraint, compile it, and fill one mask."""
    found = dict[str, Any]()
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as refs:
        refs.write("5")  # the greatest memory is measured from now on
    began, before = time.process_time(), memory("VmRSS")
    try:
        made = HOSTILE[name]()
        began, before = time.process_time(), memory("VmRSS")  # to make it is the caller's work
        compiled = guide().compile(coerce(made))
        bitmask = allocate_bitmask(1, guide().vocabulary.padded_size)
        compiled.matcher().fill_next_token_bitmask(bitmask)
        found["outcome"] = "compiled"
    except HFGuidedError as error:
        found.update(outcome="refused" if isinstance(error, REFUSALS) else repr(error)[:500], message=str(error))
    found["cpu_s"] = time.process_time() - began
    found["bytes"] = memory("VmHWM") - before
    return found


def memory(name: str) -> int:
    """Bytes of memory of this process, by a name of Linux; elsewhere 0."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


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
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        return {"outcome": f"exit status {os.waitstatus_to_exitcode(status)}: {said!r}"}
    return dict(json.loads(said))


def main() -> None:
    guide()
    for line in sys.stdin:
        print(json.dumps(measured(line.rstrip("\n"))), flush=True)


if __name__ == "__main__":
    main()
