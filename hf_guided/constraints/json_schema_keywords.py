"""The keywords of JSON Schema (drafts 4 to 2020-12) by their effect and by the values they hold; and normal forms.

The order of keywords and the annotations of a schema do not change which texts match, so they are normalized away
where two constraints may share one compiled grammar. Everything else stays: above all the order of ``properties``,
because it is the order of the output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from .json_text import digest, read_only

ANNOTATIONS = frozenset("title description $comment default examples deprecated readOnly writeOnly".split())
"""Annotations: they inform people and do not change which texts match."""

CONTENT = frozenset("contentEncoding contentMediaType contentSchema".split())
"""Annotations in today's drafts; kept apart because engines may take them as assertions."""

STRUCTURE = frozenset("$anchor $defs $dynamicAnchor $id $recursiveAnchor $schema $vocabulary definitions id".split())
"""Keywords that name schemas, as targets of references."""

HOLDS_SCHEMA = frozenset(
    "additionalItems additionalProperties contains contentSchema else if items not propertyNames then "
    "unevaluatedItems unevaluatedProperties".split()
)
HOLDS_SCHEMA_LIST = frozenset("allOf anyOf items oneOf prefixItems".split())  # `items` was a list before 2020-12
HOLDS_SCHEMA_MAP = frozenset("$defs definitions dependencies dependentSchemas patternProperties properties".split())

OF_ONE_TYPE = {
    "object": frozenset(
        "properties patternProperties additionalProperties propertyNames required minProperties maxProperties".split()
    ),
    "array": frozenset("items prefixItems additionalItems minItems maxItems contains uniqueItems".split()),
    "string": frozenset("minLength maxLength pattern".split()),
    "number": frozenset("minimum maximum exclusiveMinimum exclusiveMaximum multipleOf".split()),
}
"""Keywords that speak of the values of one type alone, and not of a value as a whole."""

_APPLICATORS = (HOLDS_SCHEMA | HOLDS_SCHEMA_LIST | HOLDS_SCHEMA_MAP) - STRUCTURE - CONTENT
_VALIDATION = frozenset(
    "const dependentRequired enum exclusiveMaximum exclusiveMinimum maxContains maxItems maxLength maxProperties "
    "maximum minContains minItems minLength minProperties minimum multipleOf pattern required type uniqueItems".split()
)
_UNEVALUATED = frozenset(["unevaluatedItems", "unevaluatedProperties"])
VOCABULARIES = {
    "applicator": _APPLICATORS - _UNEVALUATED,
    "unevaluated": _UNEVALUATED,  # in 2019-09 applicators
    "validation": _VALIDATION,
}
"""The assertions of the vocabularies that a metaschema may leave out."""

ASSERTIONS = _APPLICATORS | _VALIDATION | {"$dynamicRef", "$recursiveRef", "$ref", "format"}
"""Assertions: they decide whether an instance is valid."""

_OF_2019 = "dependentRequired dependentSchemas maxContains minContains unevaluatedItems unevaluatedProperties".split()
SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("if", "then", "else"), 7),
    **dict.fromkeys(_OF_2019, 2019),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), 2020),
}
"""The draft, by number or year, that brought an assertion in; schemas of older ones do not know it."""

KNOWN = ANNOTATIONS | CONTENT | STRUCTURE | ASSERTIONS

_REFERS = ("$ref", "$dynamicRef")
_ORDERED_MAPS = frozenset({"properties", "patternProperties"})


class NormalForm(NamedTuple):
    """The meaning of a JSON Schema, without what changes no text.

    Args:
        digest: of the schema with sorted keywords and without annotations.
        keywords: of all schemas in it, annotations too.
        formats: the values of ``format``.
        refs: where they refer to.
    """

    digest: str
    keywords: set[str]
    formats: set[str]
    refs: tuple[str, ...]

    @classmethod
    def of(cls, schema_json: str) -> NormalForm:
        """Find the normal form of a schema in the text that ``json_text.dumps`` has written."""
        schema = read_only(schema_json)
        # A $ref may point into an annotation ("#/examples/0"): then the annotation does change which texts match.
        refs = tuple(_refs(schema)) if any([f'"{keyword}"' in schema_json for keyword in _REFERS]) else ()
        pointed_at = {segment for ref in refs for segment in unquote(ref).split("/")}
        keywords, formats = set[str](), set[str]()
        return cls(digest(_normal(schema, ANNOTATIONS - pointed_at, keywords, formats)), keywords, formats, refs)


def _normal(schema: Any, dropped: frozenset[str], keywords: set[str], formats: set[str]) -> Any:
    if not isinstance(schema, dict):
        return schema
    keywords.update(schema)
    if isinstance(schema.get("format"), str):
        formats.add(schema["format"])
    result: dict[str, Any] = {}
    for keyword in sorted(schema):
        value = schema[keyword]
        if keyword in dropped:
            continue
        if keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            names = list(value) if keyword in _ORDERED_MAPS else sorted(value)
            result[keyword] = {name: _normal(value[name], dropped, keywords, formats) for name in names}
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            result[keyword] = [_normal(item, dropped, keywords, formats) for item in value]
        elif keyword in HOLDS_SCHEMA:
            result[keyword] = _normal(value, dropped, keywords, formats)
        else:
            result[keyword] = value
    return result


def _refs(document: Any) -> Iterator[str]:
    """Every string under one of these keywords, at any depth."""
    todo = [document]
    while todo:
        value = todo.pop()
        if isinstance(value, dict):
            yield from (value[key] for key in _REFERS if isinstance(value.get(key), str))
            todo.extend(value.values())
        elif isinstance(value, list):
            todo.extend(value)
