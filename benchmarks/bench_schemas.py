"""How much of real JSON Schemas is enforced, how exactly, and how fast? Side by side on JSONSchemaBench.

    python -m benchmarks.bench_schemas [--only NAME ...] [--limit N] [--library NAME ...]

Each schema is compiled, each of its instances is written by ``json.dumps``, tokenized with Tekken and walked through
the masks: a valid one must pass, an invalid one must be refused somewhere. A schema passes if it compiled and all its
instances were judged rightly,

- as written: the instances as they stand in the data;
- in order: with the keys of every instance, valid or not, in the order the schema declares them (declared_order.py).
  An invalid instance must be refused in both orders.

Each library runs in a process of its own that stays warm; schemas go to the libraries in turn, one at a time, so that a
busy machine disturbs all alike. Ready is the time from the schema, as a dict, to the first mask; nothing comes out of a
cache. Masks are timed twice: when a text is walked for the first time, and again. A schema that takes more than 20 s or
4 GB ends its library's process and costs only itself.

hf-guided compiles by ``Guide.compile`` with its default options: as a processor does, and with a limit of tokens as
``hg.generate`` does.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from benchmarks.common import Row, finish, parser, percentiles, schema_rows, table_of, write_csv
from benchmarks.declared_order import DeclaredOrder
from benchmarks.schema_libraries import SCHEMA_LIBRARIES, HFGuided, LLGuidance
from benchmarks.schema_worker import Job, Verdict, Worker


class Text(NamedTuple):
    """One instance, written in one order of its keys; two orders that come to the same share one text."""

    text: str
    valid: bool
    as_written: bool
    in_order: bool


@dataclass(frozen=True)
class Sample:
    name: str
    schema: Any
    texts: tuple[Text, ...]
    registry: Mapping[str, Any] = field(default_factory=dict)  # documents that references may name, by URI

    @property
    def job(self) -> Job:
        return Job(self.schema, [one.text for one in self.texts], self.registry)


@dataclass
class Judged:
    sample: Sample
    verdict: Verdict

    @property
    def compiled(self) -> bool:
        return self.verdict.outcome == "compiled"

    def wrong(self, valid: bool, in_order: bool) -> list[int]:
        """The places of valid texts that were refused, or of invalid ones that were accepted.

        in_order looks at the instances in the declared order, else as they are written. Invalid ones count in both,
        where the order is the declared one.
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
    """The first schemas of the sample, or those of these names."""
    chosen = [row for row in schema_rows() if not only or row["name"] in only][:limit]
    if not chosen:
        raise SystemExit(f"no such schemas: {only}")
    return [Sample(row["name"], row["schema"], texts_of(row["schema"], row["tests"])) for row in chosen]


def in_turns(
    samples: Sequence[Sample], libraries: Sequence[str], vocabulary: str = "tekken"
) -> dict[str, list[Judged]]:
    """Every library's verdict on every schema."""
    workers = {name: Worker(name, vocabulary) for name in libraries}
    judged: dict[str, list[Judged]] = {name: [] for name in workers}
    for turn, sample in enumerate(samples):
        # In turns, and not always the same one first.
        for name in [*workers][:: 1 if turn % 2 else -1]:
            judged[name].append(Judged(sample, workers[name](sample.job)))
        if sys.stderr.isatty():
            print(f"\r{turn + 1} of {len(samples)}", end="", file=sys.stderr)
    for worker in workers.values():
        worker.stop()
    return judged


def summary(library: str, judged: Sequence[Judged], baseline: Sequence[Judged] = ()) -> dict[str, Any]:
    """The row of one library; the ratio of the times is to ``baseline``'s, over the schemas that both compiled."""
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
        **_times("ready", "ms", ready, 50, 90, 99),
        "ready_ratio": "" if ratio is None else f"{ratio:.2f}",
        **_times("mask", "us", masks, 50, 99),
        **_times("warm", "us", warm, 50, 99),
    }


def _times(name: str, unit: str, values: Sequence[float], *qs: int) -> dict[str, str]:
    """Columns of percentiles, of the mean and of the largest value."""
    shown = [*percentiles(values, *qs), statistics.mean(values), max(values)] if values else [""] * (len(qs) + 2)
    names = [*(f"{name}_p{q}_{unit}" for q in qs), f"{name}_mean_{unit}", f"{name}_max_{unit}"]
    return {column: value and f"{value:.2f}" for column, value in zip(names, shown, strict=True)}


def failures(judged: Sequence[Judged]) -> list[dict[str, str]]:
    """A row for each reason why a schema does not pass, with the keyword that causes it if known."""
    rows = []
    for one in judged:
        verdict, texts = one.verdict, one.sample.texts
        found: list[tuple[str, str, str, str]] = []
        if not one.compiled:
            found = [(verdict.outcome, *reason) for reason in verdict.reasons or [("", "", "")]]
        for place in one.wrong(False, in_order=True):
            found.append(("invalid accepted", "", "", texts[place].text[:100]))
        # Those in the declared order are wrong as written too, where both come to the same text.
        for place in dict.fromkeys([*one.wrong(True, in_order=True), *one.wrong(True, in_order=False)]):
            text, at = texts[place].text, verdict.stopped_at[place]
            where = f"{text[max(0, at - 60) : at]} >>> {text[at : at + 40]}"
            if texts[place].in_order:
                found.append(("valid refused, in order", "", "", where))
            else:
                found.append(("valid refused, as written", "", "order of keys", where))
        names = ("schema", "what", "pointer", "keyword", "reason")
        rows += [dict(zip(names, (one.sample.name, *row[:3], row[3][:300]), strict=True)) for row in found]
    return rows


def table(rows: Sequence[Row]) -> str:
    def of(count: str, total: str) -> Any:
        return lambda row: f"{row[count]} of {row[total]} ({int(row[count]) / max(1, int(row[total])):.1%})"

    def times(name: str, unit: str, *qs: int) -> Any:
        return lambda row: " / ".join(row[f"{name}_p{q}_{unit}"] for q in qs)

    return table_of(
        rows,
        {
            "library": "library",
            "compiled": of("compiled", "schemas"),
            "passing, as written": of("passing_as_written", "with_instances"),
            "passing, keys in order": of("passing_in_order", "with_instances"),
            "valid refused (in order)": lambda row: (
                f"{row['valid_refused_as_written']} ({row['valid_refused_in_order']})"
            ),
            "invalid accepted": "invalid_accepted",
            "crashed or beyond limits": lambda row: int(row["crashed"]) + int(row["beyond_limits"]),
            "ready p50 / p90 / p99 ms": times("ready", "ms", 50, 90, 99),
            "mask p50 / p99 µs": times("mask", "us", 50, 99),
            "again p50 / p99 µs": times("warm", "us", 50, 99),
        },
    )


def main() -> None:
    made = parser(__doc__, "schemas.csv")
    made.add_argument("--only", nargs="+", default=[], metavar="NAME", help="names of schemas")
    made.add_argument("--limit", type=int, help="the first N schemas")
    made.add_argument("--library", nargs="+", choices=SCHEMA_LIBRARIES, default=list(SCHEMA_LIBRARIES))
    arguments = made.parse_args()
    whole = not (arguments.only or arguments.limit) and arguments.library == list(SCHEMA_LIBRARIES)
    judged = in_turns(load_samples(arguments.only, arguments.limit), arguments.library)
    rows = [summary(name, judged[name], judged.get(LLGuidance.name, ())) for name in judged]
    path = finish(arguments, rows, table(rows), whole=whole)
    failing = failures(judged.get(HFGuided.name, ()))
    print(f"\nWhat keeps schemas of {HFGuided.name} from passing:\n")
    for row in failing:
        print(f"- {row['schema']}: {row['what']} {row['pointer']} {row['keyword']}: {row['reason']}")
    if path and failing:
        write_csv(path.with_name("schemas_failing.csv"), failing)


if __name__ == "__main__":
    main()
