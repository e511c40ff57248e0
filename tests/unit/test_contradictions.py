"""Patterns that rule each other out far into the text: found before the first token, never met as a dead end."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import hf_guided as hg
from tests import vocabularies

LENGTH = 7 * 11 * 13  # the shortest string of all three


@cache
def guide() -> hg.Guide:
    tokenizer = vocabularies.demo()
    return hg.Guide(len(tokenizer), tokenizer)


def all_three(most: int) -> dict[str, Any]:
    patterns = [{"pattern": f"^(a{{{step}}})*$"} for step in (7, 11, 13)]
    return {"type": "string", "allOf": patterns, "minLength": 1, "maxLength": most}


def takes(constraint: Any, text: str, backend: str = "auto") -> bool:
    """Whether the text can be written, though it need not end there."""
    return all(
        map(guide().compile(constraint, backend).matcher().accept_token, guide().vocabulary.encode_bytes(text.encode()))
    )


REGEX = "(?=(?:a{7})*$)(?=(?:a{11})*$)(?=(?:a{13})*$)a{1,%d}"


@pytest.mark.parametrize("backend", ["auto", "llguidance", "native"])
@pytest.mark.parametrize(
    "constraint",
    [
        all_three(LENGTH - 1),
        {"type": "array", "items": all_three(LENGTH - 1), "minItems": 1},
        {"type": "object", "properties": {"x": all_three(LENGTH - 1)}, "required": ["x"]},
        {"type": "object", "propertyNames": all_three(LENGTH - 1), "additionalProperties": True, "minProperties": 1},
    ],
    ids=["string", "items", "required", "names"],
)
def test_a_schema_without_values_is_refused(constraint: Any, backend: str) -> None:
    with pytest.raises(hg.ConstraintError):
        guide().compile(constraint, backend)


@pytest.mark.parametrize("backend", ["auto", "llguidance"])
def test_a_regex_without_texts_is_refused(backend: str) -> None:
    with pytest.raises(hg.ConstraintError):
        guide().compile(hg.Regex(REGEX % (LENGTH - 1)), backend)
    assert takes(hg.Regex(REGEX % LENGTH), "a" * LENGTH, backend)


@pytest.mark.parametrize("backend", ["auto", "llguidance", "native"])
def test_a_place_without_values_is_never_begun(backend: str) -> None:
    inside = {"properties": {"x": all_three(LENGTH - 1), "y": {"type": "integer"}}, "type": "object"}
    assert takes(inside, '{"y": 1}', backend) and not takes(inside, '{"x"', backend)
    items = {"type": "array", "items": all_three(LENGTH - 1)}
    assert takes(items, "[]", backend) and not takes(items, '["', backend)
    names = {"type": "object", "patternProperties": {"^b": {"type": "integer"}}, "propertyNames": all_three(LENGTH - 1)}
    assert takes(names, "{}", backend) and not takes(names, '{"a', backend)


def test_one_character_more_and_there_is_a_value() -> None:
    assert takes(all_three(LENGTH), f'"{"a" * LENGTH}"')


def test_what_is_too_hard_to_tell_is_refused_and_can_be_allowed() -> None:
    """There are such strings, but an automaton of either pattern has a state for each text of twenty letters."""
    patterns = ["^[ab]*b[ab]{20}c$", "^[ab]*bb[ab]{25}c$"]
    schema = {"type": "string", "allOf": [{"pattern": pattern} for pattern in patterns]}
    with pytest.raises(hg.UnsupportedConstraint, match="takes too long to tell"):
        guide().compile(schema, "llguidance")
    relaxed = hg.JsonSchema(schema, on_unsupported="validate")
    assert takes(relaxed, '"ab', "llguidance")


@pytest.mark.parametrize("most", [LENGTH - 1, LENGTH])
def test_patterns_in_tags_and_in_elements(most: int) -> None:
    tag = hg.StructuralTag({"type": "structural_tag", "format": {"type": "regex", "pattern": REGEX % most}})
    parameters = {"type": "object", "properties": {"x": all_three(most)}, "required": ["x"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for constraint in (tag, hg.ToolCalls([tool], format="qwen_3_coder", choice="required")):
        if most < LENGTH:
            with pytest.raises(hg.ConstraintError):
                guide().compile(constraint, "native")
        else:
            assert guide().compile(constraint, "native").matcher()


NO_NUMBER = {"type": "integer", "minimum": 5, "maximum": 3}


def different(items: dict[str, Any], low: int) -> dict[str, Any]:
    return {"type": "array", "uniqueItems": True, "items": items, "minItems": low}


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (NO_NUMBER, ""),
        (
            {
                "properties": {
                    "a": {"type": "string"},
                    "b": {"type": "object", "properties": {"x": NO_NUMBER}, "required": ["x"]},
                },
                "type": "object",
                "required": ["b"],
            },
            "/properties/b/properties/x",
        ),
        ({"type": "array", "items": NO_NUMBER, "minItems": 1}, "/items"),
        ({"type": "object", "properties": {"a": NO_NUMBER, "b": NO_NUMBER}, "minProperties": 1}, ""),
        ({"type": "object", "properties": {"a": False}, "required": ["a"]}, ""),
        ({"anyOf": [NO_NUMBER, {"type": "array", "items": NO_NUMBER, "minItems": 1}]}, "/anyOf/1/items"),
        (
            {
                "$ref": "#/$defs/a",
                "$defs": {"a": {"type": "object", "properties": {"b": {"$ref": "#/$defs/a"}}, "required": ["b"]}},
            },
            "/$defs/a/properties/b",
        ),
        (different(different({"type": "boolean"}, 3), 1), "/items"),
        (
            {
                "properties": {"k": different(different({"enum": [*range(9)]}, 10), 2)},
                "required": ["k"],
                "type": "object",
            },
            "/properties/k/items",
        ),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "native"])
def test_a_contradiction_has_a_position(schema: dict[str, Any], pointer: str, backend: str) -> None:
    with pytest.raises(hg.InvalidConstraint, match="contradicts itself") as caught:
        guide().compile(schema, backend)
    assert caught.value.pointers == ((pointer,) if pointer else ())


def test_a_contradiction_stays_one() -> None:
    """The network finds the contradiction; the engine keeps what it has read of a schema."""
    schema = {"type": "array", "uniqueItems": True, "prefixItems": [{"const": "a"}] * 2, "minItems": 2}
    for backend in ("auto", "native", "auto"):
        with pytest.raises(hg.InvalidConstraint, match="contradicts itself"):
            guide().compile(schema, backend)
