"""How soon are regular expressions and grammars ready, and how fast are their masks?

    python -m benchmarks.bench_regexes [--grammars] [--only NAME ...]

Forty patterns of real kinds (regexes.json), or with ``--grammars`` forty grammars in GBNF as people write them
(grammars.json), each with texts that match and texts that do not. A text is tokenized with Tekken and walked through
the masks: one that matches must pass, another must be refused somewhere. hf-guided compiles as a processor does, and
with a limit of 512 tokens as ``hg.generate`` does; grammars also with backend="xgrammar". llguidance reads patterns
through its own front end. The processes, the turns, "ready" and the limits are those of bench_schemas.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench_schemas import Judged, Sample, Text, in_turns
from benchmarks.common import finish, markdown_table, parser, percentile_columns, percentiles
from benchmarks.schema_libraries import GRAMMAR_LIBRARIES, REGEX_LIBRARIES


def load_patterns(only: Sequence[str] = ()) -> list[Sample]:
    """The patterns, with texts of which Python's ``re`` has the same opinion as the file."""
    samples = _loaded("regexes.json", "pattern", only)
    for sample in samples:
        for one in sample.texts:
            assert bool(re.fullmatch(sample.schema, one.text)) == one.valid, (sample.name, one.text)
    return samples


def load_grammars(only: Sequence[str] = ()) -> list[Sample]:
    samples = _loaded("grammars.json", "grammar", only)
    return [Sample(one.name, "\n".join(one.schema), one.texts) for one in samples]


def _loaded(file: str, field: str, only: Sequence[str]) -> list[Sample]:
    rows = json.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))
    return [
        Sample(
            row["name"],
            row[field],
            tuple(Text(text, kind == "valid", True, True) for kind in ("valid", "invalid") for text in row[kind]),
        )
        for row in rows
        if not only or row["name"] in only
    ]


def line(library: str, one: Judged, kind: str = "regex") -> dict[str, Any]:
    """The row of a library and a pattern."""
    verdict = one.verdict
    row: dict[str, Any] = {kind: one.sample.name, "library": library, "outcome": verdict.outcome}
    row["wrong"] = len(one.wrong(True, in_order=True) + one.wrong(False, in_order=True))
    row["ready_ms"] = f"{verdict.ready_ms:.2f}" if one.compiled else ""
    row |= percentile_columns(verdict.mask_us, "mask_p{}_us", qs=(50, 90, 99, 100))
    row["reason"] = " ".join(reason for _, _, reason in verdict.reasons)[:200]
    return row


def summary(library: str, judged: Sequence[Judged]) -> list[str]:
    compiled = [one for one in judged if one.compiled]
    ready = [one.verdict.ready_ms for one in compiled]
    masks = [us for one in compiled for us in one.verdict.mask_us]
    wrong = sum(bool(one.wrong(True, in_order=True) or one.wrong(False, in_order=True)) for one in judged)
    return [
        library,
        f"{len(compiled)} of {len(judged)}",
        str(wrong),
        " / ".join(f"{ms:.1f}" for ms in percentiles(ready, 50, 90, 100)),
        " / ".join(f"{us:.0f}" for us in percentiles(masks, 50, 90, 99, 100)),
    ]


def main() -> None:
    made = parser(__doc__, "regexes.csv")
    made.add_argument("--grammars", action="store_true", help="grammars, not regular expressions")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME")
    arguments = made.parse_args()
    kind, load, libraries = "regex", load_patterns, list(REGEX_LIBRARIES)
    if arguments.grammars:
        kind, load, libraries = "grammar", load_grammars, list(GRAMMAR_LIBRARIES)
        arguments.results = arguments.results.with_name("grammars.csv")
    samples = load(arguments.only)
    judged = in_turns(samples, libraries)
    rows = [line(name, judged[name][i], kind) for i in range(len(samples)) for name in libraries]
    header = ["library", "compiled", "judged wrongly", "ready p50 / p90 / max ms", "mask p50 / p90 / p99 / max µs"]
    by_library = markdown_table(header, [summary(name, judged[name]) for name in libraries])
    finish(arguments, rows, by_library, whole=not arguments.only)
    for row in rows:
        if row["outcome"] != "compiled" or row["wrong"]:
            print(f"- {row[kind]}, {row['library']}: {row['outcome']}, {row['wrong']} judged wrongly: {row['reason']}")


if __name__ == "__main__":
    main()
