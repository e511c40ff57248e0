"""The grammar of a schema: an unsatisfiable subschema is an error at the root, and is removed everywhere else."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded, InvalidConstraint
from hf_guided.schema import grammar
from hf_guided.schema.documents import Documents
from hf_guided.schema.grammar import contents
from hf_guided.schema.normalize import Normalizer
from tests.property.strategies import allowed
from tests.toy import all_bytes


def read_contents(schema: Any) -> dict[Any, Any]:
    n = Normalizer(Documents(JsonSchema(schema).schema_json, {}))
    return contents(n, closed=False, spelling="canonical")


NODE = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
NOTHING: dict[str, Any] = {
    "false": False,
    "an empty enum": {"enum": []},
    "a type and a value": {"type": "null", "enum": [1]},
    "bounds": {"type": "integer", "minimum": 3, "maximum": 2},
    "bounds with nothing whole between": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 4},
    "lengths": {"type": "string", "minLength": 3, "maxLength": 2},
    "types of two branches": {"allOf": [{"type": "string"}, {"type": ["null", "array"]}]},
    "a thing and its opposite": {"allOf": [{"required": ["a"]}, {"not": {"required": ["a"]}}], "type": "object"},
    "all types excluded": {"not": {}},
    "both branches of a oneOf": {"oneOf": [{"type": "null"}, {"const": None}, {"type": "null"}]},
    "a required member that is forbidden": {"type": "object", "properties": {"a": False}, "required": ["a"]},
    "a required member with no value": {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"enum": []}, "minItems": 1}},
        "required": ["a"],
    },
    "more required than allowed": {"type": "object", "required": ["a", "b"], "maxProperties": 1},
    "a name that may not be": {"type": "object", "required": ["abc"], "propertyNames": {"maxLength": 2}},
    "items": {"type": "array", "items": False, "minItems": 1},
    "a prefix": {"type": "array", "prefixItems": [{"type": "null"}, {"enum": []}], "minItems": 2},
    "contains": {"type": "array", "items": {"type": "null"}, "contains": {"const": 1}},
    "more different items than there are": {
        "type": "array",
        "items": {"enum": [1, 2]},
        "uniqueItems": True,
        "minItems": 3,
    },
    "if and else": {"if": {"type": "string"}, "then": False, "else": {"type": "string"}},
}


@pytest.mark.parametrize("case", NOTHING)
def test_unsatisfiable_schema_is_an_error(case: str) -> None:
    schema = NOTHING[case]
    validator = jsonschema.Draft202012Validator(schema)
    samples = [
        None, True, 0, 1, 3, 3.5, "", "a", "abc", [], [1], [None], [1, 2, 1], {}, {"a": 1}, {"a": []}, {"abc": 1},
    ]  # fmt: skip
    assert not any(map(validator.is_valid, samples)), "the test case is wrong: a value is valid"
    with pytest.raises(InvalidConstraint, match="no value satisfies"):
        read_contents(schema)


@pytest.mark.parametrize(
    "schema",
    [
        NODE,
        {"type": "array", "items": {"$ref": "#"}, "minItems": 1},
        {"type": "array", "prefixItems": [{"type": "null"}, {"$ref": "#"}], "minItems": 2},
        {"type": "object", "additionalProperties": {"$ref": "#"}, "minProperties": 1},
        {"type": "array", "contains": {"$ref": "#"}},
        {
            "$ref": "#/$defs/a",
            "$defs": {
                "a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/b"}}, "required": ["b"]},
                "b": {"type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
            },
        },
    ],
)
def test_infinite_recursion_is_an_error(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidConstraint, match="no value satisfies"):
        read_contents(schema)


@pytest.mark.parametrize(
    ("schema", "smallest"),
    [
        ({**NODE, "required": []}, {}),
        ({**NODE, "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}}, {"next": None}),
        ({"type": "array", "items": {"$ref": "#"}}, []),
        ({"type": "array", "items": {"$ref": "#"}, "minItems": 2}, None),
        ({"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 2}, {"const": 1}]}, [1, 1]),
        ({"type": "object", "additionalProperties": {"$ref": "#"}}, {"a": {}}),
    ],
)
def test_recursion_with_an_end_has_values(schema: dict[str, Any], smallest: Any) -> None:
    valid = smallest is not None and jsonschema.Draft202012Validator(schema).is_valid(smallest)
    if smallest is None:
        with pytest.raises(InvalidConstraint, match="no value satisfies"):
            read_contents(schema)
        return
    assert valid
    assert read_contents(schema)
    matcher = LLGuidanceBackend(all_bytes()).compile(JsonSchema(schema, extra="allow")).matcher()
    assert all(map(matcher.accept_token, json.dumps(smallest).encode())) and matcher.is_completed()


# Schemas with an unsatisfiable part, and values whose validity the other parts decide.
DEAD_BRANCHES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "an optional member": (
        {"properties": {"a": {"enum": []}, "b": {"type": "null"}}, "type": "object"},
        [{}, {"b": None}, {"a": 1}, {"a": None, "b": None}],
    ),
    "a branch": (
        {"anyOf": [{"type": "array", "items": {"enum": []}, "minItems": 1}, {"type": "null"}]},
        [None, [], [1]],
    ),
    "a branch that only recursion could fill": (
        {
            "anyOf": [{"$ref": "#/$defs/node"}, {"const": 1}],
            "$defs": {"node": {**NODE, "properties": {"next": {"$ref": "#/$defs/node"}}}},
        },
        [1, {}, {"next": 1}, {"next": {}}],
    ),
    "items": ({"type": "array", "items": {"allOf": [{"type": "null"}, {"const": 1}]}}, [[], [None], [1]]),
    "the last of a prefix": ({"type": "array", "prefixItems": [{"const": 1}, False]}, [[], [1], [1, 1], [2]]),
    "names by pattern": (
        {"type": "object", "patternProperties": {"^a": False}, "additionalProperties": {"const": 1}},
        [{}, {"b": 1}, {"a": 1}, {"b": 2}],
    ),
    "one of several kinds of names": (
        {"type": "object", "patternProperties": {"^a": {"const": 1}, "b$": {"const": 2}}},
        [{"a": 1}, {"b": 2}, {"ab": 1}, {"ab": 2}, {"a": 2}],
    ),
    "deep inside": (
        {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": False, "minItems": 1}}},
        [[], [[]], [[], []], [[[]]], [[[1]]]],
    ),
}


@pytest.mark.parametrize("case", DEAD_BRANCHES)
def test_dead_branches_are_removed(case: str) -> None:
    schema, values = DEAD_BRANCHES[case]
    verdicts = [jsonschema.Draft202012Validator(schema).is_valid(value) for value in values]
    assert len(set(verdicts)) == 2, "expected valid and invalid values"
    compiled = LLGuidanceBackend(all_bytes()).compile(JsonSchema(schema, extra="allow"))
    for value, valid in zip(values, verdicts, strict=True):
        matcher = compiled.matcher()
        accepted = all(map(matcher.accept_token, json.dumps(value).encode())) and matcher.is_completed()
        assert accepted == valid, value


@pytest.mark.parametrize("case", DEAD_BRANCHES)
def test_random_walks_never_enter_a_dead_branch(case: str) -> None:
    """After every allowed token, the text can continue or end. Every finished text is valid."""
    schema = DEAD_BRANCHES[case][0]
    compiled = LLGuidanceBackend(all_bytes()).compile(JsonSchema(schema, extra="allow", whitespace="compact"))
    rng, texts = random.Random(5), set()
    for _ in range(60):
        matcher, text = compiled.matcher(), ""
        while len(text) < 40 and not matcher.is_terminated():
            tokens = allowed(matcher)
            assert tokens, f"nothing follows {text!r}"
            # Prefer structural characters, so that a walk reaches the end.
            plain = [token_id for token_id in tokens if token_id >= 256 or chr(token_id) in '{}[],:"nul12a']
            token_id = rng.choice(plain or tokens)
            assert matcher.accept_token(token_id)
            text += "" if matcher.is_terminated() else chr(token_id)
        if matcher.is_terminated():
            texts.add(text)
    assert texts
    for text in texts:
        assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text)), text


def test_number_of_positions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "MAX_POSITIONS", 5)
    small, large = ({"type": "array", "prefixItems": [{"const": i} for i in range(count)]} for count in (3, 4))
    assert len(read_contents(small)) == 5  # the array, its first three items, and any other
    with pytest.raises(CompileLimitExceeded, match="more than 5 positions"):
        read_contents(large)
