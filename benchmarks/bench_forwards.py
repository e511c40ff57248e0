"""How many forward passes does a token cost? Counted, not timed.

    python -m benchmarks.bench_forwards

Greedy answers, in batches of 1 and 8. f is the share of the answers' tokens that lie wholly in forced text, the stop
token counted as one; llguidance decides it byte by byte (forced_share.py). Row-forwards are forward passes, the
prompts' included, counted for each row that still runs. A loop that spends none on forced text needs 1 - f a token;
0.05 beyond it is for the prompts' passes and what could not be joined. Every answer that has ended is checked with
jsonschema; "right" are those of the demo model that are the record they should be.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import hf_guided as hg
from benchmarks.common import RESULTS, markdown_table, write_csv
from benchmarks.decode_cases import Case, Task, demo_examples, demo_record, is_right, is_valid, random_llama
from benchmarks.forced_share import ForcedBytes
from hf_guided import demo

Whitespace = Literal["compact", "flexible"]
SLACK = 0.05
WITH_DRAFTS = 0.8  # of the bound without them
FLEXIBLE = 0.7
PLAIN, JUMPS = "one a token", "jump-forward"
BOTH = f"{JUMPS}, grammar and prompt lookup drafts"
LOOPS: dict[str, dict[str, Any]] = {
    PLAIN: {"jump_forward": False},
    JUMPS: {},
    f"{JUMPS}, grammar drafts": {"draft": "grammar"},
    BOTH: {"draft": ["grammar", "prompt_lookup"]},
}
ASSISTED = f"{JUMPS}, assistant"


def bound(whitespace: Whitespace, loop: str, forced_share: float) -> float | None:
    """Row-forwards a token that are aimed at; None where there is no such aim."""
    if whitespace == "flexible":
        return FLEXIBLE if "grammar" in loop else None
    if loop == JUMPS:
        return 1 - forced_share + SLACK
    return WITH_DRAFTS * (1 - forced_share + SLACK) if loop == BOTH else None


def forced_share(case: Case, answers: Sequence[tuple[Task, list[int]]], whitespace: Whitespace) -> float:
    """f of the answers that have ended."""
    inside = total = 0
    for task, row in answers:
        if case.text(row) is not None:
            tokens = [case.guide.vocabulary.decode_bytes([token_id]) for token_id in row[:-1]]
            forced, of = ForcedBytes(hg.JsonSchema(task.schema, whitespace=whitespace)).share(tokens)
            inside, total = inside + forced, total + of
    return inside / total if total else 0.0


def count(case: Case, batch: int, whitespace: Whitespace, loop: str, options: dict[str, Any]) -> dict[str, Any]:
    """A row of results."""
    answers: list[tuple[Task, list[int]]] = []
    tokens = row_forwards = drafted = accepted = 0
    for tasks, inputs in case.batches(batch):
        constraints = [hg.JsonSchema(task.schema, whitespace=whitespace) for task in tasks]
        decoder = case.guide.decoder(constraints, **options)
        answers += zip(tasks, case.generate(inputs, custom_generate=decoder), strict=True)
        tokens, row_forwards = tokens + decoder.stats.tokens, row_forwards + decoder.stats.row_forwards
        drafted, accepted = drafted + decoder.stats.drafted_tokens, accepted + decoder.stats.accepted_tokens
    assert tokens == sum(len(row) for _, row in answers), "the statistics count other tokens than the answers have"
    f = forced_share(case, answers, whitespace)
    allowed = bound(whitespace, loop, f)
    texts = [(task, case.text(row)) for task, row in answers]
    assert all(text is None or is_valid(task, text) for task, text in texts), "an answer does not match its constraint"
    return {
        "model": case.name,
        "batch": batch,
        "whitespace": whitespace,
        "loop": loop,
        "answers": len(answers),
        "ended": sum(text is not None for _, text in texts),
        "right": sum(is_right(task, text) for task, text in texts) if case.tasks[0].record else "",
        "tokens": tokens,
        "forced_share": f"{f:.3f}",
        "row_forwards_per_token": f"{row_forwards / tokens:.3f}",
        "bound": "" if allowed is None else f"{allowed:.3f}",
        "drafted": drafted,
        "accepted": accepted,
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """A line a row; a bound that is missed is marked."""
    lines = []
    for row in rows:
        missed = row["bound"] and float(row["row_forwards_per_token"]) > float(row["bound"])
        lines.append(
            [
                row["model"],
                str(row["batch"]),
                row["whitespace"],
                row["loop"],
                f"{row['ended']} of {row['answers']}",
                str(row["right"]),
                str(row["tokens"]),
                row["forced_share"],
                row["row_forwards_per_token"],
                f"{row['bound']} (missed)" if missed else row["bound"],
                f"{row['accepted']} of {row['drafted']}" if int(row["drafted"]) else "",
            ]
        )
    header = ["model", "batch", "white space", "loop", "ended", "right", "tokens", "f", "row-forwards a token", "bound"]
    return markdown_table([*header, "accepted"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8])
    parser.add_argument("--csv", type=Path, default=RESULTS / "forwards.csv")
    arguments = parser.parse_args()
    rows = []
    for case in (random_llama("tiny"), demo_record(300), demo_examples()):
        loops = dict(LOOPS)
        if case.name.startswith("demo"):
            loops[ASSISTED] = {"draft": demo.load_draft()}
        for whitespace in ("compact", "flexible"):
            for batch in arguments.batch:
                for loop, options in loops.items():
                    if whitespace == "compact" and options == {"draft": "grammar"}:
                        continue  # it writes what is forced anyway
                    rows.append(count(case, batch, whitespace, loop, options))
                    print(" ".join(f"{name}={value}" for name, value in rows[-1].items()), flush=True)
    write_csv(arguments.csv, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
