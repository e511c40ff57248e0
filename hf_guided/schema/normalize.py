"""From keywords to shapes: what a JSON Schema of any draft says of the values at each position.

Keywords that look at the value as a whole (``allOf``, ``anyOf``, ``oneOf``, ``not``, ``if``, ``$ref`` ...) are applied
here, with unions and intersections of shapes and with negation pushed inwards; those of one type are in assertions.py.

What cannot be said is a loss, and then taken as "anything", so that what comes out holds every value of the schema.
That is why a keyword lost under a ``not`` loses the ``not``: dropped there, it would forbid more instead of less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from typing import Any

from ..constraints import JsonSchema
from ..errors import InvalidConstraint, Loss
from ..keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP
from ..regex import Emptiness, Node, alt, complement, text
from . import assertions, readers
from .documents import Documents, Subschema, UnknownReference
from .formats import FORMATS
from .shapes import (
    ANY,
    EMPTY,
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
    Position,
    Shape,
    StringClause,
    Term,
    intersection,
    is_plainly_empty,
    size,
    string_language,
    union,
    untold,
)

MAX_BRANCHES = 64  # alternatives of one type at one position
MAX_WORK = 2_500  # pairs of alternatives to look at: some tens of milliseconds
MAX_EXACT_BRANCHES = 5  # of an anyOf whose matching branches all count, as beside unevaluatedProperties
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


class Normalizer:
    """Shapes of one schema's positions, each worked out once.

    Args:
        documents: the schema, and what it may refer to.
        point_zero: whether an integer may be written 1.0.
    """

    def __init__(self, documents: Documents, *, point_zero: bool = True):
        self.point_zero = point_zero
        self._documents = documents
        self._losses: dict[tuple[str, str], Loss] = {}
        self._shapes: dict[Position, Shape] = {ANY: UNIVERSE, NEVER: EMPTY}
        self._terms: dict[Term, Shape] = {}
        self._under_way: list[Term] = []
        self._formats: dict[str, Subschema] = {}
        self._work = 0
        self._emptiness = Emptiness()
        if documents.unread_vocabulary:
            self.lose(documents.root, "$schema", f"its metaschema has no {documents.unread_vocabulary} vocabulary")

    @classmethod
    def of(cls, constraint: JsonSchema) -> Normalizer:
        """For the schema of a constraint."""
        return cls(Documents(constraint.schema_json, constraint.registry), point_zero=constraint.point_zero)

    @property
    def root(self) -> Position:
        """The position of the whole instance."""
        return self._position_of(self._documents.root)

    @property
    def losses(self) -> list[Loss]:
        """What could not be said so far."""
        return list(self._losses.values())

    def lose(self, sub: Subschema, keyword: str, reason: str) -> None:
        """Note that a keyword will not be enforced."""
        self.lose_at(sub.pointer, keyword, reason)

    def lose_at(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that the keyword at this place will not be enforced."""
        self._losses.setdefault((pointer, keyword), Loss(pointer, keyword, reason))

    def position(self, parent: Subschema, schema: Any, *steps: str | int) -> Position:
        """The position that one schema inside another governs."""
        return self._position_of(self._documents.child(parent, schema, *steps))

    def opposite(self, position: Position) -> Position:
        """The position whose value fails what one schema says."""
        if position in (ANY, NEVER):
            return ANY if position else NEVER
        (term,) = position
        return frozenset({Term(term.schema, not term.holds)})

    def shape(self, position: Position) -> Shape:
        """The values that all terms of a position agree on."""
        found = self._shapes.get(position)
        if found is None:
            found = UNIVERSE
            for term in sorted(position, key=lambda term: term.schema.order):
                found = self._meet(found, self._term(term), term.schema, "allOf")
            self._shapes[position] = found
        return found

    def value(self, value: Any) -> Position:
        """The position that only this JSON value satisfies."""
        return self._value_position(self._documents.root, value)

    def has_name(self, position: Position, name: str) -> bool:
        """Whether a property name satisfies a position of strings."""
        return any(isinstance(one, StringClause) and one.has(name) for one in self.shape(position).get("string", ()))

    def names(self, position: Position) -> Node:
        """The strings at a position, as one language."""
        return alt(
            *(string_language(one) for one in self.shape(position).get("string", ()) if isinstance(one, StringClause))
        )

    def is_empty(self, language: Node) -> bool:
        """Whether a language is known to have no string."""
        return self._emptiness(language)

    def is_plainly_empty(self, clause: Clause) -> bool:
        """Whether no value satisfies a clause, as far as can be seen without looking into children."""
        if is_plainly_empty(clause):
            return True
        return isinstance(clause, StringClause) and clause.values is None and self.is_empty(string_language(clause))

    # -- terms -------------------------------------------------------------------------------------------------------

    def _position_of(self, sub: Subschema) -> Position:
        if sub.schema is False:
            return NEVER
        return ANY if sub.schema is True or not sub.schema else frozenset({Term(sub)})

    def _term(self, term: Term) -> Shape:
        found = self._terms.get(term)
        if found is None:
            if term in self._under_way:
                raise InvalidConstraint(
                    f"the JSON Schema at {term.schema.pointer or '/'} only refers back to itself, so it says nothing"
                )
            self._under_way.append(term)
            found = self._terms[term] = (self._holding if term.holds else self._failing)(term.schema)
            self._under_way.pop()
        return found

    def _holding(self, sub: Subschema) -> Shape:
        schema = sub.schema
        if isinstance(schema, bool):
            return UNIVERSE if schema else EMPTY
        if sub.dialect <= 7 and "$ref" in schema:
            return self._referred(sub, "$ref", True)
        shape = assertions.holding(self, sub)
        for keyword, apply in _APPLY.items():
            if keyword in schema:
                shape = self._meet(shape, apply(self, sub, True), sub, keyword)
        for keyword in _UNEVALUATED:
            if keyword in schema and sub.dialect >= 2019:
                shape = self._without_unevaluated(sub, keyword, shape)
        return shape

    def _failing(self, sub: Subschema) -> Shape:
        schema = sub.schema
        if isinstance(schema, bool):
            return EMPTY if schema else UNIVERSE
        if sub.dialect <= 7 and "$ref" in schema:
            return self._referred(sub, "$ref", False)
        shapes = [shape for _, shape in assertions.failing(self, sub)]
        shapes += [apply(self, sub, False) for keyword, apply in _APPLY.items() if keyword in schema]
        for keyword in ("multipleOf", "uniqueItems", *_UNEVALUATED):
            if schema.get(keyword) not in (None, False) or (keyword in _UNEVALUATED and keyword in schema):
                self.lose(sub, keyword, "cannot be negated")
                shapes.append(UNIVERSE)
        return self._bounded(union(*shapes), sub, "not")

    def _meet(self, one: Shape, other: Shape, sub: Subschema, keyword: str) -> Shape:
        self._work += _work(one, other)
        if self._work > MAX_WORK:
            self.lose(sub, keyword, "has too many combinations of alternatives")
            return one
        # A lone one is left to be found out later, when all positions are known.
        found = self._without_hopeless(self._with_strings(intersection(one, other)), least=2)
        if size(found) > MAX_BRANCHES:
            self.lose(sub, keyword, f"has more than {MAX_BRANCHES} alternatives when taken apart")
            return one
        return found

    def _common(self, one: Shape, other: Shape) -> Shape:
        """What two branches may both hold of; all of the first where that takes too long to find out."""
        self._work += _work(one, other)
        if self._work > MAX_WORK:
            return one
        return self._without_hopeless(self._with_strings(intersection(one, other)))

    def _bounded(self, shape: Shape, sub: Subschema, keyword: str) -> Shape:
        if size(shape) > MAX_BRANCHES:
            self.lose(sub, keyword, f"has more than {MAX_BRANCHES} alternatives when taken apart")
            return UNIVERSE
        return shape

    def _with_strings(self, shape: Shape) -> Shape:
        """The shape without alternatives that no string satisfies."""
        clauses = shape.get("string", ())
        kept = tuple(one for one in clauses if not self.is_plainly_empty(one))
        if len(kept) == len(clauses):
            return shape
        return {kind: found for kind, found in {**shape, "string": kept}.items() if found}

    def _without_hopeless(self, shape: Shape, least: int = 1) -> Shape:
        """The shape without objects of which a required member can have no value: what tells branches apart."""
        objects = [one for one in shape.get("object", ()) if isinstance(one, ObjectClause)]
        if len(objects) < least:
            return shape
        kept = tuple(one for one in objects if not any(self._is_hopeless(one.at(name)) for name in one.required))
        if len(kept) == len(objects):
            return shape
        return {kind: clauses for kind, clauses in {**shape, "object": kept}.items() if clauses}

    def _is_hopeless(self, position: Position) -> bool:
        """Whether terms contradict each other; deeper than scalars nobody looks, for it might lead back to here."""
        flat = all(isinstance(one.schema.schema, dict) and not _DEEP & one.schema.schema.keys() for one in position)
        return flat and len(position) > 1 and not self.shape(position)

    # -- keywords that apply to the value as a whole -----------------------------------------------------------------

    def _children(self, sub: Subschema, keyword: str) -> list[Subschema]:
        return [
            self._documents.child(sub, one, keyword, index) for index, one in enumerate(readers.schemas(sub, keyword))
        ]

    def _all(self, children: list[Subschema], holds: bool, sub: Subschema, keyword: str) -> Shape:
        found = UNIVERSE
        for child in children:
            found = self._meet(found, self._term(Term(child, holds)), sub, keyword)
        return found

    def _referred(self, sub: Subschema, keyword: str, holds: bool) -> Shape:
        ref = readers.string(sub, keyword)
        assert ref is not None
        try:
            if keyword == "$recursiveRef":
                target = self._documents.recursive_target(sub)
            elif keyword == "$dynamicRef":
                target = self._documents.dynamic_target(sub, ref)
            else:
                target = self._documents.target(sub, ref)
        except UnknownReference as error:
            self.lose(sub, keyword, str(error))
            return UNIVERSE
        return self._term(Term(target, holds))

    def _reference(self, sub: Subschema, holds: bool) -> Shape:
        return self._referred(sub, "$ref", holds)

    def _dynamic_reference(self, sub: Subschema, holds: bool) -> Shape:
        return self._referred(sub, "$dynamicRef", holds) if sub.dialect >= 2020 else _certainly(holds)

    def _recursive_reference(self, sub: Subschema, holds: bool) -> Shape:
        return self._referred(sub, "$recursiveRef", holds) if sub.dialect == 2019 else _certainly(holds)

    def _constant(self, sub: Subschema, holds: bool) -> Shape:
        assert isinstance(sub.schema, dict)
        return self._listed(sub, [sub.schema["const"]], holds) if sub.dialect >= 6 else _certainly(holds)

    def _enumeration(self, sub: Subschema, holds: bool) -> Shape:
        assert isinstance(sub.schema, dict)
        values = sub.schema["enum"]
        if not isinstance(values, list):
            readers.malformed(sub, "enum", "a list of values")
        return self._listed(sub, values, holds)

    def _listed(self, sub: Subschema, values: list[Any], holds: bool) -> Shape:
        """The values, or all others."""
        numbers = tuple(dict.fromkeys(Decimal(one) for one in values if _is_number(one)))
        strings = tuple(dict.fromkeys(one for one in values if isinstance(one, str)))
        booleans = frozenset(one for one in values if isinstance(one, bool))
        arrays = [one for one in values if isinstance(one, list)]
        objects = [one for one in values if isinstance(one, dict)]
        if holds:
            listed: list[Clause] = []
            listed += [NullClause()] * (None in values)
            listed += [BooleanClause(booleans)] * bool(booleans)
            listed += [NumberClause(values=numbers)] * bool(numbers)
            listed += [StringClause(values=strings)] * bool(strings)
            listed += [self._array_value(sub, one) for one in arrays]
            listed += [self._object_value(sub, one) for one in objects]
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
                inner = self._documents.invent(sub, _spelled_out(one))
                rest = {**UNIVERSE, kind: self._term(Term(inner, False)).get(kind, ())}
                others = self._meet(others, rest, sub, "enum")
        return {kind: clauses for kind, clauses in others.items() if clauses}

    def _array_value(self, sub: Subschema, value: list[Any]) -> ArrayClause:
        prefix = tuple(self._value_position(sub, item) for item in value)
        return ArrayClause((Items(prefix, NEVER, tells=False),), len(value), len(value))

    def _object_value(self, sub: Subschema, value: dict[str, Any]) -> ObjectClause:
        named = {name: self._value_position(sub, inner) for name, inner in value.items()}
        return ObjectClause((Members(named, (), NEVER, tells=False),), tuple(value))

    def _value_position(self, sub: Subschema, value: Any) -> Position:
        return self._position_of(self._documents.invent(sub, {"const": value}))

    def _format(self, sub: Subschema, holds: bool) -> Shape:
        name = readers.string(sub, "format")
        if name is None or name not in FORMATS:
            return _certainly(holds)  # no specification defines it: an annotation
        if name not in self._formats:
            self._formats[name] = self._documents.invent(sub, FORMATS[name])
        return self._term(Term(self._formats[name], holds))

    def _all_of(self, sub: Subschema, holds: bool) -> Shape:
        children = self._children(sub, "allOf")
        if holds:
            return self._all(children, True, sub, "allOf")
        return self._bounded(union(*(self._term(Term(child, False)) for child in children)), sub, "allOf")

    def _any_of(self, sub: Subschema, holds: bool) -> Shape:
        children = self._children(sub, "anyOf")
        if not holds:
            return self._all(children, False, sub, "anyOf")
        if self._documents.counts_branches and len(children) > 1:
            if len(children) > MAX_EXACT_BRANCHES:
                self.lose(sub, "anyOf", f"has more than {MAX_EXACT_BRANCHES} branches beside an unevaluated keyword")
                return UNIVERSE
            shapes = [self._exactly(children, chosen, sub) for chosen in _subsets(len(children))]
        else:
            shapes = [self._term(Term(child)) for child in children]
        return self._bounded(union(*shapes), sub, "anyOf")

    def _exactly(self, children: list[Subschema], chosen: frozenset[int], sub: Subschema) -> Shape:
        """Values that satisfy the chosen branches and no other."""
        found = UNIVERSE
        for index, child in sorted(enumerate(children), key=lambda one: one[0] not in chosen):
            found = self._meet(found, self._term(Term(child, index in chosen)), sub, "anyOf")
        return found

    def _one_of(self, sub: Subschema, holds: bool) -> Shape:
        children = self._children(sub, "oneOf")
        shapes = [self._term(Term(child)) for child in children]
        meetings = {(i, j): self._common(shapes[i], shapes[j]) for i, j in combinations(range(len(children)), 2)}
        if not holds:
            none = self._all(children, False, sub, "oneOf")
            return self._bounded(union(none, *meetings.values()), sub, "oneOf")
        found = []
        for i, shape in enumerate(shapes):
            for j, child in enumerate(children):
                # Only a branch that may hold at the same time has to be ruled out.
                if i != j and meetings[min(i, j), max(i, j)]:
                    before = len(self._losses)
                    ruled_out = self._term(Term(child, False))
                    if len(self._losses) > before:
                        self.lose(sub, "oneOf", "two branches may hold at once, and one of them cannot be negated")
                    shape = self._meet(shape, ruled_out, sub, "oneOf")
            found.append(shape)
        return self._bounded(union(*found), sub, "oneOf")

    def _not(self, sub: Subschema, holds: bool) -> Shape:
        assert isinstance(sub.schema, dict)
        shape = self._term(Term(self._documents.child(sub, sub.schema["not"], "not"), not holds))
        return untold(shape) if self._documents.counts_branches else shape

    def _if(self, sub: Subschema, holds: bool) -> Shape:
        schema = sub.schema
        assert isinstance(schema, dict)
        if sub.dialect < 7:
            return _certainly(holds)
        condition = self._documents.child(sub, schema["if"], "if")
        ways = []
        for keyword, is_true in (("then", True), ("else", False)):
            way = self._term(Term(condition, is_true))
            if keyword in schema:
                consequence = self._term(Term(self._documents.child(sub, schema[keyword], keyword), holds))
                way = self._meet(way, consequence, sub, keyword)
            elif not holds:
                continue
            ways.append(way)
        return self._bounded(union(*ways), sub, "if")

    def _dependent(self, sub: Subschema, holds: bool) -> Shape:
        """``dependentRequired``, ``dependentSchemas`` and, before them, ``dependencies`` for both."""
        conditions = []
        keywords = ["dependentRequired", "dependentSchemas"] * (sub.dialect >= 2019)
        # Many schemas that do not name their draft are older than they would count for.
        keywords += ["dependencies"] * (sub.dialect < 2019 or not self._documents.names_dialect)
        for keyword in keywords:
            for name, needs in readers.mapping(sub, keyword).items():
                if isinstance(needs, list):
                    if not all(isinstance(one, str) for one in needs):
                        readers.malformed(sub, keyword, "lists of names")
                    needed = self._documents.invent(sub, {"required": needs})
                else:
                    needed = self._documents.child(sub, needs, keyword, name)
                conditions.append((keyword, name, Term(needed, holds)))
        found = UNIVERSE if holds else EMPTY
        for keyword, name, term in conditions:
            present: Shape = {"object": (ObjectClause(required=(name,)),)}
            way = self._meet(self._term(term), present, sub, keyword)  # what is needed stands in front
            if holds:
                absent: Shape = {**UNIVERSE, "object": (ObjectClause(forbidden=frozenset({name})),)}
                found = self._meet(found, union(absent, way), sub, keyword)
            else:
                found = union(found, way)
        return self._bounded(found, sub, "dependentSchemas")

    # -- what no other schema has looked at --------------------------------------------------------------------------

    def _without_unevaluated(self, sub: Subschema, keyword: str, shape: Shape) -> Shape:
        assert isinstance(sub.schema, dict)
        position = self.position(sub, sub.schema[keyword], keyword)
        if keyword == "unevaluatedProperties":
            clauses = [self._closed(one, position) for one in shape.get("object", ()) if isinstance(one, ObjectClause)]
            return self._meet({**shape, "object": tuple(clauses)}, UNIVERSE, sub, keyword) if clauses else shape
        arrays = []
        for one in shape.get("array", ()):
            assert isinstance(one, ArrayClause)
            items_told = [contains.item for contains in one.contains if contains.tells]
            if items_told and sub.dialect < 2020:
                self.lose(sub, keyword, "readers of 2019-09 disagree on it beside contains")
                return shape
            told = [items for items in one.items if items.tells]
            if not any(items.rest is not None for items in told):
                seen = max((len(items.prefix) for items in told), default=0)
                rest = Items((ANY,) * seen, self._any_position(sub, [*items_told, position]))
                one = replace(one, items=(*one.items, rest))
            arrays.append(one)
        return {**shape, "array": tuple(arrays)} if arrays else shape

    def _any_position(self, sub: Subschema, positions: list[Position]) -> Position:
        """The position that one of these is enough for; each is of one schema, not negated."""
        if ANY in positions:
            return ANY
        schemas = [term.schema.schema for position in positions if position != NEVER for term in position]
        return self._position_of(self._documents.invent(sub, {"anyOf": schemas})) if schemas else NEVER

    def _closed(self, clause: ObjectClause, position: Position) -> ObjectClause:
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


def _work(one: Shape, other: Shape) -> int:
    """How many pairs of alternatives there are, where there is a choice."""
    return sum(len(one[kind]) * len(other[kind]) - 1 for kind in one.keys() & other.keys())


def _certainly(holds: bool) -> Shape:
    """What a keyword that says nothing says, or its negation."""
    return UNIVERSE if holds else EMPTY


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


def _subsets(length: int) -> Iterator[frozenset[int]]:
    for chosen in range(1, length + 1):
        yield from map(frozenset, combinations(range(length), chosen))


_APPLY: dict[str, Callable[[Normalizer, Subschema, bool], Shape]] = {
    "const": Normalizer._constant,
    "enum": Normalizer._enumeration,
    "format": Normalizer._format,
    "$ref": Normalizer._reference,
    "$dynamicRef": Normalizer._dynamic_reference,
    "$recursiveRef": Normalizer._recursive_reference,
    "allOf": Normalizer._all_of,
    "anyOf": Normalizer._any_of,
    "oneOf": Normalizer._one_of,
    "not": Normalizer._not,
    "if": Normalizer._if,
    "dependentRequired": Normalizer._dependent,
    "dependentSchemas": Normalizer._dependent,
    "dependencies": Normalizer._dependent,
}
_DEEP = (HOLDS_SCHEMA | HOLDS_SCHEMA_LIST | HOLDS_SCHEMA_MAP | _APPLY.keys()) - {"const", "enum", "format"}
