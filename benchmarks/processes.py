"""Child processes: one that takes jobs as lines of JSON, and may be killed; and the loop of such a process."""

from __future__ import annotations

import json
import logging
import select
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from subprocess import PIPE
from typing import Any

import psutil

from benchmarks.common import ROOT

STARTING = 180.0  # seconds for the imports of a process
LOOKING = 0.2  # seconds between two looks at its memory
READY = "ready"


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 if it has ended."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


class Killed(Exception):
    """A job went too far, and its process was ended: "crash", "timeout" or "memory"."""

    def __init__(self, outcome: str, returncode: int | None):
        self.outcome, self.returncode = outcome, returncode
        super().__init__(f"{outcome}: process ended with {returncode}")


class JobProcess:
    """A process of ``python -m COMMAND``, whose module calls ``serve``; it is started at the first job, and again after
    one that went beyond the limits: seconds for one job, and resident bytes.
    """

    def __init__(
        self,
        command: Sequence[str],
        limit_s: float = 20.0,
        limit_bytes: int = 4 * 2**30,
        python: str | None = None,
    ):
        self._command = [python or sys.executable, "-m", *command]
        self._limit_s, self._limit_bytes = limit_s, limit_bytes
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, job: Any) -> Any:
        """The answer to one job, as JSON; raises Killed if the job went beyond a limit, or the process died."""
        if self._process is None:
            # Its own stderr is of no interest: engines print there what they also say in their errors.
            self._process = subprocess.Popen(
                self._command, stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL, cwd=ROOT
            )
            if self._line(STARTING, inf).strip() != READY:
                self.stop()
                raise SystemExit(f"could not be started: {' '.join(self._command)}")
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has died since: its end is read below
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        answer = self._line(self._limit_s, self._limit_bytes)
        if not answer.endswith("\n"):
            process = self._process
            self.stop()
            raise Killed(answer, process.returncode)
        return json.loads(answer)

    def _line(self, limit_s: float, limit_bytes: float) -> str:
        """The next line of the process; "timeout", "memory" or "crash" where none comes."""
        process = self._process
        assert process is not None and process.stdout is not None
        ends = time.monotonic() + limit_s
        while not select.select([process.stdout], [], [], LOOKING)[0]:
            if time.monotonic() > ends:
                return "timeout"
            if resident_bytes(process.pid) > limit_bytes:
                return "memory"
        line = process.stdout.readline().decode()
        return line if line.endswith("\n") else "crash"

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):  # a job that it has not read
                self._process.communicate()
            self._process = None


def quiet() -> None:
    """Use one thread, and turn off warnings and logs: for a process whose output is read."""
    import torch
    import transformers

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)


def serve(answer: Callable[[Any], Any]) -> None:
    """Answer jobs until the input ends; what libraries print goes to stderr."""
    answers, sys.stdout = sys.stdout, sys.stderr
    print(READY, file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=answers, flush=True)
