"""What does a step of the device lane cost the host? Two trees of the sources, in turn, without a GPU.

    git worktree add /tmp/before COMMIT
    python -m benchmarks.bench_host_step /tmp/before . [--batch 1 64] [--rounds 3]

The model and the kernels are replaced by stubs: what remains is the work of the Python thread that queues a step and
receives the tokens of the step before, in microseconds of CPU time. Each round runs both trees, in changing order, each
in a process of its own. A row's ratio is its median to that of the first tree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv

WORKER = Path(__file__).with_name("host_step_worker.py")


def measured(tree: Path, rows: int, tokens: int, calls: int) -> list[float]:
    """Microseconds a step, for each call but the first."""
    command = [sys.executable, str(WORKER), *map(str, (rows, tokens, calls))]
    environment = {**os.environ, "PYTHONPATH": str(tree.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, check=True)
    taken: list[float] = json.loads(done.stdout.splitlines()[-1])
    return taken[1:]


def commit(tree: Path) -> str:
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("trees", nargs=2, type=Path, help="before and after")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 64])
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=Path, default=RESULTS / "host_step.csv")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for batch in arguments.batch:
        taken: dict[Path, list[float]] = {tree: [] for tree in arguments.trees}
        for number in range(arguments.rounds):
            for tree in arguments.trees if number % 2 else reversed(arguments.trees):
                taken[tree] += measured(tree, batch, arguments.tokens, arguments.calls)
        base = statistics.median(taken[arguments.trees[0]])
        for tree, values in taken.items():
            median = statistics.median(values)
            rows.append(
                {
                    "commit": commit(tree),
                    "batch": batch,
                    "p50_us": f"{median:.1f}",
                    "least_us": f"{min(values):.1f}",
                    "ratio": f"{median / base:.3f}",
                    "device": hardware(),
                    "load": load_average(),
                }
            )
    write_csv(arguments.csv, rows)
    names = ("commit", "batch", "p50_us", "least_us", "ratio")
    print(markdown_table(names, [[str(row[name]) for name in names] for row in rows]))


if __name__ == "__main__":
    main()
