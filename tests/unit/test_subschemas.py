"""The patterns of formats, and finding the subschemas of a schema."""

from __future__ import annotations

from hf_guided.constraints.values import JsonSchema
from hf_guided.schema.audit import audit
from hf_guided.schema.documents import iter_keywords


def test_iter_keywords_yields_exactly_the_subschemas():
    schema = {
        "properties": {"a/b": {"const": {"type": "x"}}, "properties": True},
        "items": [{}, {"enum": [{}]}],
        "dependencies": {"a": ["b"], "c": {"not": {}}},
        "examples": [{}],
    }
    assert [pointer for pointer, _ in iter_keywords(schema)] == [
        "",
        "/properties/a~1b",
        "/items/0",
        "/items/1",
        "/dependencies/c",
        "/dependencies/c/not",
    ]


def test_target_of_a_reference_is_a_subschema_at_any_position():
    node = {"properties": {"next": {"$ref": "#/components/a~1b"}, "day": {"type": "string", "format": "date"}}}
    schema = {"$ref": "#/components/c", "components": {"a/b": node, "c": {"$ref": "#/components/a~1b"}, "unused": {}}}
    assert [pointer for pointer, _ in iter_keywords(schema)] == [
        "",
        "/components/c",
        "/components/a~1b",
        "/components/a~1b/properties/next",
        "/components/a~1b/properties/day",
    ]
    rows = audit(JsonSchema(schema), "llguidance", "", ()).rows
    assert "/components/a~1b/properties/day/format" in {row.pointer for row in rows}
