"""Writes the tables of the README and of pages in docs/ from the rows in results/, so that none is typed by hand.

python -m benchmarks.readme_tables
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    bench_decode,
    bench_differential,
    bench_forwards,
    bench_jobs,
    bench_schemas,
    bench_serve,
    bench_serve_engines,
    bench_soundness,
    bench_suite,
    bench_tags,
    compare_table,
    models_table,
    soak_report,
)

ROOT = Path(__file__).parents[1]
README, MEASURED, ARCHITECTURES = ROOT / "README.md", ROOT / "docs" / "measured.md", ROOT / "docs" / "architectures.md"

Row = dict[str, str]


def rows_of(name: str) -> list[Row]:
    with (ROOT / "benchmarks" / "results" / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def machine(row: Row) -> str:
    """What the rows were measured on."""
    versions = ", ".join(f"{name} {row[name]}" for name in ("torch", "transformers", "xgrammar", "llguidance"))
    return f"{row['hardware']}, Python {row['python']}, {versions}, {row['date']}"


def compare_rows(rows: list[Row]) -> str:
    loads = sorted((load for row in rows for load in row["load"].split(" to ")), key=float)
    return "\n".join([compare_table.table(rows), "", f"{machine(rows[0])}; load average {loads[0]} to {loads[-1]}."])


def modes_table(rows: list[Row]) -> str:
    verdicts = {(row["mode"], row["library"]): row for row in rows}
    versions = {row["library"]: row["version"] for row in rows}
    lines = [f"| mode | {' | '.join(versions)} |", "| --- " * (len(versions) + 1) + "|"]
    for mode in dict.fromkeys(row["mode"] for row in rows):
        lines.append(f"| {mode} | {' | '.join(verdicts[mode, library]['verdict'] for library in versions)} |")
    named = ("outlines", "lm-format-enforcer", "guidance")
    peers = ", ".join(f"{name} {versions[name]}" for name in named if name in versions)
    return "\n".join([*lines, "", f"{machine(rows[0])}, {peers}."])


def processor_table(rows: list[Row]) -> str:
    lines = [
        "| batch | white space | processor | median ms | p20 - p80 ms | ratio | CPU time ratio | outside the engine |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        outside = f"{float(row['outside_engine']):.1%}" if row["outside_engine"] else ""
        lines.append(
            f"| {row['batch']} | {row['whitespace']} | {row['side']} | {float(row['p50_ms']):.3f} "
            f"| {float(row['p20_ms']):.3f} - {float(row['p80_ms']):.3f} | {float(row['ratio']):.2f} "
            f"| {float(row['cpu_ratio']):.2f} | {outside} |"
        )
    return "\n".join([*lines, "", f"{machine(rows[0])}; {rows[0]['threads']} torch thread."])


def schemas_table(rows: list[Row]) -> str:
    return "\n".join([bench_schemas.table(rows), "", f"{machine(rows[0])}; load average {rows[0]['load']}."])


def suite_table(rows: list[Row]) -> str:
    return "\n".join([bench_suite.table(rows), "", f"{machine(rows[0])}."])


def tags_table(rows: list[Row]) -> str:
    return "\n".join([bench_tags.table(rows), "", f"{machine(rows[0])}; load average {rows[0]['load']}."])


def soundness_table(rows: list[Row]) -> str:
    return "\n".join([bench_soundness.table(rows), "", f"{machine(rows[0])}."])


def differential_table(rows: list[Row]) -> str:
    return "\n".join([bench_differential.table(rows), "", f"{machine(rows[0])}."])


def soak_table(rows: list[Row]) -> str:
    return "\n".join([soak_report.table(rows), "", f"{machine(rows[0])}; load average {rows[0]['load']}."])


def serve_table(rows: list[Row]) -> str:
    return "\n".join([bench_serve.table(rows), "", f"{machine(rows[0])}; load average {rows[0]['load']}."])


def serve_engines_table(rows: list[Row]) -> str:
    loads = sorted({float(row["load"]) for row in rows})
    return "\n".join(
        [bench_serve_engines.table(rows), "", f"{machine(rows[0])}; load average {loads[0]} to {loads[-1]}."]
    )


def decode_table(rows: list[Row]) -> str:
    loads = sorted({float(row["load"]) for row in rows})
    peer = f"outlines {rows[0]['outlines']}; {rows[0]['threads']} torch thread"
    return "\n".join(
        [bench_decode.table(rows), "", f"{machine(rows[0])}, {peer}; load average {loads[0]} to {loads[-1]}."]
    )


def forwards_table(rows: list[Row]) -> str:
    return "\n".join([bench_forwards.table(rows), "", f"{machine(rows[0])}."])


def jobs_table(rows: list[Row]) -> str:
    versions = ", ".join(f"{row['way']} {row['version']}" for row in rows)
    return "\n".join([bench_jobs.table(rows), "", f"{rows[0]['rows']} rows; {versions}; {machine(rows[0])}."])


def models_tables(rows: list[Row]) -> str:
    return "\n\n".join([models_table.table(rows), f"{machine(rows[0])}."])


TABLES: dict[str, tuple[str, Callable[[list[Row]], str]]] = {
    "compare": ("compare", compare_rows),
    "bench_modes": ("modes", modes_table),
    "bench_processor": ("processor", processor_table),
    "bench_schemas": ("schemas", schemas_table),
    "bench_suite": ("suite", suite_table),
    "bench_tags": ("tags", tags_table),
    "bench_soundness": ("soundness", soundness_table),
    "bench_differential": ("differential", differential_table),
    "soak": ("soak", soak_table),
    "bench_serve": ("serve", serve_table),
    "bench_serve_engines": ("serve_engines", serve_engines_table),
    "bench_decode": ("decode", decode_table),
    "bench_forwards": ("forwards", forwards_table),
    "bench_jobs": ("jobs", jobs_table),
    "bench_models": ("models", models_tables),
}
"""Of each script: its file in results/, and what writes its table."""


def documents_of(name: str) -> tuple[Path, ...]:
    """The documents that show a script's table; each shows it once."""
    return {"compare": (README, MEASURED), "bench_models": (ARCHITECTURES,)}.get(name, (MEASURED,))


def main() -> None:
    texts = {document: document.read_text(encoding="utf-8") for document in (README, MEASURED, ARCHITECTURES)}
    for name, (results, write) in TABLES.items():
        table = write(rows_of(results))
        pattern = re.compile(rf"(<!-- {name}: the table.*?-->\n).*?(<!-- {name}: end -->)", re.DOTALL)
        for document in documents_of(name):
            text, count = pattern.subn(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", texts[document])
            if count != 1:
                raise SystemExit(f"{document}: expected the markers of {name} once, found them {count} times")
            texts[document] = text
    for document, text in texts.items():
        document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
