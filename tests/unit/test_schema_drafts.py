"""Drafts of JSON Schema: those before 4 are refused by every engine, wherever a schema names one."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.errors import UnsupportedConstraint
from hf_guided.schema.documents import LATEST, dialect_of
from tests.property.strategies import SCHEMA_BACKENDS, backend, single_bytes

OLD = "http://json-schema.org/draft-03/schema#"
# Each with a value that draft 3 refuses, and the newest draft takes (or cannot read).
OLD_SCHEMAS: list[tuple[dict[str, Any], Any]] = [
    ({"properties": {"a": {"type": "integer", "required": True}}}, {}),
    ({"type": "integer", "divisibleBy": 3}, 4),
    ({"disallow": ["string"]}, "a"),
    ({"extends": {"type": "string"}}, 1),
    ({"type": ["string", {"type": "object", "properties": {"a": {"type": "null"}}}]}, {"a": 1}),
    ({"type": "any", "dependencies": {"a": "b"}}, {"a": 1}),
]


@pytest.mark.parametrize("name", [*SCHEMA_BACKENDS, "auto"])
@pytest.mark.parametrize(("schema", "refused"), OLD_SCHEMAS)
@pytest.mark.parametrize("on_unsupported", ["error", "validate"])
def test_draft_3_is_refused(name: str, schema: dict[str, Any], refused: Any, on_unsupported: Any) -> None:
    assert not jsonschema.Draft3Validator(schema).is_valid(refused)
    constraint = hg.JsonSchema({"$schema": OLD, **schema}, on_unsupported=on_unsupported)
    with pytest.raises(UnsupportedConstraint, match="draft 3 is not read") as caught:
        if name == "auto":
            Compiler(single_bytes()).compile(constraint)
        else:
            backend(name, single_bytes()).compile(constraint)
    assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [("/$schema", "$schema")]


def test_the_audit_of_draft_3_says_nothing_of_its_keywords() -> None:
    report = Compiler(single_bytes()).audit(hg.JsonSchema({"$schema": OLD, "divisibleBy": 3, "type": "integer"}))
    assert report.backend is None and [row[:3] for row in report.rows] == [("/$schema", "$schema", "lost")]


@pytest.mark.parametrize(
    ("draft", "outcome"), [("draft-07/schema#", "annotation"), ("draft/2020-12/schema", "enforced")]
)
def test_the_audit_knows_which_drafts_read_keywords_beside_a_reference(draft: str, outcome: str) -> None:
    beside = {"$ref": "#/$defs/text", "maxLength": 2, "$defs": {"text": {"type": "string"}}}
    schema = {"$schema": f"http{'s' * (draft[5] == '/')}://json-schema.org/{draft}", **beside}
    report = Compiler(single_bytes()).audit(hg.JsonSchema(schema))
    assert {row.keyword: row.outcome for row in report.rows}["maxLength"] == outcome
    cls = jsonschema.validators.validator_for(schema)
    assert cls(schema).is_valid("long") == (outcome == "annotation")


@pytest.mark.parametrize("name", SCHEMA_BACKENDS)
def test_draft_3_inside_another_schema_is_refused(name: str) -> None:
    inside = {"properties": {"a": {"$schema": OLD, "$id": "urn:a", "type": "integer", "divisibleBy": 3}}}
    with pytest.raises(UnsupportedConstraint) as caught:
        backend(name, single_bytes()).compile(hg.JsonSchema(inside))
    assert "/properties/a/$schema" in caught.value.pointers


def test_draft_3_in_the_registry_is_refused_where_it_is_referred_to() -> None:
    registry = {"urn:old": {"$schema": OLD, "type": "integer", "divisibleBy": 3}}
    engine = backend("llguidance", single_bytes())
    with pytest.raises(UnsupportedConstraint, match="draft 3 is not read"):
        engine.compile(hg.JsonSchema({"items": {"$ref": "urn:old"}, "type": "array"}, registry=registry))
    engine.compile(hg.JsonSchema({"type": "integer"}, registry=registry))


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("http://json-schema.org/draft-02/schema#", 2),
        ("http://json-schema.org/draft-04/schema", 4),
        ("http://json-schema.org/draft-07/hyper-schema#", 7),
        ("https://json-schema.org/draft/2019-09/hyper-schema", 2019),
        ("https://example.com/my-own", LATEST),
    ],
)
def test_names_of_drafts(name: str, dialect: int) -> None:
    assert dialect_of({"$schema": name}, LATEST) == dialect
