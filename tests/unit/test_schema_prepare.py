"""Closing objects, replacing formats by patterns, and finding the subschemas of a schema."""

from __future__ import annotations

import datetime
import json
import re

import pytest

from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint
from hf_guided.schema.audit import audit
from hf_guided.schema.formats import FORMATS
from hf_guided.schema.prepare import close_objects, prepare, spell_out
from hf_guided.schema.subschemas import iter_subschemas

OBJECT = {"properties": {"a": {}}}
TO_X = {"$ref": "#/$defs/x"}
CLOSED = {"properties": {"a": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "closed"),
    [
        (OBJECT, CLOSED),
        ({"type": "object"}, {"type": "object"}),
        ({**OBJECT, "additionalProperties": True}, {**OBJECT, "additionalProperties": True}),
        ({**OBJECT, "patternProperties": {"b": OBJECT}}, {**OBJECT, "patternProperties": {"b": CLOSED}}),
        ({"properties": {"a": OBJECT}}, {"properties": {"a": CLOSED}, "additionalProperties": False}),
        ({"items": OBJECT}, {"items": CLOSED}),
        ({"anyOf": [OBJECT, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({**OBJECT, "anyOf": [OBJECT]}, {**OBJECT, "anyOf": [OBJECT]}),
        ({"required": ["b"], "anyOf": [OBJECT]}, {"required": ["b"], "anyOf": [OBJECT]}),
        ({"allOf": [OBJECT, {"items": OBJECT}]}, {"allOf": [OBJECT, {"items": OBJECT}]}),
        ({"not": OBJECT, "if": OBJECT, "then": OBJECT}, {"not": OBJECT, "if": OBJECT, "then": OBJECT}),
        ({"$defs": {"x": OBJECT}, "items": TO_X}, {"$defs": {"x": CLOSED}, "items": TO_X}),
        (
            {"$defs": {"x": OBJECT, "y": {"anyOf": [OBJECT]}}, "allOf": [TO_X]},
            {"$defs": {"x": OBJECT, "y": {"anyOf": [CLOSED]}}, "allOf": [TO_X]},
        ),
        ({"$defs": {"x": OBJECT}, **OBJECT, **TO_X}, {"$defs": {"x": OBJECT}, **OBJECT, **TO_X}),
        ({"enum": [OBJECT], "default": OBJECT}, {"enum": [OBJECT], "default": OBJECT}),
        (
            {"properties": {"a": {}}, "required": ["a", "b"]},
            {"properties": {"a": {}, "b": True}, "required": ["a", "b"], "additionalProperties": False},
        ),
    ],
)
def test_objects_are_closed_where_that_is_safe(schema, closed):
    copied = json.loads(json.dumps(schema))  # no two positions share an object, as in a parsed schema
    close_objects(copied)
    assert copied == closed


def test_extra_allow_leaves_objects_open():
    assert prepare(JsonSchema(OBJECT, extra="allow"))[0] == OBJECT
    assert prepare(JsonSchema(OBJECT))[0] == CLOSED


def test_formats_become_patterns_only_in_schema_positions():
    schema = {
        "properties": {"format": {"type": "string", "format": "date", "maxLength": 10}},
        "enum": [{"format": "date"}],
        "items": {"format": "uuid", "pattern": "^a"},
        "not": {"format": "my-own"},
    }
    spell_out(schema)
    assert schema["properties"]["format"] == {"type": "string", "maxLength": 10, **FORMATS["date"]}
    assert schema["enum"] == [{"format": "date"}]
    assert schema["items"] == {"pattern": "^a", "allOf": [FORMATS["uuid"]]}
    assert schema["not"] == {"format": "my-own"}


def test_date_pattern_matches_exactly_the_existing_days():
    pattern = re.compile(FORMATS["date"]["pattern"])
    for year in [*range(1, 30), 1600, 1700, 1900, 1996, 2000, 2021, 2024, 2100, 2400, 9999]:
        for month in range(14):
            for day in (0, 1, 28, 29, 30, 31, 32):
                text = f"{year:04}-{month:02}-{day:02}"
                try:
                    exists = bool(datetime.date(year, month, day))
                except ValueError:
                    exists = False
                assert bool(pattern.search(text)) == exists, text
    assert not pattern.search("0000-01-01")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("time", "23:59:59Z 00:00:00.5+02:00 01:02:03-23:59", "24:00:00Z 12:60:00Z 12:00:00 1:00:00Z 12:00:00+24:00"),
        ("date-time", "2024-02-29T23:59:59Z", "2023-02-29T23:59:59Z 2024-02-29T23:59:59 2024-02-29"),
        ("uuid", "01234567-89ab-CDEF-0123-456789abcdef", "0123456789abcdef0123456789abcdef"),
        ("ipv4", "0.0.0.0 255.249.199.9", "256.0.0.0 1.2.3 01.2.3.4 1.2.3.4.5"),
        ("email", "a@b.c x+y_z.w@mail-7.example.org", "a@ a..b@c.d @b.c a@-b.c a@b.c@d.e"),
        ("hostname", "a a-b.c0.example", "-a a- a..b a.b. _a"),
    ],
)
def test_patterns_of_other_formats(name, good, bad):
    pattern = re.compile(FORMATS[name]["pattern"])
    assert all(pattern.search(text) for text in good.split())
    assert not any(pattern.search(text) for text in bad.split())


def test_dangling_reference_is_refused():
    with pytest.raises(InvalidConstraint, match="'#/\\$defs/x' at /items, which does not exist"):
        prepare(JsonSchema({"items": {"$ref": "#/$defs/x"}}))


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}]
)
def test_reference_only_to_itself_is_refused(schema):
    with pytest.raises(InvalidConstraint, match="which refers back to itself"):
        prepare(JsonSchema(schema))


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
    prepared = prepare(JsonSchema(schema))[0]["components"]["a/b"]
    assert prepared["additionalProperties"] is False
    assert "format" not in prepared["properties"]["day"]
    rows = audit(JsonSchema(schema), "llguidance", "", ()).rows
    assert "/components/a~1b/properties/day/format" in {row.pointer for row in rows}


def test_members_of_all_of_stay_open_behind_references():
    schema = {"$ref": "#/components/a", "components": {"a": {"allOf": [OBJECT, {"properties": {"b": {}}}]}}}
    assert prepare(JsonSchema(schema))[0] == schema


def test_engine_options_are_removed_and_counts_become_integers():
    schema = {"x-guidance": {"lenient": True}, "properties": {"x-guidance": {"minLength": 2.0, "x-guidance": {}}}}
    prepared = prepare(JsonSchema(schema, extra="allow"))[0]
    assert prepared == {"properties": {"x-guidance": {"minLength": 2}}}
    assert isinstance(prepared["properties"]["x-guidance"]["minLength"], int)
