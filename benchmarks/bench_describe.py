"""How many tokens does ``hg.describe`` take beside the schema's own JSON?

    python -m benchmarks.bench_describe [--limit N] [--vocabulary NAME ...]

Each schema of the sample is described, and the description is read back (tests/sketch_reader.py). The instances of the
schema are judged by what was read and by the schema: where ``jsonschema`` says the same of both, nothing of the schema
is lost that an instance would show. Only then tokens are counted: of the description, of ``json.dumps(schema)``, and of
the same JSON without white space.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema

import hf_guided as hg
from benchmarks.common import finish, parser, percentile_columns, schema_rows, table_of
from tests import sketch_reader
from tests.vocabularies import VOCABULARIES


def judged_alike(schema: Any, instances: Sequence[Mapping[str, Any]]) -> int:
    """Count the instances that the description judges as the schema does."""
    found = sketch_reader.read(hg.describe(hg.JsonSchema(schema)).partition("\n")[2])
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    opened = jsonschema.Draft202012Validator(found, format_checker=checker)
    closed = jsonschema.Draft202012Validator(sketch_reader.closed(found), format_checker=checker)
    # A description says nothing of keys that a schema leaves open: with them an instance may still be valid.
    return sum((opened if one["valid"] else closed).is_valid(one["data"]) is one["valid"] for one in instances)


def counted(tokenizer: Any, schemas: Sequence[Any]) -> list[tuple[int, int, int]]:
    """Tokens of each description, of the schema's JSON, and of that JSON without white space."""

    def tokens(text: str) -> int:
        return len(tokenizer.encode(text, add_special_tokens=False))

    return [
        (
            tokens(hg.describe(hg.JsonSchema(schema))),
            tokens(json.dumps(schema)),
            tokens(json.dumps(schema, ensure_ascii=False, separators=(",", ":"))),
        )
        for schema in schemas
    ]


def row_of(name: str, counts: Sequence[tuple[int, int, int]], instances: int, alike: int) -> dict[str, Any]:
    described, dumped, minified = (sum(column) for column in zip(*counts, strict=True))
    return {
        "vocabulary": name,
        "schemas": len(counts),
        "instances": instances,
        "judged_alike": alike,
        "described_tokens": described,
        "dumped_tokens": dumped,
        "minified_tokens": minified,
        "ratio": f"{described / dumped:.3f}",
        "ratio_to_minified": f"{described / minified:.3f}",
        **percentile_columns([said / written for said, written, _ in counts], "ratio_p{}", 3),
    }


def main() -> None:
    made = parser(__doc__, "describe.csv")
    made.add_argument("--limit", type=int, help="the number of schemas")
    made.add_argument("--vocabulary", nargs="+", choices=VOCABULARIES, default=[*VOCABULARIES])
    arguments = made.parse_args()
    samples = schema_rows()[: arguments.limit]
    instances = sum(len(sample["tests"]) for sample in samples)
    alike = sum(judged_alike(sample["schema"], sample["tests"]) for sample in samples)
    schemas = [sample["schema"] for sample in samples]
    rows = [row_of(name, counted(VOCABULARIES[name](), schemas), instances, alike) for name in arguments.vocabulary]
    finish(arguments, rows, table_of(rows), whole=arguments.limit is None)


if __name__ == "__main__":
    main()
