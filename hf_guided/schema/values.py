"""``const`` and ``enum``: listed values as shapes, or all values but those."""

from __future__ import annotations

from collections.abc import Hashable
from decimal import Decimal
from typing import Any

from ..regex import alt, complement, text
from . import readers
from .combine import certainly
from .context import SchemaContext
from .documents import Subschema
from .shapes import (
    NEVER,
    UNIVERSE,
    ArrayClause,
    BooleanClause,
    Items,
    Kind,
    Members,
    NullClause,
    NumberClause,
    ObjectClause,
    Shape,
    StringClause,
    Term,
)


def constant(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    """See ``APPLY``."""
    assert isinstance(sub.schema, dict)
    return _listed(n, sub, [sub.schema["const"]], holds) if sub.dialect >= 6 else certainly(holds)


def enumeration(n: SchemaContext, sub: Subschema, holds: bool) -> Shape:
    """See ``APPLY``."""
    assert isinstance(sub.schema, dict)
    values = sub.schema["enum"]
    if not isinstance(values, list):
        readers.malformed(sub, "enum", "a list of values")
    return _listed(n, sub, values, holds)


def _listed(n: SchemaContext, sub: Subschema, values: list[Any], holds: bool) -> Shape:
    """The values, or all others."""
    numbers = tuple(dict.fromkeys(Decimal(value) for value in values if _is_number(value)))
    floats = {value for value in values if isinstance(value, Decimal)}
    strings = tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
    booleans = frozenset(value for value in values if isinstance(value, bool))
    arrays = [value for value in values if isinstance(value, list)]
    objects = [value for value in values if isinstance(value, dict)]
    if holds:
        listed: Shape = {
            "null": (NullClause(),) * (None in values),
            "boolean": (BooleanClause(booleans),) * bool(booleans),
            "number": (NumberClause(values=numbers, floats=frozenset(numbers) & floats),) * bool(numbers),
            "string": (StringClause(values=strings),) * bool(strings),
            "array": tuple(dict.fromkeys([_array_value(n, sub, value) for value in arrays])),
            "object": tuple(dict.fromkeys([_object_value(n, sub, value) for value in objects])),
        }
        return {kind: clauses for kind, clauses in listed.items() if clauses}
    others: Shape = dict(UNIVERSE)
    if None in values:
        del others["null"]
    if booleans:
        others["boolean"] = (BooleanClause(frozenset({True, False}) - booleans),)
    if numbers:
        others["number"] = (NumberClause(excluded=frozenset(numbers)),)
    if strings:
        others["string"] = (StringClause(language=complement(alt(*map(text, strings)))),)
    if len(booleans) == 2:
        del others["boolean"]
    containers_of: dict[Kind, list[Any]] = {"array": arrays, "object": objects}
    for kind, containers in containers_of.items():
        for value in containers:
            inner = n.documents.invent(sub, _spelled_out(value))
            rest = {**UNIVERSE, kind: n.term(Term(inner, False)).get(kind, ())}
            others = n.meet(others, rest, sub, "enum")
    return {kind: clauses for kind, clauses in others.items() if clauses}


def _array_value(n: SchemaContext, sub: Subschema, value: list[Any]) -> ArrayClause:
    prefix = tuple(n.value(item, sub) for item in value)
    return ArrayClause((Items(prefix, NEVER, evaluates=False),), len(value), len(value), constant=_constant(value))


def _object_value(n: SchemaContext, sub: Subschema, value: dict[str, Any]) -> ObjectClause:
    named = {name: n.value(inner, sub) for name, inner in value.items()}
    return ObjectClause((Members(named, (), NEVER, evaluates=False),), tuple(value), constant=_constant(value))


def _constant(value: Any) -> Hashable:
    try:
        return _key(value)
    except RecursionError:
        return None  # other ways tell it apart, or none


def _key(value: Any) -> Hashable:
    """The same for equal JSON values: 1 is 1.0, and not true."""
    if isinstance(value, dict):
        return "object", frozenset((name, _key(inner)) for name, inner in value.items())
    if isinstance(value, list):
        return "array", *map(_key, value)
    return "boolean" if isinstance(value, bool) else "", value


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _spelled_out(value: Any) -> dict[str, Any]:
    """A schema that only this array or object satisfies, whose parts can be negated one by one."""
    if isinstance(value, list):
        constants = [{"const": item} for item in value]
        length = {"minItems": len(value), "maxItems": len(value)}
        return {"type": "array", **({"prefixItems": constants} if value else {}), **length}
    named = {name: {"const": inner} for name, inner in value.items()}
    return {"type": "object", "properties": named, "required": list(value), "additionalProperties": False}
