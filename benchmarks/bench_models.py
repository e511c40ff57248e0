"""On which architectures does every way to generate write what transformers' own loop writes?

    python -m benchmarks.bench_models [--only NAME ...] [--task NAME ...] [--column NAME ...] [--no-variants]
        [--workers 1] [--again]

A row is a tiny random model of one architecture, in one variant of its config (``tiny_configs.py``).
docs/architectures.md says what the columns compare (``model_comparisons.py``). Each architecture runs in a process of
its own, with a limit of time and memory, so that a crash is one row. Cells that are in the file already are skipped,
unless ``--again`` is given.

A cell says:

- right: the tokens are the same;
- plain: the decoder left the call to transformers' own loop, for this reason;
- wrong at token N of row R: the first difference;
- error: what was raised;
- transformers itself: plain generate(), without this package, fails or is wrong in this way.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import markdown_table, origin, parser, read_csv, write_csv

LIMIT_S, LIMIT_BYTES = 120.0, 9 * 2**30
COLUMNS = ("processor", "decoder", "grammar", "lookup", "steps", "static", "continuous")
FIELDS = ("task", "model", "class", "variant", "built", *COLUMNS, "seconds")
VARIANT_COLUMNS = ("decoder", "lookup", "steps", "static")  # of the variants that are not the base
TASKS = ("causal", "seq2seq", "image")
BASE = "base"
PRELOADED = (
    "benchmarks.model_comparisons",
    "transformers.generation.continuous_batching",
    "transformers.models.llama.modeling_llama",
    "hf_guided.generation.api",
    "hf_guided.backends.network",
    "hf_guided.backends.llguidance",
)
COMMON = (
    "llama qwen2 qwen3 mistral gemma3_text gemma2 phi3 gpt2 mixtral bloom gpt_neo mamba falcon_mamba recurrent_gemma "
    "t5 bart llava qwen2_vl qwen3_moe gpt_oss deepseek_v3 olmo3 cohere2 falcon opt gpt_neox phi qwen3_next "
    "qwen3_5_text gemma3n_text gemma4_text jamba bamba zamba2 lfm2 mamba2 rwkv granite smollm3 llama4_text starcoder2"
).split()

Row = dict[str, str]


class Job(NamedTuple):
    """One architecture: a task's mapping, a config type in it, and the class of the model."""

    task: str
    model: str
    class_name: str


class Request(NamedTuple):
    """The wanted columns of an architecture: of the base of its config, or of all other variants."""

    base: bool
    columns: Sequence[str]


def jobs(tasks: Sequence[str], only: Sequence[str]) -> list[Job]:
    """The architectures, the most used families first."""
    from benchmarks.tiny_models import MAPPINGS

    found = [Job(task, name, class_name) for task in tasks for name, class_name in MAPPINGS[task].items()]
    found = [job for job in found if not only or job.model in only]
    return sorted(found, key=lambda job: COMMON.index(job.model) if job.model in COMMON else len(COMMON))


# -- in the process of one architecture --------------------------------------------------------------------------------


def work(job: Job, request: Request, connection: Connection) -> None:
    """Send (variant, cells), a few cells at a time."""
    resource.setrlimit(resource.RLIMIT_AS, (LIMIT_BYTES, LIMIT_BYTES))
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115 (until the process ends)
    warnings.simplefilter("ignore")
    gc.freeze()  # continuous batching collects garbage, which takes long among all that has been imported

    import torch
    import transformers

    from benchmarks.model_cases import describe, usable_case
    from benchmarks.model_comparisons import Comparisons
    from benchmarks.tiny_configs import variants

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    try:
        changes = variants(job.model)
    except Exception as error:
        connection.send((BASE, {"built": f"error: {describe(error)}"}))
        return
    for variant, change in changes.items():
        if (variant == BASE) != request.base:
            continue
        began = time.perf_counter()
        case, built = usable_case(job.model, job.class_name, change)
        connection.send((variant, {"built": built}))
        if case is None:
            continue
        comparisons = Comparisons(case)
        for column in request.columns:
            connection.send((variant, {column: comparisons.cell(column)}))
        connection.send((variant, {"seconds": f"{time.perf_counter() - began:.1f}"}))


# -- in the process that writes the table ------------------------------------------------------------------------------


def run(job: Job, request: Request, limit: float) -> list[Row]:
    """The rows of one architecture.

    Args:
        job: the architecture.
        request: what is wanted of it.
        limit: seconds for each variant.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(job, request, theirs))
    process.start()
    theirs.close()
    rows: dict[str, Row] = {}
    problem = ""
    for variant, cells in _received(ours, process, limit):
        if variant:
            rows.setdefault(variant, {}).update(cells)
        else:
            problem = cells["problem"]
    process.kill()
    process.join()
    if problem:
        row = next((row for row in rows.values() if "seconds" not in row), rows.setdefault(BASE, {}))
        row[next((name for name in ("built", *request.columns) if name not in row), "built")] = problem
    return [
        {"task": job.task, "model": job.model, "class": job.class_name, "variant": variant, **cells}
        for variant, cells in rows.items()
    ]


def _received(connection: Connection, process: Any, limit: float) -> Iterator[tuple[str, Row]]:
    """What a process sends; at the end, if it died or took too long, ("", the problem)."""
    ends, last = time.monotonic() + limit, ""
    while True:
        try:
            if not connection.poll(max(0.0, ends - time.monotonic())):
                yield "", {"problem": f"error: not done in {limit:.0f} s"}
                return
            variant, cells = connection.recv()
        except EOFError:
            process.join(5)
            if process.exitcode != 0:
                yield "", {"problem": f"error: the process ended with {process.exitcode}"}
            return
        if variant != last:
            ends, last = time.monotonic() + limit, variant
        yield variant, cells


class Results:
    """The rows of the results file, written again after each architecture.

    Args:
        path: the file; it may exist.
    """

    def __init__(self, path: Path):
        self._path = path
        self.rows: list[Row] = [{"load": "", **row} for row in read_csv(path)] if path.exists() else []

    def missing(self, job: Job, request: Request) -> list[str]:
        """The columns of a request that the file does not have."""
        rows = [row for row in self.rows if _key(row) == job and (row["variant"] == BASE) == request.base]
        built = [row for row in rows if row["built"].startswith("float")]
        return [name for name in request.columns if not rows or any(not row[name] for row in built)]

    def put(self, job: Job, found: Sequence[Row]) -> None:
        """Add cells of an architecture, in place of older ones."""
        old = {row["variant"]: row for row in self.rows if _key(row) == job}
        new = [{**dict.fromkeys(FIELDS, ""), **old.pop(row["variant"], {}), **row, **origin()} for row in found]
        if any(row["variant"] != BASE for row in new):  # all of them: others are variants of an earlier time
            old = {variant: row for variant, row in old.items() if variant == BASE}
        self.rows = [row for row in self.rows if _key(row) != job] + [*old.values(), *new]
        write_csv(self._path, sorted(self.rows, key=lambda row: (TASKS.index(row["task"]), row["model"])))


def _key(row: Row) -> Job:
    return Job(row["task"], row["model"], row["class"])


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


def main() -> None:
    made = parser(__doc__, "models.csv")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="config types, as qwen2 or t5")
    made.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    made.add_argument("--column", nargs="+", choices=COLUMNS, default=list(COLUMNS))
    made.add_argument("--no-variants", action="store_true", help="only the base variant")
    made.add_argument("--again", action="store_true", help="run also what the file has")
    made.add_argument("--workers", type=int, default=1)
    made.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one variant")
    arguments = made.parse_args()
    results = Results(arguments.csv)
    for base in (True,) if arguments.no_variants else (True, False):
        wanted = Request(base, [name for name in arguments.column if base or name in VARIANT_COLUMNS])
        requests = {job: wanted for job in jobs(arguments.task, arguments.only)}
        if not arguments.again:
            requests = {job: wanted._replace(columns=results.missing(job, wanted)) for job in requests}
        waiting = [(job, request) for job, request in requests.items() if request.columns]
        with ThreadPoolExecutor(arguments.workers) as pool:
            found = pool.map(lambda item: (item[0], run(*item, arguments.limit)), waiting)
            for job, rows in found:
                results.put(job, rows)
                for row in rows:
                    good = ("", "right", "float64")
                    bad = {name: row[name] for name in ("built", *COLUMNS) if row.get(name, "") not in good}
                    print(f"{job.task:8}{job.model:24}{row['variant']:10}{row.get('seconds', ''):>6} s  {bad or ''}")
                    sys.stdout.flush()


if __name__ == "__main__":
    main()
