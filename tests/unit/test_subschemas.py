"""The patterns of formats, and finding the subschemas of a schema."""

from __future__ import annotations

import datetime
import re

import pytest

from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import InvalidConstraint
from hf_guided.schema.audit import audit
from hf_guided.schema.documents import iter_keywords
from hf_guided.schema.formats import FORMATS
from tests.property.strategies import backend, tiny


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
        backend("native", tiny()).compile(JsonSchema({"items": {"$ref": "#/$defs/x"}}))


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}]
)
def test_reference_only_to_itself_is_refused(schema):
    with pytest.raises(InvalidConstraint, match="refers back to itself"):
        backend("native", tiny()).compile(JsonSchema(schema))


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
