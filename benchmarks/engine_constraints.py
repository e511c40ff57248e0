"""What bench_engines.py compiles, and the documents it walks through each constraint."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.bench_schemas import texts_of
from benchmarks.common import data_folder, record12
from benchmarks.declared_order import DeclaredOrder
from hf_guided.backends.base import Backend
from hf_guided.constraints.values import Constraint, JsonSchema
from hf_guided.errors import CompileLimitExceeded, ConstraintError

SAMPLE = "sample"  # the group of the sample's regular schemas


@dataclass(frozen=True)
class EngineCase:
    """One constraint and its documents.

    Args:
        group: constraints of one kind, which share a row of results.
        name: of this constraint.
        kind: "regex", "choice" or "schema".
        what: the pattern, the strings or the schema.
        documents: texts that the constraint allows; timed.
        others: texts that it forbids; only judged.
        whitespace: of a schema.
    """

    group: str
    name: str
    kind: str
    what: Any
    documents: Sequence[str]
    others: Sequence[str] = ()
    whitespace: str = "compact"


_REGEXES: dict[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "e-mail": (
        r"[a-zA-Z0-9._%+-]{1,64}@[a-zA-Z0-9.-]{1,63}\.[a-zA-Z]{2,12}",
        ["ada@lovelace.org", "grace.hopper+navy@mail.example.co", "x_1%y@a-b.c.museum"],
        ["ada@lovelace", "@example.org", "a b@example.org"],
    ),
    "date-time": (
        r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)",
        ["2024-02-29T23:59:59Z", "1999-12-31T00:00:00.123456+05:30", "2030-10-01T12:30:45-08:00"],
        ["2024-13-01T00:00:00Z", "2024-02-29 23:59:59Z", "2024-02-29T24:00:00Z"],
    ),
    "UUID": (
        "[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
        ["123e4567-e89b-12d3-a456-426614174000", "f47ac10b-58cc-4372-a567-0e02b2c3d479"],
        ["123e4567-e89b-62d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
    ),
    "version": (
        r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?",
        ["1.0.0", "10.20.30-rc.1+build.5114", "2.0.0-alpha-beta.11.x"],
        ["1.0", "01.0.0", "1.0.0-"],
    ),
    "sentence": (
        r"[A-Z][a-z]*( [a-z]+){2,24}[.!?]",
        [
            "The quick brown fox jumps over the lazy dog.",
            "Every morning the old lighthouse keeper walked slowly down to the harbour and counted the boats!",
            "Who would have thought of that?",
        ],
        ["the fox jumps over it.", "The Fox jumps over it.", "The fox."],
    ),
}

_WORDS = (
    "amber birch cedar delta ember fjord grove harbor island jungle karst lagoon meadow north oasis prairie quarry "
    "ridge summit tundra upland valley willow zenith"
).split()

_PROSE = (
    "It was a bright cold day in April, and the clocks were striking thirteen; nobody in the café near the station "
    'looked up from "The Times". A waiter carried 12 cups of coffee (3 with milk) past tables Nº 7 and 8 – slowly.\n'
)


def regexes() -> Iterator[EngineCase]:
    for name, (pattern, documents, others) in _REGEXES.items():
        yield EngineCase("regexes", name, "regex", pattern, documents, others)


def choices() -> Iterator[EngineCase]:
    """Two words and a number, in a fixed order without a pattern in it."""
    options = [f"{one} {other} {number}" for one, other, number in product(_WORDS, _WORDS, range(1, 20))]
    random.Random(0).shuffle(options)
    for count in (2, 10, 100, 1_000, 10_000):
        chosen = options[:count]
        others = [options[count], chosen[0][:-1] + "x", chosen[0] + " "]
        yield EngineCase("choices", f"{count:,} strings", "choice", chosen, chosen[:50], others)


def records(whitespace: str) -> EngineCase:
    """The 12-field record, the data's documents and as many of ours as make fifty; flexible ones with an indent."""
    indent = 2 if whitespace == "flexible" else None
    record = record12()
    known = record["documents"]
    documents = [*known, *(_record(known, random.Random(seed)) for seed in range(50 - len(known)))]
    wrong = [{**known[0], name: value} for name, value in (("age", 151), ("zip", "1234"), ("city", 1))]
    texts, others = (
        [json.dumps(one, ensure_ascii=False, indent=indent) for one in some] for some in (documents, wrong)
    )
    return EngineCase(f"record12, {whitespace}", "record12", "schema", record["schema"], texts, others, whitespace)


def _record(known: Sequence[dict[str, Any]], rng: random.Random) -> dict[str, Any]:
    """One that fits the schema as the data's documents do."""
    first, last, town = (word.title() for word in rng.sample(_WORDS, 3))
    return {
        "name": f"{first} {last}",
        "age": rng.randint(0, 150),
        "email": f"{first}.{last}@{town}.{rng.choice(['com', 'org', 'net'])}".lower(),
        "city": f"{town} on the {rng.choice(_WORDS).title()}",
        "score": rng.randint(0, 400) / 4,
        "active": rng.random() < 0.5,
        "role": rng.choice(["admin", "user", "guest", "moderator"]),
        "zip": f"{rng.randrange(10**5):05}",
        "country": rng.choice([one["country"] for one in known]),
        "phone": f"+{rng.randrange(10**6, 10**11):07}",
        "level": rng.randint(1, 10),
        "joined": f"{rng.randint(1950, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}",
    }


def bounded_string() -> EngineCase:
    """At most 1,000 characters; one document has exactly as many."""
    prose = (_PROSE * 6)[:1000]
    plain = prose.replace('"', "'").replace("\n", " ")
    documents = [json.dumps(text, ensure_ascii=False) for text in (plain, prose, plain[:300], "", '\\"\t' * 40)]
    return EngineCase(
        "bounded string",
        "1,000 characters",
        "schema",
        {"type": "string", "maxLength": 1000},
        documents,
        [json.dumps(prose + "!", ensure_ascii=False)],
    )


def takes(backend: Backend, constraint: Constraint) -> bool:
    """Whether a backend compiles the constraint in full."""
    try:
        backend.compile(constraint)
    except (ConstraintError, CompileLimitExceeded):
        return False
    return True


@dataclass
class Sampled:
    """The part of the sample that one engine takes.

    Args:
        schemas: the number of schemas in the sample.
        cases: the schemas that the engine takes.
        valid: the number of their valid instances.
        admitted: the number of those without a key that ``extra="forbid"`` forbids.
    """

    schemas: int
    cases: list[EngineCase]
    valid: int = 0
    admitted: int = 0


def sample(backend: Backend, whitespace: str, limit: int | None = None, step: int = 1) -> Sampled:
    """The sample's schemas with ``extra="forbid"``, as far as the backend takes them; the first ones, or every so many.

    Documents are the valid instances that have no key too many, in declared order; others the invalid ones in both
    orders.
    """
    path = data_folder() / "jsonschemabench" / "schemas.jsonl"
    if not path.exists():
        raise SystemExit(f"{path} is missing; set HF_GUIDED_DATA to the folder that holds jsonschemabench/")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][:limit:step]
    sampled = Sampled(len(rows), [])
    for row in rows:
        schema = row["schema"]
        if not takes(backend, JsonSchema(schema, whitespace=whitespace, extra="forbid")):
            continue
        order = DeclaredOrder(schema)
        valid = [test for test in row["tests"] if test["valid"]]
        invalid = [test for test in row["tests"] if not test["valid"]]
        admitted = [test for test in valid if not order.has_undeclared(test["data"])]
        sampled.valid += len(valid)
        sampled.admitted += len(admitted)
        documents = [text.text for text in texts_of(schema, admitted) if text.in_order]
        others = [text.text for text in texts_of(schema, invalid)]
        group = f"{SAMPLE}, {whitespace}"
        sampled.cases.append(EngineCase(group, row["name"], "schema", schema, documents, others, whitespace))
    return sampled
