"""Measures the cost of a step for the host: two trees of the sources, in turn, without a GPU.

    git worktree add /tmp/before COMMIT && (cd /tmp/before && python -m scripts.build_core)
    python -m benchmarks.bench_step /tmp/before . [--batch 1 8 64] [--rounds 3] [--seam NAME ...]

Each row of a batch writes another document of record12, so all masks are warm after the first replay. The function that
writes the masked scores, or launches what does, is replaced by a stub: what remains is the work of the Python thread,
in microseconds of its CPU time. "rows" is a token for each row and its next mask; "processor" and "loop" are whole
steps of a logits processor and of the fast loop. Each round runs both trees, in changing order, each in a process of
its own. A row's ratio is its median to that of the first tree.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.common import ROOT, data_folder, finish, parser, record12, table_of

SEAMS = ("rows", "processor", "loop")


def steps(seam: str, guide: Any, constraint: Any, replay: Any, scores: Any) -> Iterator[None]:
    from hf_guided.session.row import advance

    if seam == "processor":
        processor = guide.logits_processor(constraint, overlap=False)
        for ids in replay.steps:
            processor(ids, scores)
            yield
        return
    # What the fast loop calls of its session in a step without drafts.
    session = guide.session(constraint, overlap=False)
    rows = session.begin(len(scores))
    left: list[int | None] = [None] * len(rows)
    for new in replay.new_ids:
        advance(rows[: len(new)], new)  # none before the first mask
        masks = session.fill_ahead(rows, left)()
        if seam == "loop":
            session.apply(scores, masks)
        yield


def replays_of(seam: str, rows: int, replays: int) -> list[float]:
    """Microseconds of the median step of each replay, for the package in PYTHONPATH."""
    import torch

    import hf_guided as hg
    from benchmarks.bench_processor import compact_documents, make_replay
    from hf_guided.session import masks
    from tests.vocabularies import fast_tekken

    torch.set_num_threads(1)
    assert hasattr(masks, "apply_words"), "nothing to replace by a stub"
    masks.apply_words = lambda scores, words, log_sums=None: (scores, [True] * len(words))
    tokenizer = fast_tekken()
    guide = hg.Guide(model=len(tokenizer), tokenizer=tokenizer)
    constraint = hg.JsonSchema(record12()["schema"], whitespace="flexible")
    guide.compile(constraint)
    replay = make_replay(
        tokenizer.encode(record12()["prompts"][0]),
        [tokenizer.encode(one, add_special_tokens=False) for one in compact_documents(rows)],
        tokenizer.eos_token_id,
    )
    scores = torch.zeros(rows, guide.vocabulary.padded_size)
    taken = []
    for _ in range(replays + 1):
        times, began = [], time.thread_time_ns()
        for _ in steps(seam, guide, constraint, replay, scores):
            times.append((time.thread_time_ns() - began) / 1e3)
            began = time.thread_time_ns()
        taken.append(statistics.median(times))
    return taken[1:]


def measured(tree: Path, seam: str, rows: int, replays: int) -> list[float]:
    """``replays_of`` the package of a tree, in a process of its own."""
    command = [sys.executable, __file__, "--worker", seam, str(rows), str(replays)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (tree.resolve(), ROOT))),
        "HF_GUIDED_DATA": str(data_folder().resolve()),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(command, cwd="/", env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


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
    arguments = made.parse_args()
    rows: list[dict[str, Any]] = []
    for seam, batch in product(arguments.seam, arguments.batch):
        taken: dict[Path, list[float]] = {tree: [] for tree in arguments.trees}
        for number in range(arguments.rounds):
            for tree in arguments.trees if number % 2 else reversed(arguments.trees):
                taken[tree] += measured(tree, seam, batch, arguments.replays)
        base = statistics.median(taken[arguments.trees[0]])
        for tree, values in taken.items():
            median = statistics.median(values)
            row = {"commit": commit(tree), "seam": seam, "batch": batch, "scores": "stubbed"}
            figures = {"p50_us": f"{median:.1f}", "least_us": f"{min(values):.1f}", "ratio": f"{median / base:.3f}"}
            rows.append({**row, **figures})
    finish(arguments, rows, table_of(rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        print(json.dumps(replays_of(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main()
