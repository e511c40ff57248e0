"""The summary of compare.py: its measures, what one of them came to for one library, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common import NOT_INSTALLED, markdown_table


@dataclass(frozen=True)
class Measure:
    """One line of the table.

    Args:
        name: the question, in the table's first column.
        unit: of its figures.
        more_is_better: or else less is.
    """

    name: str
    unit: str
    more_is_better: bool


MODES = Measure("generation modes in which the output is right", "modes", True)
COMPILED = Measure("real JSON Schemas that compile", "schemas", True)
EXACT = Measure("JSON Schemas judged exactly, all instances", "schemas", True)
LOOSE = Measure("JSON Schemas that let an invalid instance pass", "schemas", False)
READY = Measure("a JSON Schema's first mask, median", "ms", False)
MASK = Measure("a mask of a JSON Schema, median", "µs", False)
SLOW_MASK = Measure("a mask of a JSON Schema, slowest in a hundred", "µs", False)
STEP = Measure("a step beside the forward pass, one row", "ms", False)
STEP_16 = Measure("a step beside the forward pass, 16 rows", "ms", False)
PASSES = Measure("forward passes, the demo model's own tasks", "a token", False)
PASSES_RECORD = Measure("forward passes, a record of 12 fields", "a token", False)
PASSES_LOOKUP = Measure("the same with prompt lookup, own tasks", "a token", False)
PASSES_RECORD_LOOKUP = Measure("the same with prompt lookup, the record", "a token", False)
VALID = Measure("greedy answers that are valid", "answers", True)
BUDGET = Measure("outputs complete and valid within a token budget", "outputs", True)
MEASURES = (
    MODES,
    COMPILED,
    EXACT,
    LOOSE,
    READY,
    MASK,
    SLOW_MASK,
    STEP,
    STEP_16,
    PASSES,
    PASSES_RECORD,
    PASSES_LOOKUP,
    PASSES_RECORD_LOOKUP,
    VALID,
    BUDGET,
)


@dataclass(frozen=True)
class Figure:
    """What a measure came to for one library.

    Args:
        measure: which.
        library: whose.
        value: None where it could not be had; ``detail`` says why.
        of: out of how many, where things were counted.
        ratio: to hf-guided's, where things were timed.
        detail: more of it.
    """

    measure: Measure
    library: str
    value: float | None
    of: int | None = None
    ratio: float | None = None
    detail: str = ""

    @property
    def shown(self) -> str:
        if self.value is None:
            return self.detail
        if self.of is not None:
            return f"{self.value:g} of {self.of}"
        number = f"{self.value:.0f}" if self.value >= 100 else f"{self.value:.3g}"
        return number if self.ratio is None else f"{number} ({_ratio(self.ratio)})"

    def row(self, version: str) -> dict[str, Any]:
        """The columns of compare.csv; ``shown`` is the cell of the table."""
        return {
            "measure": self.measure.name,
            "unit": self.measure.unit,
            "better": "more" if self.measure.more_is_better else "less",
            "library": self.library,
            "version": version,
            "value": "" if self.value is None else f"{self.value:.5g}",
            "of": "" if self.of is None else self.of,
            "ratio": "" if self.ratio is None else f"{self.ratio:.3f}",
            "shown": self.shown,
            "detail": self.detail,
        }


def _ratio(ratio: float) -> str:
    return f"{ratio:.0f}x" if ratio >= 10 else f"{ratio:.2g}x"


def missing(library: str) -> list[Figure]:
    """What is said of a library that is not there."""
    return [Figure(measure, library, None, detail=NOT_INSTALLED) for measure in MEASURES]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each measure, a column for each library, the best of a line in bold.

    Args:
        rows: of compare.csv, in the order of the columns.
    """
    versions = {row["library"]: row["version"] for row in rows}
    titles = [f"{name} {version}" if version != NOT_INSTALLED else name for name, version in versions.items()]
    lines = []
    for name in dict.fromkeys(row["measure"] for row in rows):
        line = {row["library"]: row for row in rows if row["measure"] == name}
        one = next(iter(line.values()))
        ranks = {library: rank for library, row in line.items() if (rank := _rank(row)) is not None}
        best = (max if one["better"] == "more" else min)(ranks.values(), default=None)
        cells = [
            f"**{row['shown']}**" if library in ranks and ranks[library] == best else str(row["shown"])
            for library, row in ((library, line.get(library, {"shown": ""})) for library in versions)
        ]
        lines.append([f"{name} ({one['unit']})", *cells])
    return markdown_table(["measure (unit)", *titles], lines)


def _rank(row: Mapping[str, Any]) -> float | None:
    """What is compared: ratios, where there are some, since they are over what both libraries did."""
    return float(row["ratio"] or row["value"]) if row["value"] != "" else None
