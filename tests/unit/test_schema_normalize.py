"""Normalizing schemas: cases that random schemas rarely contain, and former defects."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint, Loss
from hf_guided.schema.grammar import contents
from hf_guided.schema.normalize import Normalizer
from hf_guided.vocabulary.bitmask import allocate_bitmask
from tests.effort import repeats
from tests.toy import all_bytes

BACKEND = LLGuidanceBackend(all_bytes())
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def accepts(schema: dict[str, Any], text: str) -> bool:
    """Whether the grammar of a schema accepts the text. The schema must have no losses."""
    matcher = BACKEND.compile(JsonSchema(schema, extra="allow")).matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


def losses(schema: dict[str, Any]) -> list[Loss]:
    """The keywords that are not enforced."""
    return list(BACKEND.losses(JsonSchema(schema, extra="allow")))


def agrees_with_jsonschema(schema: dict[str, Any], *texts: str) -> bool:
    """Whether the grammar and `jsonschema` agree on all texts. Some of the texts have to be valid, and some not."""
    cls = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    valid = cls(schema, format_checker=cls.FORMAT_CHECKER)
    expected = [valid.is_valid(json.loads(text)) for text in texts]
    assert {True, False} == set(expected)
    return [accepts(schema, text) for text in texts] == expected


def test_branches_are_told_apart_by_a_member_and_the_type_beside_them() -> None:
    """Each branch alone holds for all that is no object."""

    def address(country: str, *others: str) -> dict[str, Any]:
        names = {name: {"type": "string", "enum": ["x", "y", "z"]} for name in others}
        members = {"country": {"enum": [country]}, **names}
        return {"properties": members, "required": [*members], "additionalProperties": False}

    branches = [address("CAN", "province", "code"), address("USA", "state", "zip"), address("MEX", "state", "code")]
    schema = {"type": "object", "oneOf": branches}
    assert losses(schema) == []
    assert agrees_with_jsonschema(
        schema,
        '{"country": "CAN", "province": "x", "code": "y"}',
        '{"country": "MEX", "state": "x", "code": "y"}',
        '{"country": "USA", "state": "x", "code": "y"}',
        '{"country": "USA", "state": "x"}',
        '{"country": "FRA", "state": "x", "code": "y"}',
        "7",
    )
    # Without the type, a number would be in all branches at once; with a negation it is in none of "exactly one".
    assert not accepts({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, "7")
    assert accepts({"not": {"type": "object", "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}}, "7")


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^ab$", "minLength": 3},
        {"type": "string", "format": "ipv4", "maxLength": 3},
        {"type": "string", "format": "ipv4", "pattern": "a|b"},
        {"type": "string", "allOf": [{"pattern": "^a"}, {"pattern": "^b"}]},
        {"type": "string", "pattern": "^(?!a)a"},
        {"type": "string", "pattern": "a^"},
        {"type": "integer", "multipleOf": 3, "exclusiveMinimum": 0, "maximum": 2},
        {"type": "number", "multipleOf": 0.25, "exclusiveMinimum": 0.5, "exclusiveMaximum": 0.75},
        {"type": "number", "multipleOf": 3, "not": {"type": "integer"}},
        {"type": "integer", "minimum": 1, "maximum": 2, "not": {"enum": [1, 2]}},
        {"type": "object", "required": ["a"], "properties": {"a": {"type": "string", "pattern": "b", "maxLength": 0}}},
        {"type": "object", "required": ["a"], "unevaluatedProperties": False},
    ],
)
def test_unsatisfiable_schema_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidConstraint, match="no value satisfies"):
        BACKEND.compile(JsonSchema(schema, extra="allow"))


@pytest.mark.parametrize(
    ("schema", "begun"),
    [
        ({"required": ["a"], "properties": {"a": {"type": "string", "pattern": "b", "maxLength": 0}}}, ""),
        ({"required": ["a"], "unevaluatedProperties": False}, ""),
        ({"required": ["a"], "patternProperties": {"^a": {"type": "null"}, "a$": {"type": "string"}}}, ""),
        ({"properties": {"a": {}}, "patternProperties": {"^a$": {}}, "additionalProperties": False}, '{"a": 1'),
        ({"propertyNames": {"pattern": "a", "maxLength": 0}}, "{"),
        ({"properties": {"a": {}}, "propertyNames": {"const": "a"}}, '{"a": 1'),
    ],
)
def test_parts_that_cannot_be_completed_are_not_started(schema: dict[str, Any], begun: str) -> None:
    """An object without a valid value is not opened, and no comma is allowed where no member can follow."""
    matcher = BACKEND.compile(JsonSchema(schema, extra="allow")).matcher()
    assert all(map(matcher.accept_token, begun.encode()))
    bitmask = allocate_bitmask(1, 257)
    matcher.fill_next_token_bitmask(bitmask, 0)
    allowed = {token for token in range(256) if int(bitmask[0, token // 32]) >> token % 32 & 1}
    assert allowed
    assert not allowed & set(b"," if begun.endswith("1") else b'"' if begun else b"{")


def test_many_pattern_properties() -> None:
    """Only sets of patterns that some name matches are compiled, here eleven of 1,024."""
    kinds = ["string", "integer", "null", "boolean", "array"]
    patterns = {f"^{letter}": {"type": kinds[i % 5]} for i, letter in enumerate("abcdefghij")}
    schema = {"patternProperties": patterns, "additionalProperties": {"type": "object"}}
    for i, letter in enumerate("abcdefghij"):
        good, bad = (['""', "1", "null", "true", "[]"][(i + shift) % 5] for shift in (0, 1))
        assert agrees_with_jsonschema(
            schema, f'{{"{letter}x": {good}}}', f'{{"{letter}x": {bad}}}', '{"z": {}}', '{"z": 1}'
        )


def test_keyword_whose_vocabulary_the_metaschema_leaves_out_is_a_loss() -> None:
    vocab = "https://json-schema.org/draft/2020-12/vocab/"
    uri = "https://example.com/metaschema"
    schema = {"$schema": uri, "properties": {"a": {"$ref": "#/any/place"}}, "any": {"place": {"minimum": 10}}}

    def lost(schema: dict[str, Any], *vocabularies: str) -> list[tuple[str, str]]:
        metaschema = {"$id": uri, "$vocabulary": {vocab + name: True for name in vocabularies}}
        losses = BACKEND.losses(JsonSchema(schema, registry={uri: metaschema}))
        return [(loss.pointer, loss.keyword) for loss in losses]

    assert lost(schema, "core", "applicator") == [("/any/place/minimum", "minimum")]
    assert lost(schema, "core", "validation") == [("/properties", "properties")]
    assert lost(schema, "core", "applicator", "validation") == []
    assert lost({"$schema": uri, "type": "number", "title": "n"}, "core", "validation") == []
    schema = {"$schema": uri, "type": "object", "unevaluatedProperties": False, "maxProperties": 2}
    assert lost(schema, "core", "applicator", "unevaluated") == [("/type", "type"), ("/maxProperties", "maxProperties")]
    assert lost(schema, "core", "applicator", "validation") == [("/unevaluatedProperties", "unevaluatedProperties")]


@pytest.mark.parametrize(
    "schema",
    [
        {"contains": {"type": "string"}, "unevaluatedItems": False},
        {"contains": {"type": "string"}, "minContains": 0, "unevaluatedItems": {"type": "null"}},
        {"prefixItems": [{"const": 1}], "contains": {"type": "string"}, "maxContains": 1, "unevaluatedItems": False},
        {"anyOf": [{"contains": {"const": 1}}, {"contains": {"type": "string"}}], "unevaluatedItems": False},
        {"not": {"not": {"contains": {"type": "string"}}}, "unevaluatedItems": False},
    ],
)
def test_items_matched_by_contains_are_evaluated(schema: dict[str, Any]) -> None:
    texts = ["[]", '["a"]', '["a", "b"]', "[1]", '[1, "a"]', '["a", 1]', "[null]", '["a", null]', '[1, "a", "b"]', "1"]
    assert agrees_with_jsonschema(schema, *texts)


def test_contains_with_unevaluated_items_of_2019_is_a_loss() -> None:
    schema = {"$schema": DRAFT_2019, "contains": {"type": "string"}, "unevaluatedItems": False}
    assert [loss.keyword for loss in BACKEND.losses(JsonSchema(schema))] == ["unevaluatedItems"]


@pytest.mark.parametrize(
    "items",
    [
        {"anyOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]},
        {"anyOf": [{"enum": ["1", True]}, {"type": "boolean"}, {"enum": [1, 2]}]},
    ],
)
def test_unique_items_with_overlapping_enums(items: dict[str, Any]) -> None:
    schema = {"type": "array", "items": items, "uniqueItems": True}
    assert agrees_with_jsonschema(schema, "[2, 2]", "[1, 2]", "[1, true]", '["1", 1]', "[true, true]", "[false, 2]")


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": [{"a": 1}, 2], "unevaluatedProperties": False},
        {"enum": [[1], 2], "unevaluatedItems": False},
        {"enum": [{"a": 1}, {"a": 1, "b": 2}], "properties": {"a": {}}, "unevaluatedProperties": False},
    ],
)
def test_enum_values_are_not_evaluated(schema: dict[str, Any]) -> None:
    assert agrees_with_jsonschema(schema, '{"a": 1}', '{"a": 1, "b": 2}', "[1]", "[]", "{}", "2")


@pytest.mark.parametrize(
    "bound", [{"minProperties": 1}, {"maxProperties": 1}, {"maxProperties": 2}, {"minProperties": 2}]
)
def test_required_unknown_member_counts_for_the_bounds(bound: dict[str, int]) -> None:
    known = {"a": {}, "b": {}}
    schema = {"properties": known, "not": {"properties": known, "additionalProperties": False}, **bound}
    texts = ["{}", '{"a": 1}', '{"x": 1}', '{"a": 1, "x": 1}', '{"x": 1, "y": 1}', '{"a": 1, "b": 1, "x": 1}', "1"]
    assert [loss.keyword for loss in losses(schema)] == ["minProperties"] * (bound == {"minProperties": 2})
    assert losses(schema) or agrees_with_jsonschema(schema, *texts)


def test_the_same_schema_is_read_in_the_same_way_each_time() -> None:
    """Terms that hold, and that do not, stand in sets, whose order depends on where the objects are in memory."""
    again, whole = {"$ref": "#/$defs/b"}, {"$ref": "#"}
    both = [again, {"type": "array", "items": again, "prefixItems": [whole, whole]}]
    item = {"type": "string", "minLength": 3, "maxLength": 2}
    schema = {
        "type": "array",
        "items": {"type": "array", "items": item, "prefixItems": [again]},
        "prefixItems": [whole],
        "$defs": {"b": {"type": "array", "items": {"oneOf": both}, "prefixItems": [{"type": "null"}], "maxItems": 2}},
    }
    found, kept = set(), []
    for size in range(repeats(4, 30)):
        kept.append([object() for _ in range(size)])
        n = Normalizer.of(JsonSchema(schema, extra="allow"))
        kept.append(contents(n, closed=False, spelling="canonical"))
        found.add((n._work, tuple(n.losses)))
    assert len(found) == 1
