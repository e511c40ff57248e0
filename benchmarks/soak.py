"""Does hf_guided hold for half an hour of everything at once?

    python -m benchmarks.soak [--minutes 30] [--outputs 100000] [--threads 8] [--seed 0]

Threads generate with tiny hot models: generate() with a processor, the fast loop, hg.generate, streams, continuous
batching, and two servers (soak_ways.py), with constraints from a pool that is larger than every cache
(soak_cases.py). ``json`` + ``jsonschema``, ``re`` and ``regex`` judge every output. The first round takes half of the
time; the second one runs the same jobs again. After each round memory, threads, descriptors and caches are read
(soak_process.py). Prints the figures, writes them to benchmarks/results/soak.csv, and ends with status 1 if a bar
fails.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import traceback
from random import Random

from transformers.utils import logging

from benchmarks.common import RESULTS, write_csv
from benchmarks.soak_process import ProcessState, measure
from benchmarks.soak_report import WRONG, Round, bars, details, rows, table, verdict
from benchmarks.soak_ways import WAYS, Ways, ways
from hf_guided.backends import network

MASK_BYTES = 2048  # of one constraint: eight masks of this vocabulary, so that masks are forgotten too


def work(shared: Ways, seed: str, until: float | None, jobs: int | None) -> Round:
    """One thread's jobs, always the same for one seed: until a time, or this number of them."""
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
    """One round on threads of its own; what each of them has done."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0, help="of both rounds together, about")
    parser.add_argument("--outputs", type=int, default=100_000, help="that have to be judged; less in a short run")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    logging.set_verbosity_error()  # transformers' server prints a line for each request
    network._MASK_BYTES = MASK_BYTES  # the same code at a bound that this small vocabulary reaches
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
    print(table(figures))
    write_csv(RESULTS / "soak.csv", figures)
    held = bars(rounds, states, arguments.outputs)
    for name, holds in held.items():
        print(f"{'holds' if holds else 'FAILS'}: {name}")
    return int(not all(held.values()))


if __name__ == "__main__":
    sys.exit(main())
