"""How much of the JSON-Schema-Test-Suite does each library handle fully? Drafts 7 and 2020-12, byte by byte.

    python -m benchmarks.bench_suite [--library NAME ...] [--list]

A group is one schema and its tests. Read are drafts 7 and 2020-12, with their remote documents as the registry, and of
``optional/format`` the formats that are enforced (``hf_guided.schema.formats.FORMATS``). A group is handled fully if
the schema compiles, every valid instance is accepted and every invalid one refused; or if it says that no value fits,
and none of the tests is valid. Keys stand in the order the schema declares. Only hf-guided can be given the remote
documents. A group that takes more than 20 s or 4 GB ends its library's process and costs only itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.common import Row, data_folder, finish, parser, table_of
from benchmarks.declared_order import DeclaredOrder
from benchmarks.schema_libraries import SCHEMA_LIBRARIES
from benchmarks.schema_worker import Job, Verdict, Worker
from hf_guided.schema.formats import FORMATS

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_REMOTE_BASE = "http://localhost:1234/"


class Instance(NamedTuple):
    """An instance of a group."""

    description: str  # the suite's words
    text: str  # JSON of the instance, keys in the order the schema declares them
    valid: bool  # judgement of the suite


@dataclass(frozen=True)
class Group:
    """A schema and its tests."""

    place: str  # draft and file, e.g. "draft7/allOf"
    description: str  # the suite's words
    schema: Any  # schema with its "$schema"
    tests: tuple[Instance, ...]
    registry: dict[str, Any]  # documents that references may name, by URI

    @property
    def job(self) -> Job:
        return Job(self.schema, [test.text for test in self.tests], self.registry)


class Mistake(NamedTuple):
    """A test that was judged wrongly; ``test`` is "" where the whole group failed."""

    place: str
    group: str
    test: str
    what: str  # "valid refused" | "invalid accepted" | "crash" | ...
    detail: str = ""


def suite_folder() -> Path:
    return data_folder() / "json-schema-test-suite"


def load_groups() -> Iterator[Group]:
    """Every group, drafts in turn."""
    for draft, uri in DRAFTS.items():
        folder = suite_folder() / "tests" / draft
        registry = _remotes(draft, uri)
        files = sorted(folder.glob("*.json"))
        files += [path for path in sorted(folder.glob("optional/format/*.json")) if path.stem in FORMATS]
        for path in files:
            place = f"{draft}/{path.relative_to(folder).with_suffix('').as_posix()}"
            for group in json.loads(path.read_text(encoding="utf-8")):
                schema = _with_draft(group["schema"], uri)
                order = DeclaredOrder(schema, registry)
                tests = tuple(_instance(order, test) for test in group["tests"])
                # Most groups refer to nothing outside, and hashing thirty documents for each takes its time.
                needed = registry if _REMOTE_BASE in json.dumps(group["schema"]) else {}
                yield Group(place, group["description"], schema, tests, needed)


def _instance(order: DeclaredOrder, test: dict[str, Any]) -> Instance:
    text = json.dumps(order(test["data"]), ensure_ascii=False)
    return Instance(test["description"], text, test["valid"])


def _with_draft(schema: Any, uri: str) -> Any:
    """Schema with the draft of its folder."""
    return {"$schema": uri, **schema} if isinstance(schema, dict) else schema


def _remotes(draft: str, uri: str) -> dict[str, Any]:
    """The documents for all drafts, and those of one."""
    folder = suite_folder() / "remotes"
    others = {path.name for path in folder.iterdir() if path.name.startswith(("draft", "v1"))} - {draft}
    documents = {}
    for path in sorted(folder.rglob("*.json")):
        name = path.relative_to(folder)
        if name.parts[0] not in others:
            documents[f"{_REMOTE_BASE}{name.as_posix()}"] = _with_draft(json.loads(path.read_text("utf-8")), uri)
    return documents


def mistakes(group: Group, verdict: Verdict) -> list[Mistake]:
    """Mistakes of a verdict; an honest refusal is no mistake."""
    if verdict.outcome == "refused" or (
        verdict.outcome == "unsatisfiable" and not any(test.valid for test in group.tests)
    ):
        return []
    if verdict.outcome != "compiled":
        detail = "; ".join(reason for _, _, reason in verdict.reasons)
        return [Mistake(group.place, group.description, "", verdict.outcome, detail)]
    found = []
    for test, accepted, at in zip(group.tests, verdict.accepted, verdict.stopped_at, strict=True):
        if accepted != test.valid:
            what = "invalid accepted" if accepted else "valid refused"
            where = test.text if accepted else f"{test.text[:at]} >>> {test.text[at:]}"
            found.append(Mistake(group.place, group.description, test.description, what, where[:200]))
    return found


def summary(library: str, judged: Iterable[tuple[Group, Verdict]]) -> dict[str, Any]:
    """How many groups a library handles fully: compiled, every valid instance accepted, every invalid one refused."""
    counts = dict.fromkeys(("groups", "handled", "refused", "valid_refused", "invalid_accepted", "failed"), 0)
    for group, verdict in judged:
        whats = {mistake.what for mistake in mistakes(group, verdict)}
        counts["groups"] += 1
        counts["refused"] += verdict.outcome == "refused"
        counts["handled"] += verdict.outcome != "refused" and not whats
        counts["valid_refused"] += "valid refused" in whats
        counts["invalid_accepted"] += "invalid accepted" in whats
        counts["failed"] += bool(whats - {"valid refused", "invalid accepted"})
    return {"library": library, **counts, "share": f"{counts['handled'] / max(1, counts['groups']):.4f}"}


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for each library; all counts are groups."""
    return table_of(
        rows,
        {
            "library": "library",
            "handled fully": lambda row: f"{row['handled']} of {row['groups']} ({float(row['share']):.1%})",
            "refused": "refused",
            "valid refused": "valid_refused",
            "invalid accepted": "invalid_accepted",
            "failed": "failed",
        },
    )


def main() -> None:
    made = parser(__doc__, "suite.csv")
    made.add_argument("--library", nargs="+", choices=SCHEMA_LIBRARIES, default=list(SCHEMA_LIBRARIES))
    made.add_argument("--list", action="store_true", help="print what was judged wrongly")
    arguments = made.parse_args()
    if not suite_folder().is_dir():
        raise SystemExit(f"{suite_folder()} is missing; set HF_GUIDED_DATA to the folder that holds it")
    groups = list(load_groups())
    rows = []
    for name in arguments.library:
        worker = Worker(name, "bytes")
        judged = [(group, worker(group.job)) for group in groups]
        worker.stop()
        rows.append(summary(name, judged))
        if arguments.list:
            for group, verdict in judged:
                for mistake in mistakes(group, verdict):
                    print(f"{name}: {': '.join(part for part in mistake if part)}")
    finish(arguments, rows, table(rows), whole=arguments.library == list(SCHEMA_LIBRARIES))


if __name__ == "__main__":
    main()
