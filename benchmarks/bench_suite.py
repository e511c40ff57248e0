"""How much of the JSON-Schema-Test-Suite does each library handle fully? Drafts 7 and 2020-12, byte by byte.

    python -m benchmarks.bench_suite [--library NAME ...] [--spelling canonical|any] [--list]

A group (a schema and its tests) is handled fully if the schema compiles, every valid instance is accepted and every
invalid one refused; or if it says that no value fits, and none of the tests is valid. See json_schema_suite.py for what
is read. Keys stand in the order the schema declares. Only hf-guided can be given the remote documents. A group that
takes more than the limits of time or memory ends its library's process and costs only itself.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, markdown_table, write_csv
from benchmarks.json_schema_suite import load_groups, mistakes, suite_folder, summary
from benchmarks.schema_libraries import add_libraries, libraries_of
from benchmarks.schema_worker import Worker


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each library; all counts are groups."""
    header = ["library", "handled fully", "refused", "valid refused", "invalid accepted", "failed"]
    return markdown_table(
        header,
        [
            [
                row["library"],
                f"{row['handled']} of {row['groups']} ({float(row['share']):.1%})",
                *(str(row[what]) for what in ("refused", "valid_refused", "invalid_accepted", "failed")),
            ]
            for row in rows
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_libraries(parser)
    parser.add_argument("--list", action="store_true", help="print what was judged wrongly")
    parser.add_argument("--seconds", type=float, default=20.0, help="a group may take")
    parser.add_argument("--csv", type=Path, default=RESULTS / "suite.csv")
    arguments = parser.parse_args()
    if not suite_folder().is_dir():
        raise SystemExit(f"{suite_folder()} is missing; set HF_GUIDED_DATA to the folder that holds it")
    groups = list(load_groups())
    rows = []
    for name in libraries_of(arguments):
        worker = Worker(name, "bytes", arguments.seconds)
        judged = [(group, worker(group.job)) for group in groups]
        worker.stop()
        rows.append(summary(name, judged))
        if arguments.list:
            for group, verdict in judged:
                for mistake in mistakes(group, verdict):
                    print(f"{name}: {': '.join(part for part in mistake if part)}")
    write_csv(arguments.csv, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
