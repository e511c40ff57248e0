"""The patterns of formats, and finding the subschemas of a schema."""

from __future__ import annotations

from hf_guided.constraints.values import JsonSchema
from hf_guided.schema.audit import audit
from hf_guided.schema.subschemas import iter_subschemas


def test_iter_subschemas_yields_exactly_the_subschemas():
    schema = {
        "properties": {"a/b": {"const": {"type": "x"}}, "properties": True},
        "items": [{}, {"enum": [{}]}],
        "dependencies": {"a": ["b"], "c": {"not": {}}},
        "examples": [{}],
    }
    assert [(subschema.pointer, subschema.keyword) for subschema in iter_subschemas(schema)] == [
        ("", ""),
        ("/properties/a~1b", "properties"),
        ("/properties/properties", "properties"),
        ("/items/0", "items"),
        ("/items/1", "items"),
        ("/dependencies/c", "dependencies"),
        ("/dependencies/c/not", "not"),
    ]


def test_target_of_a_reference_is_a_subschema_at_any_position():
    node = {"properties": {"next": {"$ref": "#/components/a~1b"}, "day": {"type": "string", "format": "date"}}}
    schema = {"$ref": "#/components/c", "components": {"a/b": node, "c": {"$ref": "#/components/a~1b"}, "unused": {}}}
    assert [(subschema.pointer, subschema.keyword) for subschema in iter_subschemas(schema)] == [
        ("", ""),
        ("/components/c", "$ref"),
        ("/components/a~1b", "$ref"),
        ("/components/a~1b/properties/next", "properties"),
        ("/components/a~1b/properties/day", "properties"),
    ]
    rows = audit(JsonSchema(schema), "llguidance", "", ()).rows
    assert "/components/a~1b/properties/day/format" in {row.pointer for row in rows}
