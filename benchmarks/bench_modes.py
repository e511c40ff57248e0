"""In which generation modes does the output match its constraint? Each library, with the same modes and models.

    python -m benchmarks.bench_modes [--seeds 3] [--limit 60] [--library NAME ...] [--mode NAME ...]

A cell runs a mode for every constraint and seed, on tiny random models, hot where the mode samples. It says:

- works: every finished output is valid (json + jsonschema, re), and at least one is finished;
- crashes: with what;
- wrong output: what, and in how many of the outputs;
- not supported: the library does not offer it.

Each library runs in a process of its own that is stopped when a cell takes longer than the limit ("hangs").
"""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from benchmarks.common import NOT_INSTALLED, Row, finish, installed, markdown_table, parser, python_for
from benchmarks.libraries import LIBRARIES, Constraint, NotSupported
from benchmarks.modes import CONSTRAINTS, MODES, Bench, WrongOutput, finished_text, problem, run_once
from benchmarks.processes import JobProcess, Killed, quiet, serve
from tests.vocabularies import demo


@dataclass
class Cell:
    mode: str
    library: str
    verdict: str  # works | crashes: X | wrong output: what | not supported | hangs
    detail: str
    finished: int
    outputs: int
    runs: int
    seconds: float


@dataclass
class Run:
    """One constraint and seed: what came out, or what was raised."""

    problems: list[str | None]  # for each output: "" valid, text = what is wrong, None = not finished
    error: str = ""
    detail: str = ""


def judge(runs: Sequence[Run]) -> tuple[str, str]:
    """Verdict and detail of a cell from its runs."""
    crashed = [run for run in runs if run.error]
    if crashed:
        name, _ = Counter(run.error for run in crashed).most_common(1)[0]
        share = "" if len(crashed) == len(runs) else f" ({len(crashed)} of {len(runs)} runs)"
        return f"crashes: {name}{share}", next(run.detail for run in crashed if run.error == name)
    outputs = [one for run in runs for one in run.problems]
    wrong = [one for one in outputs if one]
    if wrong:
        what, _ = Counter(wrong).most_common(1)[0]
        detail = next((run.detail for run in runs if run.detail), "")
        return f"wrong output: {what} ({len(wrong)} of {len(outputs)})", detail
    if all(one is None for one in outputs):
        return f"wrong output: none of {len(outputs)} ends", ""
    return "works", ""


def run_cell(bench: Bench, mode: str, seeds: int) -> Cell:
    name = bench.library_type.name
    began = time.perf_counter()
    runs: list[Run] = []
    for constraint in CONSTRAINTS:
        for seed in range(seeds):
            try:
                runs.append(_run(bench, mode, constraint, seed))
            except NotSupported as error:
                return Cell(mode, name, "not supported", str(error), 0, 0, 0, time.perf_counter() - began)
    verdict, detail = judge(runs)
    outputs = [one for run in runs for one in run.problems]
    finished = sum(one is not None for one in outputs)
    seconds = round(time.perf_counter() - began, 2)
    return Cell(mode, name, verdict, detail, finished, len(outputs), len(runs), seconds)


def _run(bench: Bench, mode: str, constraint: Constraint, seed: int) -> Run:
    try:
        rows = run_once(bench, mode, constraint, seed)
    except NotSupported:
        raise
    except WrongOutput as error:
        return Run([str(error)], detail=str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1].line or ""  # a bare assert has no message
        return Run([], type(error).__name__, " ".join((str(error) or where).split())[:160])
    texts = [finished_text(row.output, bench.tokenizer.decode) for row in rows]
    problems = [None if text is None else problem(row.constraint, text) for row, text in zip(rows, texts, strict=True)]
    bad = next((text for text, what in zip(texts, problems, strict=True) if what), None)
    return Run(problems, detail="" if bad is None else f"got {bad[:80]!r}")


def run_library(library: str, modes: Sequence[str], seeds: int, limit: float) -> Iterator[Cell]:
    """Every cell of one library; a process that hangs or dies loses its cell."""
    command = ["benchmarks.bench_modes", "--worker", library, "--seeds", str(seeds)]
    process = JobProcess(command, limit, python=python_for(LIBRARIES[library].package))
    for mode in modes:
        try:
            yield Cell(**process.ask(mode))
        except Killed as killed:
            verdict = "hangs" if killed.outcome == "timeout" else f"crashes: process ended with {killed.returncode}"
            yield Cell(mode, library, verdict, "", 0, 0, 0, limit)
    process.stop()


def worker(library: str, seeds: int) -> None:
    quiet()
    bench = Bench(LIBRARIES[library], demo())
    _ = bench.library  # made here, so that its imports count for no cell
    serve(lambda mode: asdict(run_cell(bench, mode, seeds)))


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each mode, a column for each library, in the order of the rows."""
    versions = {row["library"]: row["version"] for row in rows}
    verdicts = {(row["mode"], row["library"]): row["verdict"] for row in rows}
    header = ["mode", *(f"{name} {version}" for name, version in versions.items())]
    modes = dict.fromkeys(row["mode"] for row in rows)
    return markdown_table(header, [[mode, *(verdicts.get((mode, name), "") for name in versions)] for mode in modes])


def main() -> None:
    made = parser(__doc__, "modes.csv")
    there = [name for name, library in LIBRARIES.items() if installed(library.package) != NOT_INSTALLED]
    made.add_argument("--library", nargs="+", choices=LIBRARIES, default=there)
    made.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    made.add_argument("--seeds", type=int, default=3)
    made.add_argument("--limit", type=float, default=60.0, help="seconds a cell may take")
    made.add_argument("--worker", help="one library's process")
    arguments = made.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.seeds)
        return
    cells = []
    for library in arguments.library:
        for cell in run_library(library, arguments.mode, arguments.seeds, arguments.limit):
            print(f"{library:20} {cell.mode:34} {cell.seconds:5.1f} s  {cell.verdict}  {cell.detail}", file=sys.stderr)
            cells.append(cell)
    cells.sort(key=lambda cell: (arguments.mode.index(cell.mode), arguments.library.index(cell.library)))
    rows = [{**asdict(cell), "version": installed(LIBRARIES[cell.library].package)} for cell in cells]
    finish(arguments, rows, table(rows), whole=(arguments.library, arguments.mode) == (there, list(MODES)))


if __name__ == "__main__":
    main()
