"""How many tokens does ``hg.describe`` take beside the schema's own JSON?

    python -m benchmarks.bench_describe [--limit N] [--vocabulary NAME ...] [--csv FILE]

Each schema of the sample is described, and the description is read back (tests/sketch_reader.py). The instances of the
schema are judged by what was read and by the schema: where ``jsonschema`` says the same of both, nothing of the schema
is lost that an instance would show. Only then tokens are counted: of the description, of ``json.dumps(schema)``, and of
the same JSON without white space.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jsonschema

import hf_guided as hg
from benchmarks.bench_engines import percentiles
from benchmarks.common import RESULTS, data_folder, markdown_table, write_csv
from tests import sketch_reader
from tests.vocabularies import VOCABULARIES


def judged_alike(schema: Any, instances: Sequence[Mapping[str, Any]]) -> int:
    """Of how many instances the description says what the schema says of them."""
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
    low, middle, high = percentiles([said / written for said, written, _ in counts], (20, 50, 80))
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
        "ratio_p20": f"{low:.3f}",
        "ratio_p50": f"{middle:.3f}",
        "ratio_p80": f"{high:.3f}",
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    header = [
        "vocabulary",
        "schemas",
        "described",
        "`json.dumps`",
        "minified",
        "ratio",
        "p20 - p50 - p80",
        "judged alike",
    ]
    return markdown_table(
        header,
        [
            [
                str(row["vocabulary"]),
                str(row["schemas"]),
                str(row["described_tokens"]),
                str(row["dumped_tokens"]),
                str(row["minified_tokens"]),
                str(row["ratio"]),
                f"{row['ratio_p20']} - {row['ratio_p50']} - {row['ratio_p80']}",
                f"{row['judged_alike']} of {row['instances']}",
            ]
            for row in rows
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="so many schemas")
    parser.add_argument("--vocabulary", nargs="+", choices=VOCABULARIES, default=[*VOCABULARIES])
    parser.add_argument("--csv", type=Path, help="where the rows go (results/describe.csv for a whole run)")
    arguments = parser.parse_args()
    path = data_folder() / "jsonschemabench" / "schemas.jsonl"
    if not path.exists():
        raise SystemExit(f"{path} is missing; set HF_GUIDED_DATA to the folder that holds jsonschemabench/")
    samples = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()][: arguments.limit]
    instances = sum(len(sample["tests"]) for sample in samples)
    alike = sum(judged_alike(sample["schema"], sample["tests"]) for sample in samples)
    schemas = [sample["schema"] for sample in samples]
    rows = [row_of(name, counted(VOCABULARIES[name](), schemas), instances, alike) for name in arguments.vocabulary]
    print(table(rows))
    csv = arguments.csv or (None if arguments.limit else RESULTS / "describe.csv")
    if csv is not None:
        write_csv(csv, rows)


if __name__ == "__main__":
    main()
