"""How much of real JSON Schemas is enforced, how exactly, and how fast? Side by side on JSONSchemaBench.

    python -m benchmarks.bench_schemas [--only NAME ...] [--limit N] [--library NAME ...] [--spelling canonical|any]

Each schema is compiled, each of its instances is written by ``json.dumps``, tokenized with Tekken and walked through
the masks: a valid one must pass, an invalid one must be refused somewhere. A schema passes if it compiled and all its
instances were judged rightly,

- as written: the instances as they stand in the data;
- in order: with the keys of every instance, valid or not, in the order the schema declares them (declared_order.py).
  An invalid instance must be refused in both orders.

Each library runs in a process of its own that stays warm; schemas go to the libraries in turn, one at a time, so that a
busy machine disturbs all alike. Ready is the time from the schema, as a dict, to the first mask; nothing comes out of a
cache. Masks are timed twice: when a text is walked for the first time, and again. A schema that takes more than the
limits of time or memory ends its library's process and costs only itself.

hf-guided compiles by ``Guide.compile`` with its default options: as a processor does, and with a limit of tokens as
``hg.generate`` does. Parts of schemas are kept for later ones, so their order matters: ``--orders`` also takes them
backwards, and shuffled with everything forgotten before each (schemas_orders.csv).
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.common import (
    RESULTS,
    data_folder,
    hardware,
    installed,
    load_average,
    markdown_table,
    origin,
    write_csv,
)
from benchmarks.declared_order import DeclaredOrder
from benchmarks.schema_libraries import HFGuided, LLGuidance, add_libraries, libraries_of
from benchmarks.schema_worker import Job, Verdict, Worker


class Text(NamedTuple):
    """One instance, written in one order of its keys; two orders that come to the same share one text."""

    text: str
    valid: bool
    as_written: bool
    in_order: bool


@dataclass(frozen=True)
class Sample:
    """One schema of the benchmark with its instances."""

    name: str
    schema: Any
    texts: tuple[Text, ...]

    def job(self, *, fresh: bool) -> Job:
        return Job(self.schema, [one.text for one in self.texts], fresh=fresh)


@dataclass
class Judged:
    """What one library made of one schema."""

    sample: Sample
    verdict: Verdict

    @property
    def compiled(self) -> bool:
        return self.verdict.outcome == "compiled"

    def wrong(self, valid: bool, in_order: bool) -> list[int]:
        """The texts that were judged wrongly: valid ones that were refused, or invalid ones that were accepted.

        Args:
            valid: which of the two.
            in_order: look at the instances in the declared order, else as they are written. (Invalid ones count in
                both, where the order is the declared one.)
        """
        if not self.compiled:
            return []
        return [
            place
            for place, (one, accepted) in enumerate(zip(self.sample.texts, self.verdict.accepted, strict=True))
            if one.valid == valid
            and accepted != valid
            and (one.in_order if in_order and valid else one.as_written or in_order)
        ]

    def passing(self, in_order: bool) -> bool:
        return self.compiled and not self.wrong(True, in_order) and not self.wrong(False, in_order)


def texts_of(schema: Any, tests: Iterable[Mapping[str, Any]]) -> tuple[Text, ...]:
    """Every instance as written, and again in the declared order where that differs."""
    order = DeclaredOrder(schema)
    texts = []
    for test in tests:
        written, ordered = (json.dumps(data, ensure_ascii=False) for data in (test["data"], order(test["data"])))
        texts.append(Text(written, test["valid"], True, written == ordered))
        if written != ordered:
            texts.append(Text(ordered, test["valid"], False, True))
    return tuple(texts)


def load_samples(only: Sequence[str] = (), limit: int | None = None) -> list[Sample]:
    path = data_folder() / "jsonschemabench" / "schemas.jsonl"
    if not path.exists():
        raise SystemExit(f"{path} is missing; set HF_GUIDED_DATA to the folder that holds jsonschemabench/")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    chosen = [row for row in rows if not only or row["name"] in only][:limit]
    return [Sample(row["name"], row["schema"], texts_of(row["schema"], row["tests"])) for row in chosen]


def in_turns(
    samples: Sequence[Sample], libraries: Sequence[str], limit_s: float, limit_bytes: int, *, fresh: bool = False
) -> dict[str, list[Judged]]:
    """Every library's verdict on every schema."""
    workers = {name: Worker(name, "tekken", limit_s, limit_bytes) for name in libraries}
    judged: dict[str, list[Judged]] = {name: [] for name in workers}
    for turn, sample in enumerate(samples):
        # In turns, and not always the same one first.
        for name in [*workers][:: 1 if turn % 2 else -1]:
            judged[name].append(Judged(sample, workers[name](sample.job(fresh=fresh))))
        if sys.stderr.isatty():
            print(f"\r{turn + 1} of {len(samples)}", end="", file=sys.stderr)
    for worker in workers.values():
        worker.stop()
    return judged


def summary(library: str, judged: Sequence[Judged], baseline: Sequence[Judged] = ()) -> dict[str, Any]:
    """The row of one library.

    Args:
        library: its name.
        judged: one per schema.
        baseline: llguidance's, for the ratio of the times over the schemas that both compiled.
    """
    with_instances = [one for one in judged if one.sample.texts]
    ready = [one.verdict.ready_ms for one in judged if one.compiled]
    masks = [time for one in judged for time in one.verdict.mask_us]
    warm = [time for one in judged for time in one.verdict.warm_us]
    both = [
        (one.verdict.ready_ms, other.verdict.ready_ms)
        for one, other in zip(judged, baseline, strict=False)
        if one.compiled and other.compiled
    ]
    ratio = statistics.median(a for a, _ in both) / statistics.median(b for _, b in both) if both else None
    return {
        "library": library,
        "schemas": len(judged),
        "compiled": sum(one.compiled for one in judged),
        "with_instances": len(with_instances),
        "passing_as_written": sum(one.passing(in_order=False) for one in with_instances),
        "passing_in_order": sum(one.passing(in_order=True) for one in with_instances),
        "valid_refused_as_written": sum(bool(one.wrong(True, in_order=False)) for one in with_instances),
        "valid_refused_in_order": sum(bool(one.wrong(True, in_order=True)) for one in with_instances),
        "invalid_accepted": sum(bool(one.wrong(False, in_order=True)) for one in with_instances),
        "refused": sum(one.verdict.outcome in ("refused", "unsatisfiable") for one in judged),
        "crashed": sum(one.verdict.outcome == "crash" for one in judged),
        "beyond_limits": sum(one.verdict.outcome in ("timeout", "memory") for one in judged),
        **{f"ready_p{q}_ms": _percentile(ready, q) for q in (50, 90, 99)},
        **_largest("ready", "ms", ready),
        "ready_ratio": "" if ratio is None else f"{ratio:.2f}",
        **{f"mask_p{q}_us": _percentile(masks, q) for q in (50, 99)},
        **_largest("mask", "us", masks),
        **{f"warm_p{q}_us": _percentile(warm, q) for q in (50, 99)},
        "load": load_average(),
    }


def _percentile(values: Sequence[float], q: int) -> str:
    return f"{np.percentile(values, q):.2f}" if len(values) else ""


def _largest(name: str, unit: str, values: Sequence[float]) -> dict[str, str]:
    mean = f"{statistics.mean(values):.2f}" if values else ""
    return {f"{name}_mean_{unit}": mean, f"{name}_max_{unit}": f"{max(values, default=0):.2f}"}


def failures(judged: Sequence[Judged]) -> list[dict[str, str]]:
    """A row for each reason why a schema does not pass, with the keyword that causes it if known."""
    rows = []
    for one in judged:
        verdict = one.verdict
        if not one.compiled:
            for pointer, keyword, reason in verdict.reasons:
                rows.append(_failure(one, verdict.outcome, pointer, keyword, reason))
            continue
        for valid, in_order, what in (
            (False, True, "invalid accepted"),
            (True, True, "valid refused, in order"),
            (True, False, "valid refused, as written"),
        ):
            for place in one.wrong(valid, in_order):
                text = one.sample.texts[place].text
                if what == "valid refused, as written" and one.sample.texts[place].in_order:
                    continue  # said already
                at = verdict.stopped_at[place]
                where = f"{text[max(0, at - 60) : at]} >>> {text[at : at + 40]}" if valid else text[:100]
                rows.append(_failure(one, what, "", "order of keys" if not in_order else "", where))
    return rows


def _failure(one: Judged, what: str, pointer: str, keyword: str, reason: str) -> dict[str, str]:
    names = ("schema", "what", "pointer", "keyword", "reason")
    return dict(zip(names, (one.sample.name, what, pointer, keyword, reason[:300]), strict=True))


ORDERS = ("as listed", "backwards", "shuffled, all forgotten")


def in_orders(samples: Sequence[Sample], libraries: Sequence[str], limits: tuple[float, int]) -> list[dict[str, Any]]:
    """A row for each order and library, with the tails of the times."""
    shuffled = random.Random(0).sample(samples, len(samples))
    rows = []
    for order, chosen in zip(ORDERS, (samples, samples[::-1], shuffled), strict=True):
        judged = in_turns(chosen, libraries, *limits, fresh=order == ORDERS[2])
        for name in libraries:
            row = summary(name, judged[name], judged.get(LLGuidance.name, ()))
            times = {key: value for key, value in row.items() if key.startswith(("ready_", "mask_", "warm_"))}
            rows.append({"order": order, "library": name, "compiled": row["compiled"], **times, "load": row["load"]})
    return rows


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: a line for each library."""
    header = [
        "library",
        "compiled",
        "passing, as written",
        "passing, keys in order",
        "valid refused (in order)",
        "invalid accepted",
        "crashed or beyond limits",
        "ready p50 / p90 / p99 ms",
        "of llguidance's",
        "mask p50 / p99 µs",
        "again p50 / p99 µs",
    ]
    return markdown_table(header, [_line(row) for row in rows])


def _line(row: Mapping[str, Any]) -> list[str]:
    def of(count: str, total: str) -> str:
        return f"{row[count]} of {row[total]} ({int(row[count]) / max(1, int(row[total])):.1%})"

    return [
        row["library"],
        of("compiled", "schemas"),
        of("passing_as_written", "with_instances"),
        of("passing_in_order", "with_instances"),
        f"{row['valid_refused_as_written']} ({row['valid_refused_in_order']})",
        str(row["invalid_accepted"]),
        str(int(row["crashed"]) + int(row["beyond_limits"])),
        " / ".join(row[f"ready_p{q}_ms"] for q in (50, 90, 99)),
        row["ready_ratio"],
        " / ".join(row[f"mask_p{q}_us"] for q in (50, 99)),
        " / ".join(row[f"warm_p{q}_us"] for q in (50, 99)),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of schemas")
    parser.add_argument("--limit", type=int, help="the first N schemas")
    add_libraries(parser)
    parser.add_argument("--seconds", type=float, default=20.0, help="a schema may take")
    parser.add_argument("--gigabytes", type=float, default=4.0, help="a library's process may hold")
    parser.add_argument("--orders", action="store_true", help="only times, in three orders")
    parser.add_argument("--results", type=Path, help="folder for schemas.csv and schemas_failing.csv")
    arguments = parser.parse_args()
    # A look at a few schemas is not the table's business.
    folder = arguments.results or (None if arguments.only or arguments.limit else RESULTS)
    samples = load_samples(arguments.only, arguments.limit)
    if not samples:
        raise SystemExit(f"no such schemas: {arguments.only}")
    limits = arguments.seconds, int(arguments.gigabytes * 2**30)
    if arguments.orders:
        rows = in_orders(samples, libraries_of(arguments), limits)
        if folder:
            write_csv(folder / "schemas_orders.csv", rows)
        names = [name for name in rows[0] if name not in ("load", "warm_p50_us", "warm_p99_us")]
        print(markdown_table(names, [[str(row[name]) for name in names] for row in rows]))
        return
    judged = in_turns(samples, libraries_of(arguments), *limits)
    rows = [summary(name, judged[name], judged.get(LLGuidance.name, ())) for name in judged]
    if folder:
        write_csv(folder / "schemas.csv", rows)
    print(f"\n{table(rows)}\n")
    made = origin()
    versions = ", ".join(f"{one} {installed(one)}" for one in ("hf-guided", "llguidance", "xgrammar"))
    print(f"{versions}, {hardware()}, load {load_average()}, {made['date']}.")
    if HFGuided.name in judged:
        failing = failures(judged[HFGuided.name])
        if folder and failing:
            write_csv(folder / "schemas_failing.csv", failing)
        elif folder:
            (folder / "schemas_failing.csv").unlink(missing_ok=True)
        print(f"\nWhat keeps schemas of {HFGuided.name} from passing:\n")
        for row in failing:
            print(f"- {row['schema']}: {row['what']} {row['pointer']} {row['keyword']}: {row['reason']}")


if __name__ == "__main__":
    main()
