"""How soon are grammars ready, and how fast are their masks? On those of grammars.json.

    python -m benchmarks.bench_grammars [--only NAME ...] [--backend native|xgrammar ...]

Forty grammars in GBNF of the kinds that people write, each with texts that match and texts that do not. A text is
tokenized with Tekken and walked through the masks: one that matches must pass, another must be refused somewhere.
hf-guided compiles by ``Guide.compile`` with its default options, by each backend named, as a processor does, and with a
limit of 512 tokens as ``hg.generate`` does. The processes, the turns, "ready" and the limits are those of
bench_schemas.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_regexes import line, summary, table
from benchmarks.bench_schemas import Sample, Text, in_turns
from benchmarks.common import RESULTS, hardware, load_average, markdown_table, write_csv
from benchmarks.regex_libraries import GRAMMAR_BACKENDS, name_of

GRAMMARS = Path(__file__).with_name("grammars.json")


def load_grammars(only: Sequence[str] = ()) -> list[Sample]:
    """The grammars with their texts."""
    rows = json.loads(GRAMMARS.read_text(encoding="utf-8"))
    return [
        Sample(
            row["name"],
            "\n".join(row["grammar"]),
            tuple([Text(text, kind == "valid", True, True) for kind in ("valid", "invalid") for text in row[kind]]),
        )
        for row in rows
        if not only or row["name"] in only
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of grammars")
    parser.add_argument("--backend", nargs="+", choices=GRAMMAR_BACKENDS, default=["native"], help="of hf-guided")
    parser.add_argument("--seconds", type=float, default=20.0, help="a grammar may take")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="a process may hold")
    parser.add_argument("--csv", type=Path, default=RESULTS / "grammars.csv")
    arguments = parser.parse_args()
    samples = load_grammars(arguments.only)
    libraries = [
        name_of(backend, limited=limited, what=" of grammars")
        for backend in arguments.backend
        for limited in (False, True)
    ]
    judged = in_turns(samples, libraries, arguments.seconds, int(arguments.gigabytes * 2**30))
    rows = [line(name, judged[name][i], "grammar") for i in range(len(samples)) for name in libraries]
    if not arguments.only:
        write_csv(arguments.csv, rows)
    header = ["library", "compiled", "judged wrongly", "ready p50 / p90 / max ms", "mask p50 / p90 / p99 / max µs"]
    print(f"{table(rows, libraries, 'grammar')}\n")
    print(markdown_table(header, [summary(name, judged[name]) for name in libraries]))
    print(f"\n{hardware()}, load {load_average()}.")
    for row in rows:
        if row["outcome"] != "compiled":
            print(f"- {row['grammar']}, {row['library']}: {row['outcome']}: {row['reason']}")


if __name__ == "__main__":
    main()
