"""Is this checkout slower than another one? The same generations in both, in turn, on the demo model.

    git worktree add OTHER COMMIT && (cd OTHER && python -m scripts.build_core)
    python -m benchmarks.bench_versions OTHER [--pairs 20]

Each checkout runs in a process of its own that stays warm. Both run every case once per pair, in random order, so a
busy machine disturbs both alike. Times are CPU seconds of the whole ``generate()`` call (version_cases.py). "of free"
is the speed relative to free generation in the same checkout. Rows go to benchmarks/results/versions.csv.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.common import RESULTS, load_average, markdown_table, write_csv
from benchmarks.version_cases import BATCHES, CASES

HERE = Path(__file__).parents[1]


def started(checkout: Path) -> subprocess.Popen[str]:
    """A process that runs the cases with this checkout's package."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    cases = HERE / "benchmarks" / "version_cases.py"
    return subprocess.Popen(
        [sys.executable, str(cases)],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def seconds(process: subprocess.Popen[str], case: str) -> float:
    """Run a case once."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(case + "\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Print the table and write the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path, help="the other checkout's folder")
    parser.add_argument("--pairs", type=int, default=20)
    arguments = parser.parse_args()
    processes = {"other": started(arguments.other.resolve()), "this": started(HERE)}
    for name, process in processes.items():
        assert process.stdout is not None
        if process.stdout.readline().strip() != "ready":
            raise SystemExit(f"{name}: version_cases.py ended early; run it there by itself to see why")
    cases = [f"{case} {batch}" for batch in BATCHES for case in CASES]
    times: dict[str, dict[str, list[float]]] = {case: {name: [] for name in processes} for case in cases}
    for _ in range(arguments.pairs):
        for case in cases:
            for name in random.sample(list(processes), len(processes)):
                times[case][name].append(seconds(processes[name], case))
    for process in processes.values():
        process.terminate()
    rows = []
    for case in cases:
        middle = {name: statistics.median(taken) for name, taken in times[case].items()}
        free = {name: statistics.median(taken) for name, taken in times[f"free {case.split()[1]}"].items()}
        pairs = zip(times[case]["this"], times[case]["other"], strict=True)
        rows.append(
            {
                "case": case.split()[0],
                "batch": case.split()[1],
                "this_ms": f"{middle['this'] * 1e3:.1f}",
                "other_ms": f"{middle['other'] * 1e3:.1f}",
                "ratio": f"{middle['this'] / middle['other']:.3f}",
                "ratio_of_pairs": f"{statistics.median(this / other for this, other in pairs):.3f}",
                "of_free": f"{free['this'] / middle['this']:.3f}",
                "of_free_other": f"{free['other'] / middle['other']:.3f}",
                "pairs": arguments.pairs,
                "load": load_average(),
            }
        )
    write_csv(RESULTS / "versions.csv", rows)
    print(markdown_table(list(rows[0]), [[str(cell) for cell in row.values()] for row in rows]))


if __name__ == "__main__":
    main()
