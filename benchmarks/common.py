"""What the benchmarks share: arguments, data, rows with their origin, tables."""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import random
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
NOT_INSTALLED = "not installed"

Row = Mapping[str, Any]


# -- data --------------------------------------------------------------------------------------------------------------


def data_folder() -> Path:
    """The folder of public data, see README.md."""
    return Path(os.environ.get("HF_GUIDED_DATA", ROOT.parent / "shared" / "data"))


def _data(name: str) -> str:
    path = data_folder() / name
    if not path.exists():
        raise SystemExit(f"{path} is missing; set HF_GUIDED_DATA to the folder that holds it")
    return path.read_text(encoding="utf-8")


@cache
def record12() -> dict[str, Any]:
    """The 12-field record: schema, documents, prompts."""
    return dict(json.loads(_data("record12.json")))


def schema_rows() -> list[dict[str, Any]]:
    """The sample of JSONSchemaBench: name, schema and tests of each, a test with data and whether it is valid."""
    return [json.loads(line) for line in _data("jsonschemabench/schemas.jsonl").splitlines()]


def spread(items: Sequence[Any], count: int) -> Sequence[Any]:
    """About this many of the items, spread over all of them."""
    return items[:: max(1, len(items) // count)]


def turns(sides: Iterable[str], number: int) -> list[str]:
    """The sides of a round in an order of its own, so that what disturbs the machine disturbs all alike."""
    order = list(sides)
    random.Random(number).shuffle(order)
    return order


# -- the machine, and what is installed --------------------------------------------------------------------------------


@cache
def hardware() -> str:
    """Processor and number of cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0))
    return f"{name}, {cores} core{'s' if cores > 1 else ''}"


def python_for(package: str) -> str:
    """The Python that runs a library: HF_GUIDED_BENCH_<PACKAGE> where that is set, else this one.

    For libraries that cannot be installed beside the others, as guidance, which pins another llguidance.
    """
    return os.environ.get(f"HF_GUIDED_BENCH_{package.upper().replace('-', '_')}", sys.executable)


@cache
def installed(package: str) -> str:
    """The version of a package, in the Python that runs it."""
    if (python := python_for(package)) != sys.executable:
        code = f"from importlib.metadata import version; print(version({package!r}))"
        answer = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        return answer.stdout.strip() if answer.returncode == 0 else NOT_INSTALLED
    try:
        return version(package)
    except PackageNotFoundError:
        return NOT_INSTALLED


def runs_here(package: str) -> bool:
    """Whether a library runs in this process."""
    return python_for(package) == sys.executable and installed(package) != NOT_INSTALLED


# -- rows --------------------------------------------------------------------------------------------------------------

PACKAGES = ("torch", "transformers", "xgrammar", "llguidance", "outlines", "lm-format-enforcer", "hf-guided")


def origin() -> dict[str, str]:
    """Columns that every row of results ends with."""
    return {
        "load": f"{os.getloadavg()[0]:.1f}",  # how busy the machine is with others
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "python": platform.python_version(),
        **{package: installed(package) for package in PACKAGES},
    }


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Replace a file by these rows with their origin; a run that is stopped leaves the file as it was.

    A row that has an origin (of an earlier run) keeps it.
    """
    where_from = origin()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", encoding="utf-8", newline="") as file:
        names = dict.fromkeys([*(name for name in rows[0] if name not in where_from), *where_from])
        writer = csv.DictWriter(file, [*names], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**where_from, **row} for row in rows)
    part.replace(path)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def percentiles(values: Sequence[float], *qs: int) -> list[float]:
    """Percentiles of the values; of no values NaN."""
    return [float(one) for one in np.percentile(values, qs)] if len(values) else [float("nan")] * len(qs)


def percentile_columns(
    values: Sequence[float], names: str, digits: int = 1, qs: Sequence[int] = (20, 50, 80)
) -> dict[str, str]:
    """Columns of percentiles, named as "p{}_ms"; empty if there are no values."""
    found = zip(qs, percentiles(values, *qs), strict=True)
    return {names.format(q): f"{value:.{digits}f}" if len(values) else "" for q, value in found}


# -- tables ------------------------------------------------------------------------------------------------------------

Columns = Sequence[str] | Mapping[str, str | Callable[[Row], object]]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(header), ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_of(rows: Sequence[Row], columns: Columns | None = None) -> str:
    """Markdown: a line for each row of a CSV file.

    The columns are names in the order of the table, or by title a name or a function of the row; None: all but the
    origin.
    """
    columns = columns or [name for name in rows[0] if name not in origin()]
    if not isinstance(columns, Mapping):
        columns = {name.replace("_", " "): name for name in columns}
    cells = [[str(row[cell] if isinstance(cell, str) else cell(row)) for cell in columns.values()] for row in rows]
    return markdown_table([*columns], cells)


def machine(rows: Sequence[Row]) -> str:
    """The line below a table: what its rows were measured on."""
    first = {**origin(), **rows[0]}
    versions = [f"{name} {first[name]}" for name in PACKAGES[:-1] if first[name] != NOT_INSTALLED]
    loads = sorted({load for row in rows for load in str(row.get("load", "")).split(" to ") if load}, key=float)
    load = f"; load average {' to '.join(dict.fromkeys((loads[0], loads[-1])))}" if loads else ""
    return f"{first['hardware']}, Python {first['python']}, {', '.join(versions)}, {first['date']}{load}."


# -- a script ----------------------------------------------------------------------------------------------------------


def parser(doc: str | None, results: str = "") -> argparse.ArgumentParser:
    """The arguments of a script.

    Args:
        doc: its docstring.
        results: the file in results/ that a whole run replaces; --csv names another one.
    """
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if results:
        made.add_argument("--csv", type=Path, help="where the rows go")
        made.set_defaults(results=RESULTS / results)
    return made


def finish(arguments: argparse.Namespace, rows: Sequence[Row], table: str, *, whole: bool = True) -> Path | None:
    """Print the table, and write the rows; returns the file.

    The rows of a part of a benchmark are written only where --csv names a file.
    """
    path: Path | None = arguments.csv or (arguments.results if whole else None)
    if path is not None:
        write_csv(path, rows)
    print(f"\n{table}\n\n{machine([origin()])}")
    return path
