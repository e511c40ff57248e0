"""Does hf_guided hold for half an hour of everything at once?

    python -m benchmarks.soak [--minutes 30] [--outputs 100000] [--threads 8] [--seed 0]

Threads generate with tiny hot models: generate() with a processor, the fast loop, hg.generate, streams, continuous
batching, and two servers (soak_ways.py), with constraints from a pool that is larger than every cache
(soak_cases.py). ``json`` + ``jsonschema``, ``re`` and ``regex`` judge every output. The first round takes half of the
time; the second one runs the same jobs again. After each round memory, threads, descriptors and caches are read.
Prints the figures, and ends with status 1 if a bar fails.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from random import Random
from typing import Any

import psutil
from transformers.utils import logging

from benchmarks.common import finish, markdown_table, parser, table_of
from benchmarks.soak_cases import verdict
from benchmarks.soak_ways import COMPILED, WAYS, Ways, ways
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.backends import frame_engine
from hf_guided.backends.cache import CompiledCache

COMPILED_NAME = "bytes of compiled constraints"
_ONE_MASK = 2**16  # bytes at most, of half a million tokens
QUIET_S = 20.0  # the worker threads of servers end after 10 s without work


@dataclass(frozen=True)
class CacheState:
    """A cache, or all caches of one kind together."""

    name: str  # content of the cache
    held: int  # bytes or entries in the fullest cache of the kind
    bound: int | None  # bound of ``held``; None if there is none
    number: int  # number of caches of this kind
    full: int  # number of caches that have forgotten something, or lack room for a large entry


@dataclass(frozen=True)
class ProcessState:
    """A snapshot of this process, taken when nothing runs."""

    rss: int  # bytes of resident memory
    threads: int  # threads of the operating system
    names: tuple[str, ...]  # names of Python's threads
    descriptors: tuple[str, ...]  # target of each open descriptor
    caches: tuple[CacheState, ...]  # caches of hf_guided


def measure(quiet_s: float = QUIET_S) -> ProcessState:
    """The state after idle threads have ended and free memory has gone back to the system."""
    time.sleep(quiet_s)
    for _ in range(3):
        gc.collect()
    _trim()
    process = psutil.Process()
    return ProcessState(
        rss=process.memory_info().rss,
        threads=process.num_threads(),
        names=tuple(sorted(thread.name for thread in threading.enumerate())),
        descriptors=tuple(_descriptors()),
        caches=tuple(caches()),
    )


def caches() -> list[CacheState]:
    """The caches of hf_guided that live now, found through the garbage collector."""
    objects: dict[type, list[Any]] = {
        kind: [] for kind in (ByteCache, CompiledCache, frame_engine.FrameMasks, functools._lru_cache_wrapper)
    }
    for thing in gc.get_objects():
        if type(thing) in objects:
            objects[type(thing)].append(thing)
    found: list[tuple[str, int, int | None, bool]] = []
    for cache in objects[functools._lru_cache_wrapper]:
        if getattr(cache, "__module__", "").startswith("hf_guided."):
            info = cache.cache_info()
            name = f"{cache.__module__.removeprefix('hf_guided.')}.{cache.__name__}"
            found.append((name, info.currsize, info.maxsize, info.currsize == info.maxsize))
    for cache in objects[ByteCache] + objects[CompiledCache]:
        stats = cache.stats()
        name = COMPILED_NAME if cache.max_bytes == COMPILED else "bytes"
        found.append((name, stats.nbytes, cache.max_bytes, stats.evictions > 0))
    for masks in objects[frame_engine.FrameMasks]:
        held, bound = masks.machine.kept_bytes, frame_engine.MASK_BYTES + _ONE_MASK  # the next one drops them all
        found.append(("bytes of masks", held, bound, held >= frame_engine.MASK_BYTES))
    return sorted(_together(found), key=lambda state: (state.name, state.bound or 0))


def _together(found: list[tuple[str, int, int | None, bool]]) -> Iterator[CacheState]:
    kinds: dict[tuple[str, int | None], list[tuple[int, bool]]] = {}
    for name, held, bound, is_full in found:
        kinds.setdefault((name, bound), []).append((held, is_full))
    for (name, bound), each in kinds.items():
        yield CacheState(name, max(held for held, _ in each), bound, len(each), sum(full for _, full in each))


def _trim() -> None:
    """glibc keeps what was freed; other allocators have no such function."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _descriptors() -> Iterator[str]:
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            yield os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            pass  # the listing itself


MOST_GROWTH = 1.02  # of memory, from the first round to the second
LISTED = 20  # failures that are printed
MASK_BYTES = 2048  # of one constraint: eight masks of this vocabulary, so that masks are forgotten too


@dataclass
class Round:
    """Results of one thread in a round; the results of a round are the sum of its threads'."""

    outputs: Counter[tuple[str, str]] = field(default_factory=Counter)  # by way and verdict
    failures: list[str] = field(default_factory=list)
    jobs: int = 0

    def total(self, verdict: str) -> int:
        return sum(count for (_, name), count in self.outputs.items() if name == verdict)

    @property
    def judged(self) -> int:
        return sum(map(self.total, ("valid", "cut", "invalid", "bad prefix", "dead end")))

    def __add__(self, other: Round) -> Round:
        return Round(self.outputs + other.outputs, self.failures + other.failures, self.jobs + other.jobs)


VERDICTS = ("valid", "cut", "invalid", "bad prefix", "dead end", "raised", "refused", "left")
WRONG = ("invalid", "bad prefix", "dead end", "raised")


def work(shared: Ways, seed: str, until: float | None, jobs: int | None) -> Round:
    """Run one thread's jobs, always the same for one seed: until a time, or this number of them."""
    random, done = Random(seed), Round()
    while time.monotonic() < until if until is not None else done.jobs < (jobs or 0):
        [way] = random.choices(list(WAYS), weights=list(WAYS.values()))
        done.jobs += 1
        job_random = Random(random.getrandbits(64))  # so that a job of chance length does not change the next
        try:
            for output in way(shared, job_random):
                said = verdict(output)
                done.outputs[way.__name__, said] += 1
                if said in WRONG:
                    done.failures.append(f"{way.__name__}: {said}: {output}")
        except Exception:
            done.outputs[way.__name__, "raised"] += 1
            done.failures.append(f"{way.__name__}: {traceback.format_exc()}")
    return done


def run_round(shared: Ways, seed: int, threads: int, seconds: float | None, jobs: list[int] | None) -> list[Round]:
    """Run one round on threads of its own; returns the results of each."""
    until = None if seconds is None else time.monotonic() + seconds
    done: list[Round] = [Round()] * threads

    def run(number: int) -> None:
        done[number] = work(shared, f"{seed} {number}", until, None if jobs is None else jobs[number])

    started = [threading.Thread(target=run, args=(number,), name=f"soak {number}") for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return done


def bars(rounds: list[Round], states: list[ProcessState], outputs: int) -> dict[str, bool]:
    """Bars, and whether they hold, with at least this number of outputs."""
    first, second = states
    compiled = [cache for cache in second.caches if cache.name == COMPILED_NAME]
    return {
        f"at least {outputs} outputs": sum(done.judged for done in rounds) >= outputs,
        "0 wrong outputs": not any(done.failures for done in rounds),
        "memory within 2 %": second.rss <= MOST_GROWTH * first.rss,
        "threads constant": second.threads == first.threads,
        "descriptors constant": len(second.descriptors) == len(first.descriptors),
        "caches within their bounds": all(
            cache.bound is None or cache.held <= cache.bound for state in states for cache in state.caches
        ),
        "compile caches full": bool(compiled) and all(cache.full == cache.number for cache in compiled),
    }


def rows(rounds: list[Round], states: list[ProcessState], seconds: list[float]) -> list[dict[str, Any]]:
    return [
        {
            "round": number,
            "minutes": f"{taken / 60:.1f}",
            "outputs": done.judged,
            **{name.replace(" ", "_"): done.total(name) for name in VERDICTS},
            "rss_mb": f"{state.rss / 2**20:.1f}",
            "threads": state.threads,
            "descriptors": len(state.descriptors),
            "caches": sum(cache.number for cache in state.caches),
            "caches_full": sum(cache.full for cache in state.caches),
        }
        for number, (done, state, taken) in enumerate(zip(rounds, states, seconds, strict=True), 1)
    ]


def details(rounds: list[Round], states: list[ProcessState]) -> str:
    """The verdicts by way, the caches, what only one of the rounds left, and the first failures."""
    total = rounds[0] + rounds[1]
    named = sorted({way for way, _ in total.outputs})
    parts = [
        markdown_table(["way", *VERDICTS], [[n, *(str(total.outputs[n, v]) for v in VERDICTS)] for n in named]),
        "",
    ]
    cells = [[str(value) for value in astuple(cache)] for cache in states[1].caches]
    parts += [markdown_table(["cache", "fullest", "bound", "number", "full"], cells), ""]
    for name in ("names", "descriptors"):
        first, second = (Counter(getattr(state, name)) for state in states)
        parts.append(f"{name}, only after the first round: {first - second}, only after the second: {second - first}")
    return "\n".join([*parts, *total.failures[:LISTED]])


def main() -> int:
    made = parser(__doc__, "soak.csv")
    made.add_argument("--minutes", type=float, default=30.0, help="of both rounds together, about")
    made.add_argument("--outputs", type=int, default=100_000, help="that have to be judged; less in a short run")
    made.add_argument("--threads", type=int, default=8)
    made.add_argument("--seed", type=int, default=0)
    arguments = made.parse_args()
    logging.set_verbosity_error()  # transformers' server prints a line for each request
    frame_engine.MASK_BYTES = MASK_BYTES  # the same code at a bound that this small vocabulary reaches
    rounds: list[Round] = []
    states: list[ProcessState] = []
    seconds: list[float] = []
    jobs: list[int] | None = None
    with ways() as shared:
        for _ in range(2):
            began = time.monotonic()
            limit = arguments.minutes * 30 if jobs is None else None
            each = run_round(shared, arguments.seed, arguments.threads, limit, jobs)
            seconds.append(time.monotonic() - began)
            jobs = [done.jobs for done in each]
            rounds.append(sum(each, Round()))
            del each
            states.append(measure())
            print(rows(rounds[-1:], states[-1:], seconds[-1:]), flush=True)
    figures = rows(rounds, states, seconds)
    print(details(rounds, states))
    finish(arguments, figures, table_of(figures))
    held = bars(rounds, states, arguments.outputs)
    for name, holds in held.items():
        print(f"{'holds' if holds else 'FAILS'}: {name}")
    return int(not all(held.values()))


if __name__ == "__main__":
    sys.exit(main())
