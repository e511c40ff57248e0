"""What the benchmarks share: where the data stands, what a row of results says about its origin, tables."""

from __future__ import annotations

import csv
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def data_folder() -> Path:
    """The folder of public data, see README.md."""
    return Path(os.environ.get("HF_GUIDED_DATA", Path(__file__).parents[2] / "shared" / "data"))


@cache
def record12() -> dict[str, Any]:
    """The 12-field record: schema, documents, prompts."""
    path = data_folder() / "record12.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing; set HF_GUIDED_DATA to the folder that holds record12.json")
    return dict(json.loads(path.read_text()))


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


def load_average() -> str:
    """How busy the machine is with others, next to the figures it may have spoilt."""
    return f"{os.getloadavg()[0]:.1f}"


NOT_INSTALLED = "not installed"


def python_for(package: str) -> str:
    """The Python that runs a library: HF_GUIDED_BENCH_<PACKAGE> where that is set, else this one.

    For libraries that cannot be installed beside the others, as guidance, which pins another llguidance.
    """
    return os.environ.get(f"HF_GUIDED_BENCH_{package.upper().replace('-', '_')}", sys.executable)


@cache
def installed(package: str) -> str:
    """Its version, where it runs."""
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


def origin() -> dict[str, str]:
    """Columns that every row of results ends with."""
    return {
        "date": date.today().isoformat(),
        "hardware": hardware(),
        "python": platform.python_version(),
        "torch": installed("torch"),
        "transformers": installed("transformers"),
        "xgrammar": installed("xgrammar"),
        "llguidance": installed("llguidance"),
        "outlines": installed("outlines"),
        "lm-format-enforcer": installed("lm-format-enforcer"),
        "hf-guided": installed("hf-guided"),
    }


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write the rows, each with its origin, in place of whatever stood there; who is stopped leaves what was there."""
    where_from = origin()
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0], *where_from], lineterminator="\n")
        writer.writeheader()
        writer.writerows({**row, **where_from} for row in rows)
    part.replace(path)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [list(header), ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
