"""hf-guided and its peers side by side: one run, one machine, one table.

    HF_GUIDED_BENCH_GUIDANCE=ITS_PYTHON python -m benchmarks.compare [--schemas 12] [--rows 4] [--measure NAME ...]

A short run of what the other scripts here measure at length, with their own code, on one shared set:

- modes: bench_modes.py, two seeds;
- schemas: bench_schemas.py, every so many of the sample's schemas; "judged exactly" with keys in declared order.
  Figures are over all that a library compiled, ratios over the schemas that both compiled, for masks those that both
  judge alike;
- steps: bench_processor.py, the compact 12-field record (compare_steps.py); ratios are of wall time;
- forwards: the demo model's greedy answers, one prompt at a time; calls of the model are counted (compare_worker.py);
- budget: bench_budget.py, the hot model at one, two and four times what hf-guided states as the minimum.

Correctness is judged by ``json`` + ``jsonschema`` and ``re``. A library that is not there has a column that says so;
one that cannot live beside the others runs in another Python, which HF_GUIDED_BENCH_<PACKAGE> names.
"""

from __future__ import annotations

import argparse
import csv
import json
import statistics
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import bench_budget, bench_modes, bench_schemas, compare_table
from benchmarks.bench_processor import Taken, summary
from benchmarks.bench_schemas import Judged
from benchmarks.common import NOT_INSTALLED, RESULTS, hardware, installed, load_average, origin, python_for, write_csv
from benchmarks.compare_steps import processor_steps
from benchmarks.compare_table import Figure, Measure, table
from benchmarks.libraries import LIBRARIES
from benchmarks.modes import MODES
from benchmarks.processes import JobProcess, Killed
from benchmarks.schema_libraries import XGrammar

OURS = "hf-guided"
COLUMNS = (OURS, *(name for name in LIBRARIES if name != OURS))
SCHEMA_NAMES = {"xgrammar.contrib.hf": XGrammar.name}
"""Of libraries that have another name among those for schemas."""
BUDGETS = (1.0, 2.0, 4.0)
JOB_SECONDS = 600.0
SCHEMA_SECONDS = 20.0


class Asking:
    """A process of compare_worker.py for each library."""

    def __init__(self, libraries: Sequence[str]):
        self._processes = {name: _process(name) for name in libraries}

    def __call__(self, library: str, measure: str, **job: Any) -> dict[str, Any]:
        """The answer, which is ``{"error": ...}`` where the library failed."""
        try:
            answer: dict[str, Any] = json.loads(self._processes[library].ask(json.dumps({"measure": measure, **job})))
        except Killed as killed:
            return {"error": killed.outcome}
        return answer

    def stop(self) -> None:
        for process in self._processes.values():
            process.stop()


def _process(library: str) -> JobProcess:
    python = python_for(LIBRARIES[library].package)
    return JobProcess(["benchmarks.compare_worker", library], JOB_SECONDS, python=python)


def failure(answer: Mapping[str, Any]) -> str:
    """What a cell says in place of a figure."""
    return "not supported" if answer["error"] == "NotSupported" else f"raises {answer['error']}"


# -- the measures ------------------------------------------------------------------------------------------------------


def modes(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    for name in libraries:
        cells = list(bench_modes.run_library(name, list(MODES), 2, 60.0))
        others = [f"{cell.mode}: {cell.verdict}" for cell in cells if cell.verdict != "works"]
        yield Figure(compare_table.MODES, name, len(cells) - len(others), len(cells), detail="; ".join(others))


def schemas(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    samples = bench_schemas.load_samples()
    chosen = samples[:: max(1, len(samples) // arguments.schemas)]
    own = {name: SCHEMA_NAMES.get(name, name) for name in libraries}
    judged = bench_schemas.in_turns(chosen, list(own.values()), SCHEMA_SECONDS, 4 * 2**30)
    for name in libraries:
        yield from schema_figures(name, judged[own[name]], judged.get(OURS, ()))


def schema_figures(library: str, judged: Sequence[Judged], ours: Sequence[Judged]) -> Iterator[Figure]:
    """What a library made of the schemas.

    Args:
        library: its name.
        judged: its verdicts.
        ours: hf-guided's on the same schemas, for the ratios.
    """
    found = bench_schemas.summary(library, judged, ours)
    outcomes = {one: found[one] for one in ("refused", "crashed", "beyond_limits", "valid_refused_in_order")}
    detail = ", ".join(f"{one.replace('_', ' ')} {count}" for one, count in outcomes.items())
    with_instances = int(found["with_instances"])
    yield Figure(compare_table.COMPILED, library, found["compiled"], len(judged), detail=detail)
    yield Figure(compare_table.EXACT, library, found["passing_in_order"], with_instances, detail=detail)
    yield Figure(compare_table.LOOSE, library, found["invalid_accepted"], with_instances)
    times = [one.verdict.ready_ms for one in judged if one.compiled]
    ready = statistics.median(times) if times else None
    ratio = float(found["ready_ratio"]) if found["ready_ratio"] else None
    more = f"p90 {found['ready_p90_ms']}, p99 {found['ready_p99_ms']}; ratio over the schemas that both compiled"
    yield Figure(compare_table.READY, library, ready, ratio=ratio, detail=more)
    masks = [us for one in judged for us in one.verdict.mask_us]
    # A text that one of them refused was not walked to its end.
    alike = [
        (one.verdict.mask_us, other.verdict.mask_us)
        for one, other in zip(judged, ours, strict=True)
        if one.compiled and one.verdict.accepted == other.verdict.accepted
    ]
    mine, base = ([us for pair in alike for us in pair[side]] for side in (0, 1))
    for measure, q in ((compare_table.MASK, 50), (compare_table.SLOW_MASK, 99)):
        value = float(np.percentile(masks, q)) if masks else None
        over = float(np.percentile(mine, q)) / float(np.percentile(base, q)) if mine and base else None
        more = f"{len(masks)} masks; ratio over {len(mine)} of schemas that both judge alike"
        yield Figure(measure, library, value, ratio=over, detail=more)


def steps(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    for batch, measure in ((1, compare_table.STEP), (16, compare_table.STEP_16)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            taken, problems = processor_steps(batch, arguments.repetitions)
        if "guidance" in libraries:
            asking = Asking(["guidance"])
            answer = asking("guidance", "steps", repetitions=arguments.repetitions) if batch == 1 else {}
            asking.stop()
            if "taken" in answer:
                taken["guidance"] = [(wall, cpu) for wall, cpu in answer["taken"]]
            else:
                problems["guidance"] = failure(answer or {"error": "NotSupported"})
        for name in libraries:
            yield step_figure(measure, name, taken, problems)


def step_figure(
    measure: Measure, library: str, taken: Mapping[str, Sequence[Taken]], problems: Mapping[str, str]
) -> Figure:
    """A library's median step, and its ratio to ours."""
    if library not in taken:
        return Figure(measure, library, None, detail=problems.get(library, "not measured"))
    low, middle, high, cpu = summary(taken[library])
    _, ours, _, ours_cpu = summary(taken[OURS])
    detail = (
        f"p20 {low:.4f}, p80 {high:.4f}; CPU {cpu:.4f}, its ratio {cpu / ours_cpu:.2f}; {len(taken[library])} steps"
    )
    return Figure(measure, library, middle, ratio=middle / ours, detail=detail)


def forwards(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    cases = (
        ("its own tasks", False, compare_table.PASSES),
        ("record12", False, compare_table.PASSES_RECORD),
        ("its own tasks", True, compare_table.PASSES_LOOKUP),
        ("record12", True, compare_table.PASSES_RECORD_LOOKUP),
    )
    asking = Asking(libraries)
    for name in libraries:
        valid = answers = 0
        for case, lookup, measure in cases:
            answer = asking(name, "forwards", case=case, lookup=lookup)
            if "error" in answer:
                yield Figure(measure, name, None, detail=failure(answer))
                continue
            detail = f"{answer['passes']} passes, {answer['tokens']} tokens, {answer['valid']} valid"
            yield Figure(measure, name, answer["passes"] / answer["tokens"], detail=detail)
            if not lookup:
                valid, answers = valid + answer["valid"], answers + answer["answers"]
        yield Figure(compare_table.VALID, name, valid, answers)
    asking.stop()


def budget(libraries: Sequence[str], arguments: argparse.Namespace) -> Iterator[Figure]:
    stated = bench_budget.stated_minima()
    asking = Asking(libraries)
    for name in libraries:
        valid = outputs = 0
        parts = []
        for constraint, minima in stated.items():
            minimum = max(minima.values())
            for times in BUDGETS:
                job = {"constraint": constraint, "times": times, "minimum": minimum, "rows": arguments.rows}
                cell = asking(name, "budget", **job)
                good = cell.get("valid", 0)
                valid, outputs = valid + good, outputs + arguments.rows
                parts.append(f"{constraint} {times:g}x: {cell['error'] or good}")
        yield Figure(compare_table.BUDGET, name, valid, outputs, detail="; ".join(parts))
    asking.stop()


PARTS: dict[str, Callable[[Sequence[str], argparse.Namespace], Iterator[Figure]]] = {
    "modes": modes,
    "schemas": schemas,
    "steps": steps,
    "forwards": forwards,
    "budget": budget,
}


def result_rows(figures: Sequence[Figure], versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """Rows of compare.csv, measure by measure, and in each of them library by library.

    Args:
        figures: of the libraries that are there.
        versions: of all.
    """
    everything = [*figures]
    for name, version in versions.items():
        if version == NOT_INSTALLED:
            everything += compare_table.missing(name)
    measured = {figure.measure for figure in figures}
    columns = list(versions)
    chosen = [figure for figure in everything if figure.measure in measured]
    chosen.sort(key=lambda figure: (compare_table.MEASURES.index(figure.measure), columns.index(figure.library)))
    return [figure.row(versions[figure.library]) for figure in chosen]


def with_others(rows: Sequence[dict[str, Any]], path: Path, versions: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows, and those in a file of the measures that were not run, if they are of this day, machine and versions.

    Args:
        rows: of this run.
        path: of the file; there need not be one.
        versions: of all libraries.
    """
    made, measured = origin(), {row["measure"] for row in rows}
    kept: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                same = made.items() <= row.items() and versions.get(row["library"]) == row["version"]
                if same and row["measure"] not in measured:
                    kept.append({name: value for name, value in row.items() if name not in made})
    order = [measure.name for measure in compare_table.MEASURES], list(versions)
    return sorted([*rows, *kept], key=lambda row: (order[0].index(row["measure"]), order[1].index(row["library"])))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--measure", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--schemas", type=int, default=12, help="how many schemas of the sample, about")
    parser.add_argument("--rows", type=int, default=4, help="outputs for each constraint and budget")
    parser.add_argument("--repetitions", type=int, default=2, help="of the steps")
    parser.add_argument("--csv", type=Path, help="where rows go; those of a part go nowhere by default")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    versions = {name: installed(LIBRARIES[name].package) for name in COLUMNS}
    there = [name for name, version in versions.items() if version != NOT_INSTALLED]
    path = arguments.csv or (RESULTS / "compare.csv" if arguments.measure == list(PARTS) else None)
    loads = [load_average()]
    figures: list[Figure] = []
    for part in arguments.measure:
        for figure in PARTS[part](there, arguments):
            figures.append(figure)
            print(f"{figure.measure.name}, {figure.library}: {figure.shown}  [{figure.detail[:200]}]", flush=True)
        loads.append(load_average())
        rows = result_rows(figures, versions)
        if path:  # what is measured is kept, whatever comes
            load = " to ".join((min(loads, key=float), max(loads, key=float)))
            write_csv(path, with_others([{**row, "load": load} for row in rows], path, versions))
    print(f"\n{table(rows)}\n")
    made = origin()
    versions_line = f"transformers {made['transformers']}, torch {made['torch']}"
    print(f"{hardware()}, {versions_line}, {made['date']}, load average {loads}.")
    for name in there:
        if LIBRARIES[name].remark:
            print(f"- {name}: {LIBRARIES[name].remark}.")


if __name__ == "__main__":
    main()
