"""``unevaluatedProperties`` and ``unevaluatedItems``: what no other schema has looked at."""

from __future__ import annotations

from dataclasses import replace

from .context import SchemaContext
from .documents import Subschema
from .shapes import ANY, NEVER, UNIVERSE, ArrayClause, Items, Members, ObjectClause, Position, Shape


def without_unevaluated(n: SchemaContext, sub: Subschema, keyword: str, shape: Shape) -> Shape:
    """The shape with the keyword applied to the children that nothing else in the shape evaluates."""
    assert isinstance(sub.schema, dict)
    position = n.position(sub, sub.schema[keyword], keyword)
    if keyword == "unevaluatedProperties":
        clauses = [
            _closed(n, clause, position) for clause in shape.get("object", ()) if isinstance(clause, ObjectClause)
        ]
        return n.meet({**shape, "object": tuple(clauses)}, UNIVERSE, sub, keyword) if clauses else shape
    arrays = []
    for clause in shape.get("array", ()):
        assert isinstance(clause, ArrayClause)
        items_evaluated = [contains.item for contains in clause.contains if contains.evaluates]
        if items_evaluated and sub.dialect < 2020:
            n.lose(sub, keyword, "readers of 2019-09 disagree on it beside contains")
            return shape
        evaluating = [items for items in clause.items if items.evaluates]
        if not any(items.rest is not None for items in evaluating):
            seen = max((len(items.prefix) for items in evaluating), default=0)
            rest = Items((ANY,) * seen, _any_position(n, sub, [*items_evaluated, position]))
            clause = replace(clause, items=(*clause.items, rest))
        arrays.append(clause)
    return {**shape, "array": tuple(arrays)} if arrays else shape


def _any_position(n: SchemaContext, sub: Subschema, positions: list[Position]) -> Position:
    """The position that one of these is enough for; each is of one schema, not negated."""
    if ANY in positions:
        return ANY
    schemas = [term.schema.schema for position in positions if position != NEVER for term in position]
    return n.position_of(n.documents.invent(sub, {"anyOf": schemas})) if schemas else NEVER


def _closed(n: SchemaContext, clause: ObjectClause, position: Position) -> ObjectClause:
    evaluating = [members for members in clause.members if members.evaluates]
    if any(members.additional is not None for members in evaluating):
        return clause
    named = {name: ANY for members in evaluating for name in members.named}
    patterns = tuple((names, ANY) for members in evaluating for names, _ in members.patterns)
    return ObjectClause(
        (*clause.members, Members(named, patterns, position)),
        clause.required,
        clause.forbidden,
        clause.names,
        clause.low,
        clause.high,
        clause.at_least_one,
        clause.constant,
        clause.origin,
    )
