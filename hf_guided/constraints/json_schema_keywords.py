"""The keywords of JSON Schema (drafts 4 to 2020-12) by their effect and by the values they hold."""

from __future__ import annotations

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

SINCE = {
    **dict.fromkeys(("const", "contains", "propertyNames"), 6),
    **dict.fromkeys(("if", "then", "else"), 7),
    **dict.fromkeys(
        (
            "dependentRequired",
            "dependentSchemas",
            "maxContains",
            "minContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        ),
        2019,
    ),
    **dict.fromkeys(("prefixItems", "$dynamicRef"), 2020),
}
"""The draft, by number or year, that brought an assertion in; schemas of older ones do not know it."""

KNOWN = ANNOTATIONS | CONTENT | STRUCTURE | ASSERTIONS
