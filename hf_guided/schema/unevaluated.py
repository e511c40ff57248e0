"""``unevaluatedProperties`` and ``unevaluatedItems``: what no other schema has looked at."""

from __future__ import annotations

from dataclasses import replace

from .context import SchemaContext
from .documents import Subschema
from .shapes import ANY, NEVER, UNIVERSE, ArrayClause, Items, Members, ObjectClause, Position, Shape


def without_unevaluated(n: SchemaContext, sub: Subschema, keyword: str, shape: Shape) -> Shape:
    """The shape with what the keyword says of the children that nothing else in the shape speaks of."""
    assert isinstance(sub.schema, dict)
    position = n.position(sub, sub.schema[keyword], keyword)
    if keyword == "unevaluatedProperties":
        clauses = [_closed(n, one, position) for one in shape.get("object", ()) if isinstance(one, ObjectClause)]
        return n.meet({**shape, "object": tuple(clauses)}, UNIVERSE, sub, keyword) if clauses else shape
    arrays = []
    for one in shape.get("array", ()):
        assert isinstance(one, ArrayClause)
        items_told = [contains.item for contains in one.contains if contains.tells]
        if items_told and sub.dialect < 2020:
            n.lose(sub, keyword, "readers of 2019-09 disagree on it beside contains")
            return shape
        told = [items for items in one.items if items.tells]
        if not any(items.rest is not None for items in told):
            seen = max((len(items.prefix) for items in told), default=0)
            rest = Items((ANY,) * seen, _any_position(n, sub, [*items_told, position]))
            one = replace(one, items=(*one.items, rest))
        arrays.append(one)
    return {**shape, "array": tuple(arrays)} if arrays else shape


def _any_position(n: SchemaContext, sub: Subschema, positions: list[Position]) -> Position:
    """The position that one of these is enough for; each is of one schema, not negated."""
    if ANY in positions:
        return ANY
    schemas = [term.schema.schema for position in positions if position != NEVER for term in position]
    return n.position_of(n.documents.invent(sub, {"anyOf": schemas})) if schemas else NEVER


def _closed(n: SchemaContext, clause: ObjectClause, position: Position) -> ObjectClause:
    told = [members for members in clause.members if members.tells]
    if any(members.additional is not None for members in told):
        return clause
    named = {name: ANY for members in told for name in members.named}
    patterns = tuple((names, ANY) for members in told for names, _ in members.patterns)
    return ObjectClause(
        (*clause.members, Members(named, patterns, position)),
        clause.required,
        clause.forbidden,
        clause.names,
        clause.low,
        clause.high,
        clause.some,
        clause.origin,
    )
