"""Compiles a constraint with one engine, judges its documents, and times every mask and every token.

    python -m benchmarks.engine_worker ENGINE     # jobs as JSON lines in, verdicts as JSON lines out

A call's time is the less of wall and CPU time: the first counts what others do on the machine, the second all threads.

The first walk of all documents is timed with a constraint that has just been compiled, so what an engine computes at
the first visit of a state is counted once; the second is timed again; the third compares masks and is not timed.
"""

from __future__ import annotations

import ctypes
import gc
import json
import logging
import os
import sys
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from benchmarks.engine_constraints import EngineCase
from benchmarks.engines import ENGINES, Engine
from benchmarks.processes import JobProcess, Killed, forget_peak, peak_bytes, resident_bytes
from benchmarks.schema_libraries import Refused, Walk
from benchmarks.schema_worker import tokenizing

T = TypeVar("T")


@dataclass
class Verdict:
    """What an engine made of a constraint.

    Args:
        outcome: "compiled", "refused", "crash", "timeout" or "memory".
        reason: why, if not "compiled".
        accepted, others_accepted: for each text.
        compile_ms: until there is a matcher.
        ready_ms: and the first mask.
        cold_us, hot_us: for each document, every mask in the first walk, and in the second.
        made_us: those of the first walk that had to be made, where the engine keeps masks.
        accept_us: every token in the first walk.
        masks: for each document, a checksum of every mask.
        nbytes: as the engine tells.
        grown_bytes: the most memory that the process has held so far, beyond what it had when it was ready.
    """

    outcome: str
    reason: str = ""
    accepted: list[bool] = field(default_factory=list)
    others_accepted: list[bool] = field(default_factory=list)
    compile_ms: float = 0.0
    ready_ms: float = 0.0
    cold_us: list[list[float]] = field(default_factory=list)
    hot_us: list[list[float]] = field(default_factory=list)
    made_us: list[float] = field(default_factory=list)
    accept_us: list[float] = field(default_factory=list)
    masks: list[list[int]] = field(default_factory=list)
    nbytes: int = 0
    grown_bytes: int = 0


def judge(engine: Engine, case: EngineCase, tokenize: Callable[[str], list[int]]) -> Verdict:
    """Compile, and walk every text."""
    documents, others = (list(map(tokenize, texts)) for texts in (case.documents, case.others))
    try:
        walk, compiling = _lasted(time.process_time, lambda: _compiled(engine, case))
    except Refused as refused:
        return Verdict("refused", refused.reasons[0][2])
    _, first = _lasted(time.process_time, walk.fill)
    verdict = Verdict("compiled", compile_ms=compiling * 1e3, ready_ms=(compiling + first) * 1e3)
    verdict.accepted = [_timed(engine, tokens, verdict) for tokens in documents]
    verdict.hot_us = [_timed_again(engine.walk(), tokens) for tokens in documents]
    verdict.nbytes = engine.nbytes
    verdict.masks = [_checksums(engine.walk(), tokens) for tokens in documents]
    verdict.others_accepted = [_accepts(engine.walk(), tokens) for tokens in others]
    return verdict


def _compiled(engine: Engine, case: EngineCase) -> Walk:
    engine.compile(case)
    return engine.walk()


def _lasted(cpu: Callable[[], float], call: Callable[..., T], *args: Any) -> tuple[T, float]:
    """What a call gives, and the seconds it took."""
    cpu_began = cpu()
    began = time.perf_counter()
    found = call(*args)
    wall = time.perf_counter() - began
    return found, min(wall, cpu() - cpu_began)


def _microseconds(call: Callable[..., T], *args: Any) -> tuple[T, float]:
    """As ``_lasted``; of one thread, for which the system's clock is quicker to read."""
    found, seconds = _lasted(time.thread_time, call, *args)
    return found, round(seconds * 1e6, 2)


def _timed(engine: Engine, tokens: list[int], verdict: Verdict) -> bool:
    """Whether the document is accepted."""
    walk = engine.walk()
    times: list[float] = []
    verdict.cold_us.append(times)
    for token_id in tokens:
        made = engine.mask_walks
        times.append(_microseconds(walk.fill)[1])
        if engine.mask_walks > made:
            verdict.made_us.append(times[-1])
        if not walk.allows(token_id):
            return False
        taken, took = _microseconds(walk.accept, token_id)
        verdict.accept_us.append(took)
        if not taken:
            return False
    return walk.is_completed()


def _timed_again(walk: Walk, tokens: list[int]) -> list[float]:
    times = []
    for token_id in tokens:
        times.append(_microseconds(walk.fill)[1])
        if not walk.accept(token_id):
            break
    return times


def _checksums(walk: Walk, tokens: list[int]) -> list[int]:
    sums = []
    for token_id in tokens:
        walk.fill()
        sums.append(zlib.crc32(walk.bitmask.numpy()))
        if not walk.accept(token_id):
            break
    return sums


def _accepts(walk: Walk, tokens: list[int]) -> bool:
    for token_id in tokens:
        walk.fill()
        if not walk.allows(token_id) or not walk.accept(token_id):
            return False
    return walk.is_completed()


class Worker:
    """A process of ``judge`` for one engine.

    Args:
        engine: its name.
        limit_bytes: memory of the process, resident.
    """

    def __init__(self, engine: str, limit_bytes: int = 4 * 2**30):
        self._process = JobProcess(["benchmarks.engine_worker", engine], limit_bytes=limit_bytes)

    def __call__(self, case: EngineCase, limit_s: float) -> Verdict:
        """One constraint, within the limits."""
        try:
            return Verdict(**json.loads(self._process.ask(json.dumps(asdict(case)), limit_s)))
        except Killed as killed:
            return Verdict(killed.outcome, str(killed))

    def stop(self) -> None:
        """End the process."""
        self._process.stop()


_WARM_UP = EngineCase("", "", "regex", "(ab|a[b-f]c){1,5}", ["abab", "aec"], ["b"])


def main() -> None:
    import torch

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    vocabulary, tokenize = tokenizing("tekken")
    engine = ENGINES[sys.argv[1]](vocabulary)
    for _ in range(3):  # first calls import, start threads, build tables
        judge(engine, _WARM_UP, tokenize)
    print("ready", flush=True)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that the imports left free would hide megabytes of the measurement
    before = resident_bytes(os.getpid())
    forget_peak()
    for line in sys.stdin:
        try:
            verdict = judge(engine, EngineCase(**json.loads(line)), tokenize)
        except Exception as error:
            verdict = Verdict("crash", f"{type(error).__name__}: {error}"[:200])
        verdict.grown_bytes = peak_bytes() - before
        print(json.dumps(asdict(verdict)), flush=True)


if __name__ == "__main__":
    main()
