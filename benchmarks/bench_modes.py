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

import argparse
import json
import logging
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import PIPE

import torch
import transformers

from benchmarks.common import (
    NOT_INSTALLED,
    RESULTS,
    hardware,
    installed,
    load_average,
    markdown_table,
    origin,
    python_for,
    write_csv,
)
from benchmarks.libraries import LIBRARIES, Constraint, NotSupported, lm_format_enforcer_import_error
from benchmarks.modes import CONSTRAINTS, HOT, MODES, Bench, WrongOutput, finished_text, problem, run_once
from benchmarks.processes import Lines, read_in_background
from tests.vocabularies import demo

STARTING = 180.0  # seconds for the imports of a worker


@dataclass
class Cell:
    """What one library did in one mode."""

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
    """Run one mode on one library."""
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


# -- one process per library -------------------------------------------------------------------------------------------


def worker(library: str, modes: Iterable[str], seeds: int) -> None:
    """Print a JSON line for each mode when it is done."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    bench = Bench(LIBRARIES[library], demo())
    _ = bench.library  # started here, so that its imports count for no cell
    print("ready", flush=True)
    for mode in modes:
        print(json.dumps(asdict(run_cell(bench, mode, seeds))), flush=True)


def run_library(library: str, modes: Sequence[str], seeds: int, limit: float) -> Iterator[Cell]:
    """Every cell of one library; a process that hangs or dies loses its cell, and the next process starts after it."""
    waiting = list(modes)
    while waiting:
        python = python_for(LIBRARIES[library].package)
        command = [python, "-m", "benchmarks.bench_modes", "--worker", library, "--seeds", str(seeds)]
        process = subprocess.Popen(
            [*command, "--mode", *waiting], stdout=PIPE, stderr=PIPE, text=True, cwd=Path(__file__).parents[1]
        )
        lines = Lines(process.stdout)
        errors: list[str] = []
        read_in_background(process.stderr, errors.append)
        if lines.next(STARTING) != "ready":
            process.kill()
            raise SystemExit(f"{library} could not be started:\n{''.join(errors)[-2000:]}")
        while waiting:
            line = lines.next(limit)
            if not line:
                break
            waiting.pop(0)
            yield Cell(**json.loads(line))
        process.kill()
        if waiting:
            verdict = "hangs" if line is None else f"crashes: process ended with {process.wait()}"
            yield Cell(waiting.pop(0), library, verdict, "".join(errors)[-160:].strip(), 0, 0, 0, limit)
        process.wait()


# -- the table ---------------------------------------------------------------------------------------------------------


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a line for each mode, a column for each library, in the order of the cells."""
    libraries = list(dict.fromkeys(cell.library for cell in cells))
    modes = list(dict.fromkeys(cell.mode for cell in cells))
    verdicts = {(cell.mode, cell.library): cell.verdict for cell in cells}
    header = ["mode", *(f"{name} {installed(LIBRARIES[name].package)}" for name in libraries)]
    return markdown_table(header, [[mode, *(verdicts.get((mode, name), "") for name in libraries)] for mode in modes])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    there = [name for name, library in LIBRARIES.items() if installed(library.package) != NOT_INSTALLED]
    parser.add_argument("--library", nargs="+", choices=LIBRARIES, default=there)
    parser.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds a cell may take")
    parser.add_argument("--csv", type=Path, default=RESULTS / "modes.csv")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.mode, arguments.seeds)
        return
    cells = []
    for library in arguments.library:
        for cell in run_library(library, arguments.mode, arguments.seeds, arguments.limit):
            print(
                f"{cell.library:20} {cell.mode:34} {cell.seconds:5.1f} s  {cell.verdict}  {cell.detail}",
                file=sys.stderr,
            )
            cells.append(cell)
    cells.sort(key=lambda cell: (arguments.mode.index(cell.mode), arguments.library.index(cell.library)))
    versions = {name: installed(LIBRARIES[name].package) for name in arguments.library}
    write_csv(
        arguments.csv, [{**asdict(cell), "version": versions[cell.library], "load": load_average()} for cell in cells]
    )
    print(table(cells))
    made = origin()
    print(
        f"\n{len(CONSTRAINTS)} constraints x {arguments.seeds} seeds a cell, temperature {HOT['temperature']} where it "
        f"samples; transformers {made['transformers']}, torch {made['torch']}, {hardware()}, {made['date']}.\n"
    )
    for library in arguments.library:
        if LIBRARIES[library].remark:
            print(f"- {library}: {LIBRARIES[library].remark}.")
    if "lm-format-enforcer" in arguments.library and (error := lm_format_enforcer_import_error()):
        print(f"- importing lmformatenforcer.integrations.transformers: ImportError: {error}")


if __name__ == "__main__":
    main()
