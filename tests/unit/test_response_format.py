"""The constraints of HTTP requests: every kind of response_format, tools, and the errors for malformed ones."""

from __future__ import annotations

from typing import Any

import pytest

from hf_guided.constraints.base import replaced
from hf_guided.constraints.coerce import from_response_format
from hf_guided.constraints.values import Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.errors import InvalidConstraint

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
LENIENT = replaced(JsonSchema(SCHEMA, extra="allow"), lenient=True)
FLAT_TOOL = {"type": "function", "name": "f", "parameters": SCHEMA}


@pytest.mark.parametrize(
    ("response_format", "constraint"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, JsonObject()),
        ({"type": "json_object", "schema": SCHEMA}, JsonSchema(SCHEMA)),
        ({"type": "json", "value": SCHEMA}, JsonSchema(SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}, JsonSchema(SCHEMA)),
        ({"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA, "strict": True}}, JsonSchema(SCHEMA)),
        (
            {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA, "strict": False}},
            LENIENT,
        ),
        ({"type": "json_schema", "name": "r", "schema": SCHEMA, "strict": True}, JsonSchema(SCHEMA)),
        ({"type": "regex", "regex": "a+"}, Regex("a+")),
        ({"type": "regex", "value": "a+"}, Regex("a+")),
        ({"type": "choice", "choice": ["a"]}, Choice(["a"])),
        ({"type": "grammar", "grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
        (
            {"type": "structural_tag", "format": {"type": "any_text"}},
            StructuralTag({"type": "structural_tag", "format": {"type": "any_text"}}),
        ),
    ],
)
def test_response_format_becomes_a_constraint(response_format: dict[str, Any], constraint: Any) -> None:
    assert from_response_format(response_format) == constraint


@pytest.mark.parametrize(
    ("response_format", "says"),
    [
        ("json", r"response_format: expected an object"),
        ({}, r"response_format\.type: expected one of json_schema, "),
        ({"type": "yaml"}, r"response_format\.type"),
        ({"type": ["json_object"]}, r"response_format\.type"),
        ({"type": "json_schema"}, r"response_format\.json_schema: expected .* but it is missing"),
        ({"type": "json_schema", "json_schema": 5}, r"response_format\.json_schema: expected .*, got 5"),
        ({"type": "json_schema", "json_schema": {"schema": {}}}, r"response_format\.json_schema\.name"),
        ({"type": "json_schema", "schema": {}}, r"response_format\.name"),
        ({"type": "json_schema", "json_schema": {"name": "r"}}, r"response_format\.json_schema\.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "r", "schema": {1: 2}}},
            r"json_schema\.schema: .*not a string",
        ),
        ({"type": "json_schema", "json_schema": {"name": "r", "schema": {}, "strict": "yes"}}, r"json_schema\.strict"),
        ({"type": "regex"}, r"response_format\.regex"),
        ({"type": "regex", "pattern": "("}, r"response_format\.pattern: .*compile"),
        ({"type": "choice", "choice": []}, r"response_format\.choice"),
        ({"type": "json"}, r"response_format\.schema"),
        (
            {"type": "json_schema", "json_schema": {"name": "r", "schema": {}, "strct": True}},
            r"response_format\.json_schema: expected the keys .*, got 'strct'; did you mean 'strict'\?",
        ),
        ({"type": "json_schema", "name": "r", "schema": {}, "max_depth": 3}, r"expected the keys .*, got 'max_depth'"),
        ({"type": "json_schema", "json_schema": {"name": "r", "schema": {}}, "strict": True}, r"got 'strict'"),
        ({"type": "json_object", "shema": {}}, r"did you mean 'schema'"),
        ({"type": "text", "schema": {}}, r"response_format: .*got 'schema'"),
        ({"type": "regex", "regex": "a", "flags": "i"}, r"response_format: .*got 'flags'"),
        ({"type": "json", "schema": {}, "name": "x"}, r"response_format: .*got 'name'"),
    ],
)
def test_error_names_the_path(response_format: Any, says: str) -> None:
    with pytest.raises(InvalidConstraint, match=says):
        from_response_format(response_format)


def test_null_keys_are_ignored() -> None:
    assert from_response_format({"type": "json_object", "schema": None, "json_schema": None}) == JsonObject()
