"""On which architectures does every way to generate write what transformers' own loop writes?

    python -m benchmarks.bench_models [--only NAME ...] [--again]

A row is a tiny random model of one architecture, in one variant of its config (``tiny_models.py``).
docs/architectures.md says what the columns compare (``model_comparisons.py``). Cells run in a process with a limit of
time and memory, so that a crash is one cell. Cells that are in the file already are skipped, unless ``--again`` is
given.

A cell says:

- right: the tokens are the same;
- plain: the decoder left the call to transformers' own loop, for this reason;
- wrong at token N of row R: the first difference;
- error: what was raised;
- transformers itself: plain generate(), without this package, fails or is wrong in this way.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.common import markdown_table, origin, parser, read_csv, write_csv
from benchmarks.processes import JobProcess, Killed, quiet, serve

LIMIT_S, LIMIT_BYTES = 120.0, 9 * 2**30  # limits: seconds of a cell, bytes of its process
COLUMNS = ("processor", "decoder", "grammar", "lookup", "steps", "static", "continuous")
VARIANT_COLUMNS = ("decoder", "lookup", "steps", "static")  # of the variants that are not the base
KEY = ("task", "model", "class", "variant")
FIELDS = (*KEY, "built", *COLUMNS)
GOOD = ("", "right", "float64")  # cells that are not printed
TASKS = ("causal", "seq2seq", "image")
BASE = "base"

Row = dict[str, str]


# -- in the process of the models --------------------------------------------------------------------------------------


class Models:
    """Answers questions about one model after the other: the variants of a config, or a cell of a model."""

    def __init__(self) -> None:
        self._model: tuple[str, ...] = ()

    def __call__(self, question: dict[str, str]) -> Any:
        from benchmarks.model_comparisons import Comparisons, describe, usable_case
        from benchmarks.tiny_models import variants

        if question["column"] == "variants":
            try:
                return [*variants(question["model"])]
            except Exception as error:
                return f"error: {describe(error)}"
        wanted = tuple(question[name] for name in KEY)
        if wanted != self._model:
            change = variants(question["model"])[question["variant"]]
            case, self._built = usable_case(question["model"], question["class"], change)
            self._comparisons = case and Comparisons(case)
            self._model = wanted
        if question["column"] == "built":
            return self._built
        assert self._comparisons is not None
        return self._comparisons.cell(question["column"])


# -- in the process that writes the table ------------------------------------------------------------------------------


def architectures(only: Sequence[str]) -> list[Row]:
    """Task, config type and class of each model."""
    from benchmarks.tiny_models import MAPPINGS

    return [
        {"task": task, "model": name, "class": class_name}
        for task in TASKS
        for name, class_name in MAPPINGS[task].items()
        if not only or name in only
    ]


def ask(process: JobProcess, row: Row, column: str) -> Any:
    """The answer to a question about a row; the text of an error if the process was ended."""
    try:
        return process.ask({**row, "column": column})
    except Killed as killed:
        if killed.outcome == "timeout":
            return f"error: not done in {LIMIT_S:.0f} s"
        return f"error: {killed}"


def rows_of(process: JobProcess, one: Row, known: Sequence[Row]) -> list[Row]:
    """The rows of an architecture; cells of known rows are kept."""
    names = ask(process, one, "variants")
    if isinstance(names, str):
        return [{**one, "variant": BASE, "built": names}]
    rows = []
    for name in names:
        key = {**one, "variant": name}
        row = next((row for row in known if key.items() <= row.items()), key)
        is_known = bool(row.get("built")) and not is_built(row)  # that there is no model
        wanted = [] if is_known else COLUMNS if name == BASE else VARIANT_COLUMNS
        missing = [column for column in wanted if not row.get(column)]
        if missing:
            row = {**row, **origin(), "built": ask(process, key, "built")}
            if is_built(row):
                row |= {column: ask(process, key, column) for column in missing}
            bad = {column: row[column] for column in ("built", *missing) if row.get(column, "") not in GOOD}
            print(f"{one['task']:8}{one['model']:24}{name:10} {bad or ''}", flush=True)
        rows.append({**dict.fromkeys(FIELDS, ""), **row})
    return rows


def main() -> None:
    made = parser(__doc__, "models.csv")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="config types, as qwen2 or t5")
    made.add_argument("--again", action="store_true", help="run also what the file has")
    made.add_argument("--worker", action="store_true", help="the process of the models")
    arguments = made.parse_args()
    if arguments.worker:
        quiet()
        gc.freeze()  # continuous batching collects garbage, which takes long among all that has been imported
        serve(Models())
        return
    process = JobProcess(["benchmarks.bench_models", "--worker"], LIMIT_S, LIMIT_BYTES)
    path = arguments.csv or arguments.results
    read = read_csv(path) if path.exists() else []
    rows = [{name: row.get(name, "") for name in (*FIELDS, *origin())} for row in read]
    for one in architectures(arguments.only):
        known = [row for row in rows if one.items() <= row.items()]
        rows = [row for row in rows if row not in known]
        rows += rows_of(process, one, [] if arguments.again else known)
        rows.sort(key=lambda row: (TASKS.index(row["task"]), row["model"]))
        write_csv(path, rows)  # after each architecture: a run that was stopped continues
    process.stop()


# -- the tables of docs/architectures.md -------------------------------------------------------------------------------

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
    """Texts of the cells without a ✓, columns with the same text together."""
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


if __name__ == "__main__":
    main()
