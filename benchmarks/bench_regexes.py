"""How soon are regular expressions ready, and how fast are their masks? Side by side on those of regexes.json.

    python -m benchmarks.bench_regexes [--only NAME ...] [--backend native|llguidance ...]

Forty patterns of real kinds, each with texts that match and texts that do not. A text is tokenized with Tekken and
walked through the masks: one that matches must pass, another must be refused somewhere. hf-guided compiles by
``Guide.compile`` with its default options, by each backend named, as a processor does, and with a limit of 512 tokens
as ``hg.generate`` does; llguidance reads the pattern through its own front end. The processes, the turns, "ready" and
the limits are those of bench_schemas.py.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_schemas import Judged, Sample, Text, in_turns
from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv
from benchmarks.regex_libraries import BACKENDS, LLGuidanceRegex, name_of

PATTERNS = Path(__file__).with_name("regexes.json")


def load_patterns(only: Sequence[str] = ()) -> list[Sample]:
    """The patterns, with texts of which Python's ``re`` has the same opinion as the file."""
    samples = []
    for row in json.loads(PATTERNS.read_text(encoding="utf-8")):
        texts = [
            Text(text, valid, True, True) for valid in (True, False) for text in row["valid" if valid else "invalid"]
        ]
        for one in texts:
            assert bool(re.fullmatch(row["pattern"], one.text)) == one.valid, (row["name"], one.text)
        if not only or row["name"] in only:
            samples.append(Sample(row["name"], row["pattern"], tuple(texts)))
    return samples


def line(library: str, one: Judged, kind: str = "regex") -> dict[str, Any]:
    """The row of a library and a pattern."""
    verdict = one.verdict
    row: dict[str, Any] = {kind: one.sample.name, "library": library, "outcome": verdict.outcome}
    row["wrong"] = len(one.wrong(True, in_order=True) + one.wrong(False, in_order=True))
    row["ready_ms"] = f"{verdict.ready_ms:.2f}" if one.compiled else ""
    for q in (50, 90, 99, 100):
        row[f"mask_p{q}_us"] = f"{np.percentile(verdict.mask_us, q):.1f}" if verdict.mask_us else ""
    row["reason"] = " ".join(reason for _, _, reason in verdict.reasons)[:200]
    return row


def summary(library: str, judged: Sequence[Judged]) -> list[str]:
    """A line of the table of libraries."""
    compiled = [one for one in judged if one.compiled]
    ready = [one.verdict.ready_ms for one in compiled] or [0.0]
    masks = [us for one in compiled for us in one.verdict.mask_us] or [0.0]
    wrong = sum(bool(one.wrong(True, in_order=True) or one.wrong(False, in_order=True)) for one in judged)
    return [
        library,
        f"{len(compiled)} of {len(judged)}",
        str(wrong),
        " / ".join(f"{time:.1f}" for time in (statistics.median(ready), np.percentile(ready, 90), max(ready))),
        " / ".join(f"{np.percentile(masks, q):.0f}" for q in (50, 90, 99, 100)),
    ]


def table(rows: Sequence[Mapping[str, Any]], libraries: Sequence[str], kind: str = "regex") -> str:
    """Markdown: a line for each pattern, with ready ms and the median and the largest mask of each library."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        times = f"{row['ready_ms']} ms; {row['mask_p50_us']} / {row['mask_p99_us']} µs"
        cell = times if row["outcome"] == "compiled" else row["outcome"]
        cells.setdefault(row[kind], {})[row["library"]] = cell + " WRONG" * bool(row["wrong"])
    return markdown_table([kind, *libraries], [[name, *(of[one] for one in libraries)] for name, of in cells.items()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of patterns")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=["native"], help="of hf-guided")
    parser.add_argument("--seconds", type=float, default=20.0, help="a pattern may take")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="a library's process may hold")
    parser.add_argument("--csv", type=Path, default=RESULTS / "regexes.csv")
    arguments = parser.parse_args()
    samples = load_patterns(arguments.only)
    ours = [name_of(backend, limited=limited) for backend in arguments.backend for limited in (False, True)]
    libraries = [*ours, LLGuidanceRegex.name]
    judged = in_turns(samples, libraries, arguments.seconds, int(arguments.gigabytes * 2**30))
    rows = [line(name, judged[name][i]) for i in range(len(samples)) for name in libraries]
    if not arguments.only:
        write_csv(arguments.csv, rows)
    header = ["library", "compiled", "judged wrongly", "ready p50 / p90 / max ms", "mask p50 / p90 / p99 / max µs"]
    print(f"{table(rows, libraries)}\n")
    print(markdown_table(header, [summary(name, judged[name]) for name in libraries]))
    print(f"\n{hardware()}, load {load_average()}.")
    for row in rows:
        if row["outcome"] != "compiled":
            print(f"- {row['regex']}, {row['library']}: {row['outcome']}: {row['reason']}")


if __name__ == "__main__":
    main()
