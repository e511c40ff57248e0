"""Writes the tables of the README and of pages in docs/ from the rows in results/, so that none is typed by hand.

python -m benchmarks.readme_tables
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import (
    bench_decode,
    bench_forwards,
    bench_models,
    bench_modes,
    bench_processor,
    bench_schemas,
    bench_serve,
    bench_serve_engines,
    bench_suite,
    bench_tags,
    compare,
)
from benchmarks.common import RESULTS, ROOT, Row, machine, read_csv, table_of

README, MEASURED, ARCHITECTURES = ROOT / "README.md", ROOT / "docs" / "measured.md", ROOT / "docs" / "architectures.md"

TABLES: dict[str, tuple[str, Callable[[Sequence[Row]], str]]] = {
    "compare": ("compare", compare.table),
    "bench_modes": ("modes", bench_modes.table),
    "bench_processor": ("processor", bench_processor.table),
    "bench_schemas": ("schemas", bench_schemas.table),
    "bench_suite": ("suite", bench_suite.table),
    "bench_tags": ("tags", bench_tags.table),
    "bench_soundness": ("soundness", table_of),
    "bench_differential": ("differential", table_of),
    "soak": ("soak", table_of),
    "bench_serve": ("serve", bench_serve.table),
    "bench_serve_engines": ("serve_engines", bench_serve_engines.table),
    "bench_decode": ("decode", bench_decode.table),
    "bench_forwards": ("forwards", bench_forwards.table),
    "bench_jobs": ("jobs", table_of),
    "bench_models": ("models", bench_models.table),
}
"""By script: its file in results/, and the function that writes its table."""


def written(name: str) -> str:
    """A script's table, from its rows, and what they were measured on."""
    results, table = TABLES[name]
    rows = read_csv(RESULTS / f"{results}.csv")
    return f"{table(rows)}\n\n{machine(rows)}"


def documents_of(name: str) -> tuple[Path, ...]:
    """The documents that show a script's table; each shows it once."""
    return {"compare": (README, MEASURED), "bench_models": (ARCHITECTURES,)}.get(name, (MEASURED,))


def main() -> None:
    texts = {document: document.read_text(encoding="utf-8") for document in (README, MEASURED, ARCHITECTURES)}
    for name in TABLES:
        table = written(name)
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
