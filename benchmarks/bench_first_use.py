"""How much longer does the first constraint of a kind take in a process than the next one?

A sample is a fresh process with Tekken's 131,072 tokens. It makes a Guide and compiles two plain schemas, which loads
what every schema needs; that is the row "loading", without imports. Then it compiles two schemas that use the same
feature, each to its first mask.

    python -m benchmarks.bench_first_use [--samples 3] [--only NAME ...]
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import hf_guided as hg
from benchmarks.common import finish, parser, table_of
from benchmarks.processes import JobProcess, serve
from hf_guided.schema.formats import FORMATS
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests import vocabularies

FEATURES: dict[str, dict[str, Any]] = {
    "a pattern": {"type": "string", "pattern": "^a+b$"},
    r"\d": {"type": "string", "pattern": r"^\d+$"},
    r"\w": {"type": "string", "pattern": r"^\w+$"},
    r"\p{L}": {"type": "string", "pattern": r"^\p{L}+$"},
    r"\b": {"type": "string", "pattern": r"\bword\b"},
    "look-ahead": {"type": "string", "pattern": "^(?=.*[0-9])[a-z0-9]+$"},
    "enum": {"enum": ["red", "green", 3, None]},
    "bounds": {"type": "integer", "minimum": -40, "maximum": 1234},
    "multipleOf": {"type": "number", "multipleOf": 0.25},
    "recursion": {"$ref": "#/$defs/tree", "$defs": {"tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}},
} | {f"format {name}": {"type": "string", "format": name} for name in FORMATS}
LOADING = "loading"


def measured(name: str) -> dict[str, float]:
    """Milliseconds of the first and the second constraint of a kind, in this process."""
    tokenizer = vocabularies.tekken()
    new_guide = hg.Guide  # imports large parts of transformers, as loading a model does
    began = time.perf_counter()
    guide = new_guide(131_072, tokenizer)
    for key in ("a", "b"):
        ready(guide, {"type": "object", "properties": {key: {"type": "string"}, "n": {"type": "integer"}}})
    loading = 1e3 * (time.perf_counter() - began)
    if name == LOADING:
        return {"first": loading, "again": 0.0}
    feature = FEATURES[name]
    definitions = {keyword: value for keyword, value in feature.items() if keyword == "$defs"}
    schemas = [{"type": "object", "properties": {key: feature}, "required": [key]} | definitions for key in ("x", "y")]
    first, again = (ready(guide, schema) for schema in schemas)
    return {"first": first, "again": again}


def ready(guide: hg.Guide, schema: dict[str, Any]) -> float:
    """Milliseconds from a schema to its first mask."""
    began = time.perf_counter()
    matcher = guide.compile(schema).matcher()
    matcher.fill_next_token_bitmask(allocate_bitmask(1, guide.vocabulary.padded_size), 0)
    return 1e3 * (time.perf_counter() - began)


def sample(name: str) -> dict[str, float]:
    """``measured`` in a fresh process."""
    process = JobProcess(["benchmarks.bench_first_use", "--worker"], limit_s=120)
    found = process.ask(name)
    process.stop()
    return found


def main() -> None:
    made = parser(__doc__, "first_use.csv")
    made.add_argument("--samples", type=int, default=3)
    made.add_argument("--only", nargs="+", choices=[LOADING, *FEATURES], default=[LOADING, *FEATURES])
    made.add_argument("--worker", action="store_true", help="a process of one sample")
    arguments = made.parse_args()
    if arguments.worker:
        serve(measured)
        return
    rows = []
    for name in arguments.only:
        samples = [sample(name) for _ in range(arguments.samples)]
        first, again = (statistics.median(one[which] for one in samples) for which in ("first", "again"))
        figures = {"first_ms": first, "again_ms": again, "extra_ms": first - again}
        rows.append({"case": name} | {key: f"{value:.1f}" for key, value in figures.items()})
    finish(arguments, rows, table_of(rows), whole=len(arguments.only) > len(FEATURES))


if __name__ == "__main__":
    main()
