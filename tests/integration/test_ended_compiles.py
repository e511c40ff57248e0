"""A compile whose interpreter ends or forks: an error or a value, and never a hang."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Each takes seconds, in native code.
LONG = {
    "native": 'hg.Regex("(((((a{1,50}){1,50}){1,50}b?){1,50}c){1,50}d){1,50}")',
    "outlines": 'hg.Regex("(?:a|b)*a(?:a|b){16}")',
    "xgrammar": 'hg.Regex("([a-z]{1,900}x){3}")',
    "llguidance": 'hg.Regex("a?" * 9000)',
}
BEGIN = """
import atexit, os, sys, threading, time
ended = []
atexit.register(lambda: print(time.monotonic() - max(began + ended), flush=True))  # runs last
import hf_guided as hg
from hf_guided.backends.adapter import Adapter
from tests import vocabularies
guide = hg.Guide(len(vocabularies.demo()), vocabularies.demo())
long = {long}
for backend in long:
    assert guide.compile(["yes", "no"], backend)
begun = threading.Event()
compile = Adapter.compile
Adapter.compile = lambda *a: (begun.set(), compile(*a))[1]
jobs = [guide.submit(constraint, backend) for backend, constraint in long.items()]
for job in jobs:
    job.add_done_callback(lambda job: ended.append(time.monotonic()))
begun.wait()
"""


TOGETHER_AND_ALONE = pytest.mark.parametrize("names", [[*LONG], *([name] for name in LONG)], ids=["all", *LONG])


def run(code: str, names: Sequence[str]) -> str:
    """The last line that the code prints in a process where these engines compile."""
    long = ", ".join(f"{name!r}: {LONG[name]}" for name in names)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BEGIN.replace("{long}", f"{{{long}}}") + code],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.slow  # tests/unit/test_shutdown.py has one in the default run
@TOGETHER_AND_ALONE
def test_the_interpreter_ends_during_a_compile(names: Sequence[str]) -> None:
    """Our part of the end, from the first handler or the last compile's end to the last handler, takes a second.

    The rest is that of torch. Engines that cannot give up are waited for: a thread that returned from them after the
    end would crash the process.
    """
    seconds = run("began = []\natexit.register(lambda: began.append(time.monotonic()))  # runs first", names)
    assert float(seconds) < 3, "one second, on a busy machine"


@pytest.mark.slow  # tests/unit has a fork of each part
@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@TOGETHER_AND_ALONE
def test_a_fork_during_a_compile(names: Sequence[str]) -> None:
    """The child has no compile of its own that runs, and can compile; the parent is not disturbed."""
    code = """
began = [time.monotonic()]
child = os.fork()
if not child:
    good = [not guide.compile(hg.Regex("[ab]{3}"), backend).matcher().is_completed() for backend in long]
    os._exit(0 if all(good) else 1)
_, status = os.waitpid(child, 0)
print(status)
sys.stdout.flush()
os._exit(status)
"""
    assert run(code, names) == "0"
