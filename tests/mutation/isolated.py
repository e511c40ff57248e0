"""Runs pytest on a copy of the repository, in a child process for each run.

Importing torch and transformers takes longer than most tests. So this process imports, once, all other people's modules
that the tests need, and forks a child for each run; the child imports ``hf_guided`` and the tests from the copy. A fork
copies only the thread that calls it, and a lock that another thread holds stays locked: before each fork, this process
must have one thread. Hence OMP_NUM_THREADS=1, and children, not this process, run the tests.
"""

from __future__ import annotations

import compileall
import contextlib
import importlib
import json
import os
import py_compile
import re
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from . import durations

OURS = ("hf_guided", "tests")
_WITH_THREADS = ("pandas", "pyarrow", "datasets")  # pyarrow starts one when it is imported
_NOT_COPIED = shutil.ignore_patterns(".*", "__pycache__", "_build")
_CHILD_RAISED = 70
_NOTHING_RAN = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED, _CHILD_RAISED)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.*?)(?: - .*)?$", re.MULTILINE)


class Run(NamedTuple):
    """How a run of pytest ended.

    Args:
        outcome: "survived" (all tests passed), "failed", "crashed" (by a signal) or "timeout".
        test: the first test that failed; or the file that could not be imported.
        output: of pytest, with the stacks of all threads after a timeout.
        seconds: how long it took.
    """

    outcome: str
    test: str
    output: str
    seconds: float


class IsolatedTree:
    """A copy of the repository in which files may be changed.

    Args:
        root: of the repository.
        folder: an empty folder for the copy and for the output of the runs.
    """

    def __init__(self, root: Path, folder: Path):
        self._root, self._tree, self._log = root, folder / "tree", folder / "log"
        shutil.copytree(root, self._tree, ignore=_NOT_COPIED)
        # Compiled once; the hash of the source decides whether that is used, since a mutant may have the size and time
        # of the original.
        checked = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self._tree / "hf_guided", quiet=1, invalidation_mode=checked)

    def preload(self, tests: Sequence[str]) -> None:
        """Import what other people's modules these tests import."""
        names = self._tree.parent / "modules.json"

        def list_modules() -> int:
            files = {test.partition("::")[0] for test in tests}
            status = self._pytest("--collect-only", *sorted(files))
            names.write_text(json.dumps(list(sys.modules)), "utf-8")
            return status

        run = self._fork(list_modules, limit=600.0)
        if run.outcome != "survived":
            raise RuntimeError(f"the tests cannot be collected:\n{run.output}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name in json.loads(names.read_text("utf-8")):
                if name.split(".")[0] not in (*OURS, *_WITH_THREADS) and name not in sys.modules:
                    with contextlib.suppress(Exception):  # then the child imports it
                        importlib.import_module(name)

    @contextlib.contextmanager
    def changed(self, file: str, source: str) -> Iterator[None]:
        """With another content of this file."""
        path = self._tree / file
        original = path.read_text("utf-8")
        path.write_text(source, "utf-8")
        try:
            yield
        finally:
            path.write_text(original, "utf-8")

    def passing(self, tests: Sequence[str]) -> dict[str, float]:
        """The tests that pass on the unchanged copy, and the seconds that each takes."""
        self._fork(lambda: self._pytest("-p", durations.__name__, *self._in_order(tests)), limit=3600.0)
        seconds: dict[str, float] = json.loads((self._tree / durations.FILE).read_text("utf-8"))
        return seconds

    def run(self, tests: Sequence[str], limit: float) -> Run:
        """Run these tests in their order, until one fails or the limit, in seconds, is over."""
        return self._fork(lambda: self._pytest("-x", *self._in_order(tests)), limit)

    def _in_order(self, tests: Sequence[str]) -> list[str]:
        arguments = self._tree.parent / "arguments"
        arguments.write_text("\n".join(tests), "utf-8")  # more than fit into a command line
        return [f"@{arguments}"]

    def _pytest(self, *arguments: str) -> int:
        # Plugins were imported before.
        ignored = "ignore::pytest.PytestAssertRewriteWarning"
        profile = "--hypothesis-profile=mutants"  # the first failing example will do
        return int(pytest.main(["-p", "no:cacheprovider", profile, "-W", ignored, *arguments]))

    def _fork(self, task: Callable[[], int], limit: float) -> Run:
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise RuntimeError(f"{threads} threads run before a fork: a lock that one of them holds would stay locked")
        start = time.monotonic()
        child = os.fork()
        if child == 0:
            self._be_child(task)
        status = _wait(child, start + limit)
        if status is None:
            os.kill(child, signal.SIGABRT)  # faulthandler, which pytest enables, writes the stacks
            aborted = _wait(child, time.monotonic() + 5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and what it started
        if status is None and aborted is None:
            os.waitpid(child, 0)
        output = self._log.read_text("utf-8", errors="replace")
        failed = _FAILED.search(output)
        imports_fail = "while loading conftest" in output or "ERROR collecting" in output  # those of the mutant
        if status in _NOTHING_RAN and not imports_fail:
            raise RuntimeError(f"pytest could not run the tests:\n{output}")
        outcome = "timeout" if status is None else "crashed" if status < 0 else "failed" if status else "survived"
        return Run(outcome, failed[1] if failed else "", output, time.monotonic() - start)

    def _be_child(self, task: Callable[[], int]) -> NoReturn:
        status = _CHILD_RAISED
        try:
            os.setsid()
            os.chdir(self._tree)
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.environ["PYTHONPATH"] = os.pathsep.join([str(self._tree), os.environ.get("PYTHONPATH", "")])
            sys.path[:] = [str(self._tree), *(path for path in sys.path if Path(path or ".").resolve() != self._root)]
            for name in [name for name in sys.modules if name.split(".")[0] in OURS]:
                del sys.modules[name]
            sys.dont_write_bytecode = True
            status = task()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _wait(child: int, until: float) -> int | None:
    """The exit status of a child, negative after a signal; None if it still runs at that time."""
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    return None
