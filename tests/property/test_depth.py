"""max_depth: of all small values, exactly the valid ones (by `jsonschema`) within the bound on nesting are accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import jsonschema
import pytest

from hf_guided.backends.automaton import AutomatonBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint
from tests.pairs import once_each
from tests.reference.language_size import language_size
from tests.toy import all_bytes

BACKEND = AutomatonBackend(all_bytes())
LEAVES = [None, 0, "a"]


def values(depth: int) -> Iterator[Any]:
    """Values of at most ``depth`` levels of nesting, with up to two entries each."""
    yield from LEAVES
    if depth:
        inner = list(values(depth - 1))
        yield from ([], {})
        yield from ([value] for value in inner)
        yield from ({name: value} for name in ("next", "value") for value in inner)
        few = inner[:: max(1, len(inner) // 12)]
        yield from ([first, second] for first, second in product(few, few))
        yield from ({"next": first, "value": second} for first, second in product(few, few))


def nesting(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(nesting, value.values()), default=0)
    return 1 + max(map(nesting, value), default=0) if isinstance(value, list) else 0


VALUES = list(values(3))
SCHEMAS: dict[str, Any] = {
    "any": {},
    "any object": {"type": "object"},
    "array of anything": {"type": "array", "items": {}, "maxItems": 2},
    "two branches": {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"const": 0}]},
    "list": {
        "type": "object",
        "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "value": {"enum": [0, "a"]}},
        "required": ["next"],
        "additionalProperties": False,
    },
    "tree": {
        "type": ["array", "null"],
        "items": {"$ref": "#"},
        "minItems": 1,
    },
    "not recursive": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}},
}


@pytest.mark.parametrize(("case", "max_depth"), once_each(SCHEMAS, [1, 2, 3, 4], cost=lambda cell: int(cell[1])))
def test_accepted_values_are_the_valid_ones_within_the_depth(case: str, max_depth: int) -> None:
    schema = SCHEMAS[case]
    validator = jsonschema.Draft202012Validator(schema)
    compiled = BACKEND.compile(JsonSchema(schema, "compact", "allow", max_depth=max_depth))
    accepted = []
    for value in VALUES:
        matcher = compiled.matcher()
        taken = all(map(matcher.accept_token, json.dumps(value).encode())) and matcher.is_completed()
        assert taken == (validator.is_valid(value) and nesting(value) <= max_depth), json.dumps(value)
        accepted.append(taken)
    assert 0 < accepted.count(True) < len(VALUES) or case == "any"


def test_values_that_cannot_be_closed_within_the_depth_are_not_started() -> None:
    """Every accepted prefix can be completed, also if a required entry would nest more deeply."""
    schema = {"type": "array", "items": {"anyOf": [{"$ref": "#"}, {"const": 1}]}, "minItems": 1, "maxItems": 2}
    dfa = BACKEND.compile(JsonSchema(schema, "compact", max_depth=2, spelling="any")).new_engine()._language.walk.dfa  # type: ignore
    texts = ["1"]
    for _ in range(2):
        texts = ["1", *(f"[{', '.join(items)}]" for count in (1, 2) for items in product(texts, repeat=count))]
    # The whole value is an array, and each 1 may also be written 1.0.
    assert language_size(dfa) == sum(2 ** text.count("1") for text in texts[1:])
    with pytest.raises(InvalidConstraint, match="nests at most 1 arrays and objects"):
        BACKEND.compile(JsonSchema({"type": "array", "items": {"type": "array"}, "minItems": 1}, max_depth=1))
    endless = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}
    with pytest.raises(InvalidConstraint, match="no value satisfies"):
        BACKEND.compile(JsonSchema(endless, max_depth=5))


def test_depth_that_is_never_reached_adds_no_states() -> None:
    flat = {"type": "array", "items": {"type": "integer"}}
    sizes = [
        BACKEND.compile(JsonSchema(flat, max_depth=depth)).new_engine()._language.walk.dfa.states  # type: ignore
        for depth in (None, 1, 10**9)
    ]
    assert len(set(sizes)) == 1
