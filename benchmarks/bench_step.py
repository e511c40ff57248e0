"""What does a step cost the host, and a whole call? Two trees of the sources, in turn, without a GPU.

    git worktree add /tmp/before COMMIT && (cd /tmp/before && python -m scripts.build_core)
    python -m benchmarks.bench_step /tmp/before . [--batch 1 8 64] [--rounds 3] [--seam NAME ...] [--whole]

Each row of a batch writes another document of record12, so all masks are warm after the first replay. The function that
writes the masked scores, or launches what does, is replaced by a stub, unless --whole: what remains is the work of the
Python thread, in microseconds of its CPU time. "rows" is a token for each row and its next mask; "processor" and "loop"
are whole steps of a logits processor and of the fast loop. "generate" is a call of ``hg.generate`` with the demo model
on its own tasks, and "free" the same prompts in ``model.generate``: CPU time of the whole call, nothing replaced. Each
round runs both trees, in changing order, each in a process of its own. A row's ratio is its median to that of the first
tree.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, data_folder, finish, parser, table_of

WORKER = Path(__file__).with_name("step_worker.py")
SEAMS = ("rows", "processor", "loop", "generate", "free")


def measured(tree: Path, seam: str, rows: int, replays: int, whole: bool) -> list[float]:
    """Microseconds of the median step of each replay."""
    command = [sys.executable, str(WORKER), seam, str(rows), str(replays), "whole" if whole else "stubbed"]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (tree.resolve(), ROOT))),
        "HF_GUIDED_DATA": str(data_folder().resolve()),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, check=True)
    taken: list[float] = json.loads(done.stdout.splitlines()[-1])
    return taken


def commit(tree: Path) -> str:
    command = ["git", "-C", str(tree), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    made = parser(__doc__, "step.csv")
    made.add_argument("trees", nargs=2, type=Path, help="before and after")
    made.add_argument("--batch", nargs="+", type=int, default=[1, 8, 64])
    made.add_argument("--seam", nargs="+", choices=SEAMS, default=SEAMS)
    made.add_argument("--replays", type=int, default=3)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--whole", action="store_true", help="with the masked scores, on the CPU")
    arguments = made.parse_args()
    rows: list[dict[str, Any]] = []
    for seam, batch in product(arguments.seam, arguments.batch):
        taken: dict[Path, list[float]] = {tree: [] for tree in arguments.trees}
        for number in range(arguments.rounds):
            for tree in arguments.trees if number % 2 else reversed(arguments.trees):
                taken[tree] += measured(tree, seam, batch, arguments.replays, arguments.whole)
        base = statistics.median(taken[arguments.trees[0]])
        for tree, values in taken.items():
            median = statistics.median(values)
            rows.append(
                {
                    "commit": commit(tree),
                    "seam": seam,
                    "batch": batch,
                    "scores": "written" if arguments.whole or seam in ("generate", "free") else "stubbed",
                    "p50_us": f"{median:.1f}",
                    "least_us": f"{min(values):.1f}",
                    "ratio": f"{median / base:.3f}",
                }
            )
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    main()
