"""The tables of docs/architectures.md, from the rows of bench_models.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.bench_models import BASE, COLUMNS, TASKS, Row
from benchmarks.common import markdown_table

TITLES = {"causal": "Decoders", "seq2seq": "Encoder-decoders and speech", "image": "Images and text"}
KINDS = {
    "right": "✓",
    "plain": "plain",
    "host": "host",
    "transformers itself": "t",
    "not supported": "t",
    "wrong": "✗",
    "error": "✗",
}
"""How a cell begins, and its mark in the table."""


def mark(cell: str) -> str:
    """The mark of a cell; empty if it was not run."""
    return next((mark for kind, mark in KINDS.items() if cell.startswith(kind)), cell)


def is_built(row: Row) -> bool:
    """Whether there is a model."""
    return row["built"].startswith("float")


def table(rows: Sequence[Row]) -> str:
    """Markdown: counts, a table for each task, what the cells without a ✓ say, and what could not be built."""
    parts = [_counts(rows)]
    for task in TASKS:
        of_task = [row for row in rows if row["task"] == task]
        if not of_task:
            continue
        cells = [
            [row["model"], row["variant"], *(mark(row[name]) for name in COLUMNS)] for row in of_task if is_built(row)
        ]
        parts += [f"## {TITLES[task]}", markdown_table(["model", "variant", *COLUMNS], cells)]
        if notes := list(_notes(of_task)):
            parts += ["Cells without a ✓:", "\n".join(notes)]
        if missing := [f"- {row['model']}: {_escaped(row['built'])}" for row in of_task if not is_built(row)]:
            parts += ["Not built:", "\n".join(missing)]
    return "\n\n".join(parts)


def _counts(rows: Sequence[Row]) -> str:
    lines = []
    for task in TASKS:
        base = [row for row in rows if row["task"] == task and row["variant"] == BASE]
        built = [row for row in base if is_built(row)]
        others = [row for row in rows if row["task"] == task and row["variant"] != BASE and is_built(row)]
        cells = [mark(row[name]) for row in [*built, *others] for name in COLUMNS if row[name]]
        counts = [str(sum(cell in marks for cell in cells)) for marks in (("✓",), ("plain", "host"), ("t",), ("✗",))]
        lines.append([TITLES[task], str(len(base)), str(len(built)), str(len(others)), *counts])
    header = ["", "architectures", "built", "further variants", "✓", "plain or host", "t", "✗"]
    return markdown_table(header, lines)


def _notes(rows: Sequence[Row]) -> Iterator[str]:
    """What the cells of a row say, columns with the same text together."""
    for row in rows:
        texts: dict[str, list[str]] = {}
        for name in COLUMNS:
            if row[name] and mark(row[name]) != "✓" and not row[name].startswith("not supported"):
                texts.setdefault(row[name], []).append(name)
        for text, names in texts.items():
            variant = "" if row["variant"] == BASE else f", {row['variant']}"
            yield f"- {row['model']}{variant}: {', '.join(names)}: {_escaped(text)}"


def _escaped(text: str) -> str:
    """An error's text as literal text of Markdown."""
    return f"`{text.replace('`', chr(39))}`"
