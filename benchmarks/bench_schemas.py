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
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from benchmarks.common import Row, finish, parser, percentile_columns, python_for, schema_rows, table_of, write_csv
from benchmarks.declared_order import DeclaredOrder
from benchmarks.processes import JobProcess, Killed, quiet, serve
from benchmarks.schema_libraries import (
    LIBRARIES,
    SCHEMA_LIBRARIES,
    WARM_UPS,
    HFGuided,
    LLGuidance,
    Reason,
    Refused,
    SchemaLibrary,
    Walk,
)
from hf_guided.vocabulary.tokens import Vocabulary


@dataclass(frozen=True)
class Job:
    """A schema and the texts to walk through it."""

    schema: Any  # JSON; for some libraries a pattern
    texts: Sequence[str]  # valid and invalid texts
    registry: Mapping[str, Any] = field(default_factory=dict)  # documents that references may name, by URI


@dataclass
class Verdict:
    """Result of a job."""

    outcome: str  # "compiled", "refused", "unsatisfiable", "crash", "timeout" or "memory"
    reasons: list[Reason] = field(default_factory=list)  # why, if not "compiled"
    accepted: list[bool] = field(default_factory=list)  # for each text; empty if not compiled
    stopped_at: list[int] = field(default_factory=list)  # characters accepted; the length if only the end was refused
    ready_ms: float = 0.0  # compiling and the first mask
    mask_us: list[float] = field(default_factory=list)  # each mask of the first walk through the texts
    warm_us: list[float] = field(default_factory=list)  # each mask of a second walk through those that were accepted


def judge(library: SchemaLibrary, job: Job, tokenize: Callable[[str], list[int]]) -> Verdict:
    """Compile, and walk every text; those that are accepted twice."""
    began = time.perf_counter()
    try:
        library.registry = job.registry
        library.compile(job.schema).fill()
        verdict = Verdict("compiled", ready_ms=(time.perf_counter() - began) * 1e3)
        for text in job.texts:
            accepted, taken = _walk(library.again(), tokenize(text), verdict.mask_us)
            verdict.accepted.append(accepted)
            verdict.stopped_at.append(len(library.vocabulary.decode_bytes(taken).decode(errors="ignore")))
        for text, accepted in zip(job.texts, verdict.accepted, strict=True):
            if accepted:
                _walk(library.again(), tokenize(text), verdict.warm_us)
    except Refused as refused:
        return Verdict("unsatisfiable" if refused.unsatisfiable else "refused", refused.reasons)
    except Exception as error:
        return Verdict("crash", [("", "", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")])
    return verdict


def _walk(walk: Walk, token_ids: list[int], mask_us: list[float]) -> tuple[bool, list[int]]:
    """Whether the text is accepted, and the tokens that were."""
    for place, token_id in enumerate(token_ids):
        began = time.perf_counter()
        walk.fill()
        mask_us.append(round((time.perf_counter() - began) * 1e6, 1))
        if not walk.allows(token_id) or not walk.accept(token_id):
            return False, token_ids[:place]
    return walk.is_completed(), token_ids


def tokenizing(vocabulary: str) -> tuple[Vocabulary, Callable[[str], list[int]]]:
    """A vocabulary by name, "tekken" or "bytes", and what turns a text into its tokens."""
    if vocabulary == "bytes":
        from tests.toy import all_bytes

        return all_bytes(), lambda text: list(text.encode())
    from tests.vocabularies import fast_tekken

    tokenizer = fast_tekken()
    return Vocabulary.from_tokenizer(tokenizer), lambda text: tokenizer.encode(text, add_special_tokens=False)


class Worker:
    """A process of ``judge`` for one library, with limits of time and memory for each job."""

    def __init__(self, library: str, vocabulary: str, limit_s: float = 20.0, limit_bytes: int = 4 * 2**30):
        command = ["benchmarks.bench_schemas", "--worker", library, vocabulary]
        self._process = JobProcess(command, limit_s, limit_bytes, python_for(LIBRARIES[library].package))

    def __call__(self, job: Job) -> Verdict:
        try:
            return Verdict(**self._process.ask(asdict(job)))
        except Killed as killed:
            return Verdict(killed.outcome, [("", "", f"process ended with {killed.returncode}")])

    def stop(self) -> None:
        self._process.stop()


def work(name: str, vocabulary: str) -> None:
    """Answer jobs for one library."""
    quiet()
    known, tokenize = tokenizing(vocabulary)
    library = LIBRARIES[name](known)
    for number in range(5):  # first calls import, start threads, build tables
        schema, text = WARM_UPS[library.kind](number)
        judge(library, Job(schema, [text]), tokenize)
    serve(lambda job: asdict(judge(library, Job(**job), tokenize)))


# -- the schemas and their instances -----------------------------------------------------------------------------------


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
    columns = percentile_columns(values, f"{name}_p{{}}_{unit}", 2, qs)
    for which, of in (("mean", statistics.mean), ("max", max)):
        columns[f"{name}_{which}_{unit}"] = f"{of(values):.2f}" if values else ""
    return columns


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
    made.add_argument("--worker", nargs=2, metavar=("LIBRARY", "VOCABULARY"), help="the process of a library")
    arguments = made.parse_args()
    if arguments.worker:
        work(*arguments.worker)
        return
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
