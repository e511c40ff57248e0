"""Free requests: how fast is hf-guided's server beside `transformers serve`, and how fast is it with a schema?

    python -m benchmarks.bench_serve [--clients N] [--requests N] [--runs N]

Both servers run in processes of their own, with continuous batching, the demo model and one thread. Clients in this
process send invoices to /v1/completions, greedy; each sends its next request when the last one is answered. Measured
are only prompts that get as many tokens from both servers and with a schema. A fresh server is started for each
measurement, and answers every prompt once before times are measured. The two servers take turns.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request, urlopen

from benchmarks.common import finish, parser, table_of
from hf_guided import demo

MAX_NEW_TOKENS = 120
OURS, THEIRS = "hf-guided serve", "transformers serve"
MODULES = {OURS: "hf_guided", THEIRS: "transformers.cli.transformers"}
KINDS = [(THEIRS, "free"), (OURS, "free"), (OURS, "guided")]


@contextmanager
def served(name: str, folder: Path) -> Iterator[int]:
    """The port of a server that is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    model = ["--model", str(folder)] if name == OURS else [str(folder)]
    command = [sys.executable, "-m", MODULES[name], "serve", *model, "--continuous-batching"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    more = ["--host", "127.0.0.1", "--port", str(port), "--device", "cpu"]
    with subprocess.Popen(
        [*command, *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment
    ) as process:
        try:
            while not is_ready(port):
                if process.poll() is not None:
                    raise SystemExit(f"{name} ended with {process.returncode} before it was ready")
                time.sleep(0.2)
            yield port
        finally:
            process.kill()


def is_ready(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def answered(port: int, bodies: Sequence[dict[str, Any]], clients: int) -> tuple[list[int], float]:
    """Tokens of each answer, and the seconds of all of them."""

    def post(body: dict[str, Any]) -> int:
        headers = {"content-type": "application/json"}
        request = Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), headers)
        with urlopen(request, timeout=300) as answer:
            return int(json.load(answer)["usage"]["completion_tokens"])

    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        counts = list(pool.map(post, bodies))
    return counts, time.perf_counter() - began


def bodies_of(kind: str, examples: Sequence[demo.Example]) -> list[dict[str, Any]]:
    """The same requests, with their schemas or without."""
    shared = {"max_tokens": MAX_NEW_TOKENS, "temperature": 0}
    return [
        {"prompt": example.prompt, **shared, **({"guided_json": example.schema} if kind == "guided" else {})}
        for example in examples
    ]


def alike(examples: Sequence[demo.Example], folder: Path) -> list[demo.Example]:
    lengths = []
    for name, kind in KINDS:
        with served(name, folder) as port:
            lengths.append(answered(port, bodies_of(kind, examples), 1)[0])
    return [example for example, *counts in zip(examples, *lengths, strict=True) if len(set(counts)) == 1]


def rows_of(folder: Path, clients: int, requests: int, runs: int) -> list[dict[str, Any]]:
    examples = alike(list(demo.examples(requests, seed=7)), folder)
    speeds: dict[tuple[str, str], list[float]] = {kind: [] for kind in KINDS}
    tokens = set()
    for _ in range(runs):
        for name, kind in KINDS:
            bodies = bodies_of(kind, examples)
            with served(name, folder) as port:
                answered(port, bodies, clients)
                counts, seconds = answered(port, bodies, clients)
            tokens.add(sum(counts))
            speeds[name, kind].append(sum(counts) / seconds)
    rows: list[dict[str, Any]] = []
    for (name, kind), found in speeds.items():
        base = speeds[OURS if kind == "guided" else THEIRS, "free"]
        rows.append(
            {
                "server": name,
                "kind": kind,
                "clients": clients,
                "requests": len(examples),
                "tokens": "/".join(map(str, sorted(tokens))),
                "runs": runs,
                "tokens_per_s": f"{statistics.median(found):.1f}",
                "ratio": f"{statistics.median(found) / statistics.median(base):.3f}",
                "ratios": " ".join(f"{one / other:.3f}" for one, other in zip(found, base, strict=True)),
            }
        )
    return rows


table = partial(table_of, columns=("server", "kind", "clients", "requests", "tokens_per_s", "ratio", "ratios"))


def main() -> None:
    made = parser(__doc__, "serve.csv")
    made.add_argument("--clients", type=int, default=16)
    made.add_argument("--requests", type=int, default=96)
    made.add_argument("--runs", type=int, default=3)
    given = made.parse_args()
    with TemporaryDirectory() as folder:
        for part in demo.load():
            part.save_pretrained(folder)
        rows = rows_of(Path(folder), given.clients, given.requests, given.runs)
    finish(given, rows, table(rows))
    print("\nThe ratio is to free requests: of `transformers serve`, or, with a schema, of hf-guided itself.")


if __name__ == "__main__":
    main()
