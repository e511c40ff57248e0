"""Host time of the steps of one call, or of whole calls, for one tree of the sources; see bench_step.py.

The package is the one in PYTHONPATH. Prints a list of microseconds: the median step of each replay but the first, or
each call but the first.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

import hf_guided as hg
from benchmarks.bench_processor import Replay, compact_documents, make_replay
from benchmarks.common import record12
from hf_guided import demo
from hf_guided.session import masks
from tests import vocabularies

try:
    from hf_guided.session.row import advance
except ImportError:  # a tree where it has a file of its own
    from hf_guided.session.rows import advance  # type: ignore[import-not-found, no-redef]

STUBS: dict[str, Callable[..., Any]] = {  # what writes the scores, or launches what does: its name in either tree
    "apply_bitmask": lambda scores, bitmask, rows, transfer=None: (scores, [True] * len(rows)),
    "apply_words": lambda scores, words, log_sums=None: (scores, [True] * len(words)),
}


def processor_steps(guide: hg.Guide, constraint: Any, replay: Replay, scores: torch.Tensor) -> Iterator[None]:
    processor = guide.logits_processor(constraint, overlap=False)
    for ids in replay.steps:
        processor(ids, scores)
        yield


def loop_steps(guide: hg.Guide, constraint: Any, replay: Replay, scores: torch.Tensor) -> Iterator[None]:
    """Calls of the fast loop to its session in a step without drafts."""
    session = guide.session(constraint, overlap=False)
    rows = session.begin(len(scores))
    left: list[int | None] = [None] * len(rows)
    for new in replay.new_ids:
        advance(rows[: len(new)], new)  # none before the first mask
        session.apply(scores, session.fill_ahead(rows, left)())
        yield


def row_steps(guide: hg.Guide, constraint: Any, replay: Replay, scores: torch.Tensor) -> Iterator[None]:
    """A token for each row and its next mask, and nothing else."""
    session = guide.session(constraint, overlap=False)
    rows = session.begin(len(scores))
    left: list[int | None] = [None] * len(rows)
    for new in replay.new_ids:
        advance(rows[: len(new)], new)  # none before the first mask
        session.fill_ahead(rows, left)()
        yield


SEAMS = {"rows": row_steps, "processor": processor_steps, "loop": loop_steps}


def replays_of(seam: str, rows: int, replays: int) -> list[float]:
    """The median step of each replay."""
    tokenizer = vocabularies.fast_tekken()
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
        for _ in SEAMS[seam](guide, constraint, replay, scores):
            times.append((time.thread_time_ns() - began) / 1e3)
            began = time.thread_time_ns()
        taken.append(statistics.median(times))
    return taken[1:]


def calls_of(seam: str, rows: int, replays: int) -> list[float]:
    """Whole calls with the demo model."""
    model, tokenizer = demo.load()
    examples = demo.examples(rows, seed=1)
    prompts, schemas = [one.prompt for one in examples], [one.schema for one in examples]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, padding_side="left")

    def call() -> None:
        if seam == "free":
            model.generate(**inputs, do_sample=False, max_new_tokens=60, min_new_tokens=60)
        else:
            hg.generate(model, tokenizer, prompts, schemas, do_sample=False, batch_size=rows, progress=False)

    taken = []
    for _ in range(replays + 1):
        began = time.process_time_ns()
        call()
        taken.append((time.process_time_ns() - began) / 1e3)
    return taken[1:]


def main(seam: str, rows: int, replays: int, whole: bool) -> None:
    torch.set_num_threads(1)
    for name, stub in STUBS.items():
        if not whole and seam in SEAMS and hasattr(masks, name):
            setattr(masks, name, stub)
    taken = (replays_of if seam in SEAMS else calls_of)(seam, rows, replays)
    print(json.dumps(np.round(taken, 2).tolist()))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "whole")
