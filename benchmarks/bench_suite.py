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
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bench_schemas import Judged, Sample, Text, failures, in_turns
from benchmarks.common import data_folder, finish, parser, table_of
from benchmarks.declared_order import DeclaredOrder
from benchmarks.schema_libraries import SCHEMA_LIBRARIES
from hf_guided.schema.formats import FORMATS

DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
_REMOTE_BASE = "http://localhost:1234/"


def suite_folder() -> Path:
    return data_folder() / "json-schema-test-suite"


def load_groups() -> Iterator[Sample]:
    """The groups, drafts in turn; its name is the draft, the file and the suite's words: "draft7/allOf: allOf"."""
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
                texts = [json.dumps(order(test["data"]), ensure_ascii=False) for test in group["tests"]]
                judged = zip(texts, group["tests"], strict=True)
                # Most groups refer to nothing outside, and hashing thirty documents for each takes its time.
                needed = registry if _REMOTE_BASE in json.dumps(group["schema"]) else {}
                yield Sample(
                    f"{place}: {group['description']}",
                    schema,
                    tuple(Text(text, test["valid"], True, True) for text, test in judged),
                    needed,
                )


def _with_draft(schema: Any, uri: str) -> Any:
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


def mistakes(judged: Judged) -> list[dict[str, str]]:
    """The wrong verdicts, as ``failures`` has them; an honest refusal is no mistake."""
    outcome = judged.verdict.outcome
    is_honest = outcome == "unsatisfiable" and not any(one.valid for one in judged.sample.texts)
    return [] if outcome == "refused" or is_honest else failures([judged])


def summary(library: str, judged: Sequence[Judged]) -> dict[str, Any]:
    """How many groups a library handles fully: compiled, every valid instance accepted, every invalid one refused."""
    kinds = [{row["what"] for row in mistakes(one)} for one in judged]
    refused = sum(one.verdict.outcome == "refused" for one in judged)
    handled = sum(not found for found in kinds) - refused
    return {
        "library": library,
        "groups": len(judged),
        "handled": handled,
        "refused": refused,
        "valid_refused": sum("valid refused, in order" in found for found in kinds),
        "invalid_accepted": sum("invalid accepted" in found for found in kinds),
        "failed": sum(bool(found - {"valid refused, in order", "invalid accepted"}) for found in kinds),
        "share": f"{handled / max(1, len(judged)):.4f}",
    }


table = partial(
    table_of,
    columns=("library", "groups", "handled", "share", "refused", "valid_refused", "invalid_accepted", "failed"),
)


def main() -> None:
    made = parser(__doc__, "suite.csv")
    made.add_argument("--library", nargs="+", choices=SCHEMA_LIBRARIES, default=list(SCHEMA_LIBRARIES))
    made.add_argument("--list", action="store_true", help="print what was judged wrongly")
    arguments = made.parse_args()
    if not suite_folder().is_dir():
        raise SystemExit(f"{suite_folder()} is missing; set HF_GUIDED_DATA to the folder that holds it")
    judged = in_turns(list(load_groups()), arguments.library, "bytes")
    rows = [summary(name, judged[name]) for name in judged]
    finish(arguments, rows, table(rows), whole=arguments.library == list(SCHEMA_LIBRARIES))
    for name in judged if arguments.list else ():
        for row in [row for one in judged[name] for row in mistakes(one)]:
            print(f"{name}: {': '.join(part for part in row.values() if part)}")


if __name__ == "__main__":
    main()
