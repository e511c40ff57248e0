"""What the soak test found: verdicts, bars, tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from benchmarks.common import load_average, markdown_table, origin
from benchmarks.soak_cases import Case
from benchmarks.soak_process import COMPILED_NAME, ProcessState

MOST_GROWTH = 1.02  # of memory, from the first round to the second
LISTED = 20  # failures that are printed


@dataclass(frozen=True)
class Output:
    """One output, to be judged: did it end with a stop token?"""

    case: Case
    text: str
    finished: bool
    error: str | None = None


class Refused:
    """A constraint or a request that was to be refused, and was."""


class Left:
    """An answer that its reader left in the middle."""


@dataclass
class Round:
    """What a thread has done in a round; the sum of its threads is what the round has done."""

    outputs: Counter[tuple[str, str]] = field(default_factory=Counter)  # by way and verdict
    failures: list[str] = field(default_factory=list)
    jobs: int = 0

    def total(self, verdict: str) -> int:
        """Of one verdict."""
        return sum(count for (_, name), count in self.outputs.items() if name == verdict)

    @property
    def judged(self) -> int:
        """Outputs, right or wrong."""
        return sum(map(self.total, ("valid", "cut", "invalid", "bad prefix", "dead end")))

    def __add__(self, other: Round) -> Round:
        return Round(self.outputs + other.outputs, self.failures + other.failures, self.jobs + other.jobs)


VERDICTS = ("valid", "cut", "invalid", "bad prefix", "dead end", "raised", "refused", "left")
WRONG = ("invalid", "bad prefix", "dead end", "raised")


def verdict(output: Output | Refused | Left) -> str:
    """What the judges say."""
    if isinstance(output, (Refused, Left)):
        return type(output).__name__.lower()
    if output.error is not None:
        return "dead end"
    if output.finished:
        return "valid" if output.case.is_valid(output.text) else "invalid"
    return "cut" if output.case.is_prefix(output.text) else "bad prefix"


def bars(rounds: list[Round], states: list[ProcessState], outputs: int) -> dict[str, bool]:
    """What has to hold, with at least this number of outputs."""
    first, second = states
    compiled = [cache for cache in second.caches if cache.name == COMPILED_NAME]
    return {
        f"at least {outputs} outputs": sum(done.judged for done in rounds) >= outputs,
        "0 wrong outputs": not any(done.failures for done in rounds),
        "memory within 2 %": second.rss <= MOST_GROWTH * first.rss,
        "memory of worker processes within 2 %": second.workers_rss <= MOST_GROWTH * first.workers_rss,
        "threads constant": second.threads == first.threads,
        "descriptors constant": len(second.descriptors) == len(first.descriptors),
        "caches within their bounds": all(
            cache.bound is None or cache.held <= cache.bound for state in states for cache in state.caches
        ),
        "compile caches full": bool(compiled) and all(cache.full == cache.number for cache in compiled),
    }


def rows(rounds: list[Round], states: list[ProcessState], seconds: list[float]) -> list[dict[str, Any]]:
    """A row per round."""
    return [
        {
            "round": number,
            "minutes": f"{taken / 60:.1f}",
            "outputs": done.judged,
            **{name.replace(" ", "_"): done.total(name) for name in VERDICTS},
            "rss_mb": f"{state.rss / 2**20:.1f}",
            "workers_mb": f"{state.workers_rss / 2**20:.1f}",
            "threads": state.threads,
            "descriptors": len(state.descriptors),
            "caches": sum(cache.number for cache in state.caches),
            "caches_full": sum(cache.full for cache in state.caches),
            "load": load_average(),
        }
        for number, (done, state, taken) in enumerate(zip(rounds, states, seconds, strict=True), 1)
    ]


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    """The rounds as a table."""
    below = ("load", *origin())  # in the line below the table
    shown = [name for name in figures[0] if name not in below]
    header = [name.replace("_", " ") for name in shown]
    return markdown_table(header, [[str(row[name]) for name in shown] for row in figures])


def details(rounds: list[Round], states: list[ProcessState]) -> str:
    """The verdicts by way, the caches, what only one of the rounds left, and the first failures."""
    total = rounds[0] + rounds[1]
    named = sorted({way for way, _ in total.outputs})
    parts = [
        markdown_table(["way", *VERDICTS], [[n, *(str(total.outputs[n, v]) for v in VERDICTS)] for n in named]),
        "",
    ]
    cells = [[str(value) for value in astuple(cache)] for cache in states[1].caches]
    parts += [markdown_table(["cache", "fullest", "bound", "number", "full"], cells), ""]
    for name in ("names", "descriptors"):
        first, second = (Counter(getattr(state, name)) for state in states)
        parts.append(f"{name}, only after the first round: {first - second}, only after the second: {second - first}")
    return "\n".join([*parts, *total.failures[:LISTED]])
