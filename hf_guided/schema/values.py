"""``const`` and ``enum``: listed values as shapes, or all values but those."""

from __future__ import annotations

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
    Clause,
    Items,
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
    numbers = tuple(dict.fromkeys(Decimal(one) for one in values if _is_number(one)))
    floats = {one for one in values if isinstance(one, Decimal)} - {one for one in values if isinstance(one, int)}
    strings = tuple(dict.fromkeys(one for one in values if isinstance(one, str)))
    booleans = frozenset(one for one in values if isinstance(one, bool))
    arrays = [one for one in values if isinstance(one, list)]
    objects = [one for one in values if isinstance(one, dict)]
    if holds:
        listed: list[Clause] = []
        listed += [NullClause()] * (None in values)
        listed += [BooleanClause(booleans)] * bool(booleans)
        listed += [NumberClause(values=numbers, floats=frozenset(numbers) & floats)] * bool(numbers)
        listed += [StringClause(values=strings)] * bool(strings)
        listed += [_array_value(n, sub, one) for one in arrays]
        listed += [_object_value(n, sub, one) for one in objects]
        shape: Shape = {}
        for kind, whole in UNIVERSE.items():
            if clauses := tuple(one for one in listed if type(one) is type(whole[0])):
                shape[kind] = clauses
        return shape
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
    for kind, some in (("array", arrays), ("object", objects)):
        for one in some:
            inner = n.documents.invent(sub, _spelled_out(one))
            rest = {**UNIVERSE, kind: n.term(Term(inner, False)).get(kind, ())}
            others = n.meet(others, rest, sub, "enum")
    return {kind: clauses for kind, clauses in others.items() if clauses}


def _array_value(n: SchemaContext, sub: Subschema, value: list[Any]) -> ArrayClause:
    prefix = tuple(n.value(item, sub) for item in value)
    return ArrayClause((Items(prefix, NEVER, tells=False),), len(value), len(value))


def _object_value(n: SchemaContext, sub: Subschema, value: dict[str, Any]) -> ObjectClause:
    named = {name: n.value(inner, sub) for name, inner in value.items()}
    return ObjectClause((Members(named, (), NEVER, tells=False),), tuple(value))


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
