"""From how many clients on are shared batches faster than one request after another, and what does a lone client pay?

    python -m benchmarks.bench_serve_engines [--clients N ...] [--requests N] [--runs N]

Each client sends its next request when the last one is answered: invoices of the demo model as JSON records (guided),
and the same prompts without a constraint (free), greedy. Before times are measured, both engines answer every prompt,
and have to write the same tokens. Engines take turns, run by run.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch

import hf_guided as hg
from benchmarks.common import finish, parser, table_of
from hf_guided import demo
from hf_guided.serve.engines.jobs import Engine
from hf_guided.serve.engines.one_by_one import OneByOne
from hf_guided.serve.engines.shared_batches import SharedBatches
from hf_guided.serve.job import Job
from tests.jobs import finished, job

ENGINES = {"one by one": OneByOne, "shared batches": SharedBatches}
MAX_NEW_TOKENS = 120


def jobs_of(guide: hg.Guide, kind: str, number: int) -> list[Job]:
    """Prompts of the demo model, each with a beginning of its own."""
    return [
        job(
            guide,
            guide.tokenizer(example.prompt)["input_ids"],
            example.schema if kind == "guided" else None,
            max_new_tokens=MAX_NEW_TOKENS,
            name=f"{kind} {i}",
        )
        for i, example in enumerate(demo.examples(number, seed=7))
    ]


def measured(engine: Engine, jobs: Sequence[Job], clients: int) -> tuple[int, float, list[float]]:
    """Tokens of all answers, how many seconds they took, and the seconds of each."""

    def timed(made: Job) -> tuple[int, float]:
        began = time.perf_counter()
        [tokens] = finished(engine, made)
        return len(tokens), time.perf_counter() - began

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(timed, jobs))
    return sum(count for count, _ in answers), time.perf_counter() - began, [seconds for _, seconds in answers]


def rows_of(guide: hg.Guide, model: Any, clients: Sequence[int], requests: int, runs: int) -> list[dict[str, Any]]:
    rows = []
    for kind in ("guided", "free"):
        jobs = jobs_of(guide, kind, requests)
        answers = {}
        for name, engine_class in ENGINES.items():
            engine = engine_class(model, guide)
            answers[name] = [finished(engine, made) for made in jobs]
            engine.close()
        # In float32 the two kinds of attention may round a tie differently; in float64 they do not.
        same = sum(one == other for one, other in zip(*answers.values(), strict=True))
        for number in clients:
            speeds: dict[str, list[float]] = {name: [] for name in ENGINES}
            latencies: dict[str, list[float]] = {name: [] for name in ENGINES}
            for _ in range(runs):
                for name, engine_class in ENGINES.items():
                    engine = engine_class(model, guide)
                    tokens, seconds, each = measured(engine, jobs, number)
                    engine.close()
                    speeds[name].append(tokens / seconds)
                    latencies[name] += each
            alone = statistics.median(latencies["one by one"])
            for name in ENGINES:
                rows.append(
                    {
                        "kind": kind,
                        "clients": number,
                        "engine": name,
                        "requests": len(jobs),
                        "same_answers": same,
                        "runs": runs,
                        "tokens_per_s": f"{statistics.median(speeds[name]):.1f}",
                        "latency_p50_ms": f"{1e3 * statistics.median(latencies[name]):.1f}",
                        "latency_max_ms": f"{1e3 * max(latencies[name]):.1f}",
                        "latency_ratio": f"{statistics.median(latencies[name]) / alone:.2f}",
                        "threads": torch.get_num_threads(),
                    }
                )
    return rows


table = partial(
    table_of, columns=("kind", "clients", "engine", "tokens_per_s", "latency_p50_ms", "latency_max_ms", "latency_ratio")
)


def main() -> None:
    made = parser(__doc__, "serve_engines.csv")
    made.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16, 64])
    made.add_argument("--requests", type=int, default=64)
    made.add_argument("--runs", type=int, default=3)
    given = made.parse_args()
    model, tokenizer = demo.load()
    rows = rows_of(hg.Guide(model, tokenizer), model, given.clients, given.requests, given.runs)
    finish(given, rows, table(rows))
    same = min(row["same_answers"] for row in rows)
    print(f"\n{same} of {given.requests} answers have the same tokens in both engines.")


if __name__ == "__main__":
    main()
