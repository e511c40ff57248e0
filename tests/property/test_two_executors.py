"""The network and llguidance's grammar of a schema come from one normal form, and allow the same bytes everywhere.

But for indentation: of flexible white space the grammar takes up to 40 columns, the network what the level may have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.common import data_folder
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, ConstraintError
from tests import effort
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.schema_examples import DRAFTS, Writer
from tests.toy import all_bytes

STEPS = 80
CLOSING = frozenset(b'"}],:')  # preferred, so that texts reach their end
INDENTATION = re.compile(rb"\n[ \t]*\Z")
BACKENDS = NetworkBackend(all_bytes()), LLGuidanceBackend(all_bytes())


def compare(schema: Any, random: Random, whitespace: str, steps: int = STEPS) -> bool | None:
    """Walk both. Return None if one of them refuses the schema, else whether there was any text to compare."""
    constraint = JsonSchema(schema, whitespace=whitespace)
    try:
        network, grammar = (backend.compile(constraint).matcher() for backend in BACKENDS)
    except (ConstraintError, CompileLimitExceeded):
        return None
    text = bytearray()
    for _ in range(steps):
        allowed = draw.allowed(network)
        by_grammar = draw.allowed(grammar)
        if INDENTATION.search(text):
            by_grammar = [byte for byte in by_grammar if byte in allowed or byte not in b" \t"]
        assert allowed == by_grammar, f"{json.dumps(schema)} after {bytes(text)!r}"
        assert network.is_completed() == grammar.is_completed(), bytes(text)
        [byte] = random.choices(allowed, [20 if chosen in CLOSING else 1 for chosen in allowed])
        if byte in all_bytes().stop_token_ids:
            break
        assert network.accept_token(byte) and grammar.accept_token(byte)
        text.append(byte)
    return bool(text)


@settings(max_examples=repeats(50, 150))
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(DRAFTS)))
def test_engines_agree_on_random_schemas(random: Random, draft: int) -> None:
    """Of white space that is flexible they take different amounts where the depth is not known."""
    compare(Writer(random, draft).document(), random, "compact")


CLOSED = {
    "record": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 8, "pattern": "^[^0-9]"},
            "age": {"type": "integer", "minimum": 18, "maximum": 99},
            "score": {"type": "number", "minimum": -0.5, "exclusiveMaximum": 12.25},
            "tags": {"type": "array", "items": {"enum": ["a", "é", 1]}, "uniqueItems": True},
            "when": {"format": "date", "type": "string"},
        },
        "required": ["age", "tags"],
    },
    "branches": {
        "oneOf": [
            {"type": "object", "properties": {"k": {"const": "x"}, "v": {"type": "null"}}, "required": ["k"]},
            {"type": "object", "properties": {"k": {"const": "y"}, "w": {"type": "boolean"}}, "required": ["k"]},
        ]
    },
    "counted": {
        "type": "array",
        "items": {"type": "integer", "minimum": 0, "maximum": 9},
        "contains": {"const": 7},
        "maxItems": 4,
    },
    "named": {
        "type": "object",
        "patternProperties": {"^a": {"type": "null"}},
        "additionalProperties": False,
        "maxProperties": 2,
    },
}


@pytest.mark.parametrize("whitespace", ["flexible", "compact"])
@pytest.mark.parametrize("case", CLOSED)
def test_engines_agree_on_regular_schemas(case: str, whitespace: str) -> None:
    for seed in range(6):
        assert compare(CLOSED[case], Random(seed), whitespace)


def sample() -> Iterator[Any]:
    with (data_folder() / "jsonschemabench" / "schemas.jsonl").open(encoding="utf-8") as lines:
        yield from (json.loads(line)["schema"] for line in lines)


@pytest.mark.skipif(
    not (data_folder() / "jsonschemabench").is_dir(), reason="no jsonschemabench: set HF_GUIDED_DATA to its folder"
)
def test_engines_agree_on_real_schemas() -> None:
    compared = [
        compare(schema, Random(i), "compact", 60)
        for i, schema in enumerate(islice(sample(), 0, None, 6 if effort.everything else 12))
    ]
    assert compared.count(True) >= len(compared) / 2


@pytest.mark.parametrize("whole", ["number", "integer"])
@pytest.mark.parametrize("text", ["12", "12.0", "12.000", "-12.00", "0.00", "13", "12.01", "12."])
def test_zeros_at_the_end_of_multiples(whole: str, text: str) -> None:
    """Of numbers as many as `json` reads, of integers one."""
    matcher = BACKENDS[0].compile(JsonSchema({"type": whole, "multipleOf": 3}, spelling="any")).matcher()
    accepted = all(map(matcher.accept_token, text.encode())) and matcher.is_completed()
    is_spelled = text[-1] != "." if whole == "number" else re.fullmatch(r"-?[0-9]+(\.0)?", text) is not None
    assert accepted == (is_spelled and json.loads(text) % 3 == 0)
