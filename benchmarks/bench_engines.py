"""What does each engine cost on what is regular? The native one, llguidance, xgrammar, outlines-core side by side.

    python -m benchmarks.bench_engines [--only GROUP ...] [--engine NAME ...] [--limit N]

The same constraints over Tekken (131,072 tokens): regular expressions, choices of 2 to 10,000 strings, the 12-field
record, a string of at most 1,000 characters, and those schemas of the sample that the native engine takes with
``extra="forbid"``. Every constraint is compiled and its documents are walked token by token (engine_worker.py):

- ready: from the constraint to the first mask. Nothing comes out of a cache of whole constraints.
- cold: all documents once, with a constraint that has just been compiled: what is computed at the first visit of a
  state is in it, once. hot: the same documents again.
- wrong: documents that were refused, and other texts that were accepted. For the sample these are its valid instances,
  as far as ``extra="forbid"`` admits them, with their keys in declared order (declared_order.py), and its invalid ones.
- of xgrammar's: percentiles of the cold masks over the documents that both engines accepted.

outlines-core gets one schema in ten of the sample, for 5 s each (20 s elsewhere): it seldom needs less, and cannot be
interrupted. It has no flexible white space.

Each engine has a process of its own, a new one for each group of constraints. They take turns constraint by
constraint; one that goes beyond its limit of time or memory ends its process and costs only itself.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import engine_constraints
from benchmarks.common import RESULTS, hardware, installed, load_average, markdown_table, origin, write_csv
from benchmarks.engine_constraints import SAMPLE, EngineCase, Sampled
from benchmarks.engine_worker import Verdict, Worker
from benchmarks.engines import ENGINES, SECONDS, LLGuidance, Native, OutlinesCore, XGrammar
from benchmarks.schema_worker import tokenizing
from hf_guided.backends.network import NetworkBackend

QUANTILES = (50, 90, 99)


@dataclass
class Judged:
    """The verdict of one engine on one constraint."""

    case: EngineCase
    verdict: Verdict

    @property
    def compiled(self) -> bool:
        return self.verdict.outcome == "compiled"


def in_turns(cases: Sequence[EngineCase], engines: Sequence[str]) -> dict[str, list[Judged]]:
    """Every engine's verdict on every constraint of a group."""
    workers = {name: Worker(name) for name in engines}
    judged: dict[str, list[Judged]] = {name: [] for name in engines}
    for turn, case in enumerate(cases):
        for name in [*workers][:: 1 if turn % 2 else -1]:
            engine, sampled = ENGINES[name], case.group.startswith(SAMPLE)
            if case.whitespace in engine.whitespaces and not (sampled and turn % engine.sample_step):
                limit = engine.sample_seconds if sampled else SECONDS
                judged[name].append(Judged(case, workers[name](case, limit)))
        if sys.stderr.isatty():
            print(f"\r{case.group}: {turn + 1} of {len(cases)}   ", end="", file=sys.stderr)
    for worker in workers.values():
        worker.stop()
    return {name: some for name, some in judged.items() if some}


def percentiles(values: Sequence[float], qs: Sequence[int] = QUANTILES) -> list[float]:
    return [float(one) for one in np.percentile(values, qs)] if len(values) else [float("nan")] * len(qs)


def pairs(one: Sequence[Judged], other: Sequence[Judged]) -> Iterator[tuple[Verdict, Verdict, int]]:
    """The verdicts of two engines on the same constraints, and each document that both accepted."""
    by_name = {judged.case.name: judged.verdict for judged in other}
    for judged in one:
        mine, theirs = judged.verdict, by_name.get(judged.case.name)
        if theirs is not None:
            for place, accepted in enumerate(zip(mine.accepted, theirs.accepted, strict=False)):
                if all(accepted):
                    yield mine, theirs, place


def ratios(one: Sequence[Judged], baseline: Sequence[Judged]) -> list[float]:
    """p50, p90 and p99 of the cold masks over those of the baseline, for the documents that both accepted."""
    ours: list[float] = []
    theirs: list[float] = []
    for mine, other, place in pairs(one, baseline):
        ours += mine.cold_us[place]
        theirs += other.cold_us[place]
    return [a / b for a, b in zip(percentiles(ours), percentiles(theirs), strict=True)]


def different_masks(one: Sequence[Judged], other: Sequence[Judged]) -> int:
    """Masks of two engines that differ, over the documents that both accepted."""
    return sum(
        a != b
        for mine, theirs, place in pairs(one, other)
        for a, b in zip(mine.masks[place], theirs.masks[place], strict=True)
    )


def summary(name: str, group: Mapping[str, Sequence[Judged]]) -> dict[str, Any]:
    """The row of one engine in a group.

    Args:
        name: of the engine.
        group: all engines' verdicts on the same constraints.
    """
    judged = group[name]
    verdicts = [one.verdict for one in judged if one.compiled]
    cold = [time for one in verdicts for times in one.cold_us for time in times]
    hot = [time for one in verdicts for times in one.hot_us for time in times]
    made = [time for one in verdicts for time in one.made_us]
    accepts = [time for one in verdicts for time in one.accept_us]
    compared = XGrammar.name in group and name != XGrammar.name
    same_language = name == LLGuidance.name and Native.name in group
    return {
        "group": judged[0].case.group,
        "engine": name,
        "constraints": len(judged),
        "compiled": len(verdicts),
        "refused": sum(one.verdict.outcome == "refused" for one in judged),
        "crashed": sum(one.verdict.outcome == "crash" for one in judged),
        "beyond_limits": sum(one.verdict.outcome in ("timeout", "memory") for one in judged),
        "documents": sum(len(one.accepted) for one in verdicts),
        "documents_refused": sum(one.accepted.count(False) for one in verdicts),
        "others": sum(len(one.others_accepted) for one in verdicts),
        "others_accepted": sum(one.others_accepted.count(True) for one in verdicts),
        "masks_unlike_native": different_masks(judged, group[Native.name]) if same_language else "",
        "masks": len(cold),
        **_columns("compile", "ms", [one.compile_ms for one in verdicts]),
        **_columns("ready", "ms", [one.ready_ms for one in verdicts]),
        **_columns("cold", "us", cold),
        **_columns("hot", "us", hot),
        **_columns("accept", "us", accepts),
        "made": len(made) or "",
        **_columns("made", "us", made),
        **_columns("cold_ratio", "", ratios(judged, group[XGrammar.name]) if compared else [], QUANTILES),
        "nbytes_max": max((one.nbytes for one in verdicts), default=0) or "",
        "rss_growth": max((one.grown_bytes for one in verdicts), default=0),
        "load": load_average(),
    }


def _columns(name: str, unit: str, values: Sequence[float], ready: Sequence[int] = ()) -> dict[str, str]:
    """p50, p90, p99 of the values; or the values themselves, where they are these already."""
    numbers = values if ready else percentiles(values)
    end = f"_{unit}" if unit else ""
    return {
        f"{name}_p{q}{end}": f"{number:.3g}" if number < 100 else f"{number:.0f}"
        for q, number in zip(QUANTILES, numbers or [float("nan")] * 3, strict=True)
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each engine in each group."""
    header = [
        "constraints",
        "engine",
        "compiled",
        "wrong",
        "ready p50 / p90 / p99 ms",
        "cold mask p50 / p90 / p99 µs",
        "of xgrammar's",
        "hot mask µs",
        "accept µs",
        "memory MB",
        "process MB",
    ]
    return markdown_table(header, [_line(row) for row in rows])


def _line(row: Mapping[str, Any]) -> list[str]:
    def three(name: str, unit: str) -> str:
        values = [str(row[f"{name}_p{q}{unit}"]) for q in QUANTILES]
        return "" if "nan" in values else " / ".join(values)

    wrong = int(row["documents_refused"]) + int(row["others_accepted"])
    nbytes = f"{int(row['nbytes_max']) / 1e6:.1f}" if row["nbytes_max"] else ""
    return [
        row["group"],
        row["engine"],
        f"{row['compiled']} of {row['constraints']}",
        f"{wrong} of {int(row['documents']) + int(row['others'])}",
        three("ready", "_ms"),
        three("cold", "_us"),
        three("cold_ratio", ""),
        three("hot", "_us"),
        three("accept", "_us"),
        nbytes,
        f"{int(row['rss_growth']) / 1e6:.0f}",
    ]


@dataclass(frozen=True)
class Target:
    """A figure that was aimed at."""

    what: str
    value: float
    most: float

    def __str__(self) -> str:
        verdict = "met" if self.value <= self.most else "NOT met"
        return f"- {verdict}: {self.what}: {self.value:.3g}, at most {self.most:g} wanted"


def targets(rows: Sequence[Mapping[str, Any]]) -> list[Target]:
    """What the native engine was built for, as far as the rows tell."""
    found = []
    by_place = {(row["group"], row["engine"]): row for row in rows}
    for (group, engine), row in by_place.items():
        if engine != Native.name:
            continue
        if (group, XGrammar.name) in by_place:
            for q, most in zip(QUANTILES, (1.5, 0.5, 0.05), strict=True):
                found.append(Target(f"{group}: mask p{q} over xgrammar's", float(row[f"cold_ratio_p{q}"]), most))
            if group.startswith("record12"):
                theirs = float(by_place[group, XGrammar.name]["ready_p50_ms"])
                found.append(Target(f"{group}: ready over xgrammar's", float(row["ready_p50_ms"]) / theirs, 0.1))
        found.append(Target(f"{group}: p99 of the masks that were made, ms", float(row["made_p99_us"]) / 1e3, 3))
        if group.startswith(SAMPLE):
            most = 50 if group.endswith("compact") else 100
            found.append(Target(f"{group}: ready p90, ms", float(row["ready_p90_ms"]), most))
            found.append(Target(f"{group}: valid refused", int(row["documents_refused"]), 0))
            found.append(Target(f"{group}: invalid accepted", int(row["others_accepted"]), 0))
    return found


def failures(judged: Iterable[Judged], engine: str) -> list[str]:
    """What an engine judged wrongly, or could not compile."""
    lines = []
    for one in judged:
        verdict, name = one.verdict, f"{one.case.group}, {one.case.name}: {engine}"
        if not one.compiled:
            lines.append(f"{name}: {verdict.outcome}: {verdict.reason[:150]}")
        for texts, answers, wanted in (
            (one.case.documents, verdict.accepted, True),
            (one.case.others, verdict.others_accepted, False),
        ):
            for text, accepted in zip(texts, answers, strict=False):
                if accepted != wanted:
                    lines.append(f"{name}: {'accepts' if accepted else 'refuses'} {text[:100]!r}")
    return lines


def groups(limit: int | None) -> dict[str, Callable[[], Sequence[EngineCase] | Sampled]]:
    """By name; made when they are wanted, since choosing from the sample takes a minute."""
    vocabulary, _ = tokenizing("tekken")
    backend = NetworkBackend(vocabulary)
    return {
        "regexes": lambda: list(engine_constraints.regexes()),
        "choices": lambda: list(engine_constraints.choices()),
        "record12, compact": lambda: [engine_constraints.records("compact")],
        "record12, flexible": lambda: [engine_constraints.records("flexible")],
        "bounded string": lambda: [engine_constraints.bounded_string()],
        f"{SAMPLE}, compact": lambda: engine_constraints.sample(backend, "compact", limit),
        f"{SAMPLE}, flexible": lambda: engine_constraints.sample(backend, "flexible", limit),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="GROUP", help="groups of constraints")
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--limit", type=int, help="the first N schemas of the sample")
    parser.add_argument("--results", type=Path, help="where engines.csv goes")
    arguments = parser.parse_args()
    # A partial run does not replace the table.
    whole = not (arguments.only or arguments.limit or len(arguments.engine) < len(ENGINES))
    path = arguments.results or (RESULTS / "engines.csv" if whole else None)
    known = groups(arguments.limit)
    if unknown := set(arguments.only or ()) - known.keys():
        raise SystemExit(f"no such groups: {sorted(unknown)}; there are {list(known)}")
    rows: list[dict[str, Any]] = []
    wrong: list[str] = []
    shares: list[str] = []
    for name in arguments.only or known:
        cases = known[name]()
        if isinstance(cases, Sampled):
            sampled = cases
            shares.append(
                f"{name}: the native engine takes {len(sampled.cases)} of {sampled.schemas} schemas "
                f"({len(sampled.cases) / sampled.schemas:.1%}, 60 % wanted); "
                f'extra="forbid" admits {sampled.admitted} of their {sampled.valid} valid instances'
            )
            cases = sampled.cases
        judged = in_turns(cases, arguments.engine)
        rows += [summary(engine, judged) for engine in judged]
        for engine, some in judged.items():
            wrong += failures(some, engine)
    if path:
        write_csv(path, [{**row, "outlines-core": installed(OutlinesCore.package)} for row in rows])
    print(f"\n{table(rows)}\n")
    versions = ", ".join(f"{one.package} {installed(one.package)}" for one in ENGINES.values())
    print(f"{versions}, {hardware()}, load {load_average()}, {origin()['date']}.\n")
    print("\n".join([*shares, *map(str, targets(rows))]))
    for row in rows:
        if row["masks_unlike_native"] != "":
            print(f"- {row['group']}: {row['masks_unlike_native']} masks of llguidance are not the native engine's")
    print("\nWrong, or not compiled:\n")
    print("\n".join(f"- {line}" for line in wrong))


if __name__ == "__main__":
    main()
