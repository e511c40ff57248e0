"""From keywords to shapes: what a JSON Schema of any draft says of the values at each position.

The shape of a schema is the intersection of what its keywords say, with negation pushed inwards to them. Those that
look at the value as a whole (``allOf``, ``not``, ``if``, ``$ref`` ...) are in applicators.py, those of one type in
assertions.py.

What cannot be said is a loss, and then taken as "anything", so that what comes out holds every value of the schema.
That is why a keyword lost under a ``not`` loses the ``not``: dropped there, it would forbid more instead of less.
"""

from __future__ import annotations

from typing import Any

from typing_extensions import override

from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP
from ..constraints.json_style import Spelling
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss
from ..regex import Emptiness, Node, alt
from . import assertions
from .applicators import APPLY, referred
from .combine import intersection, is_plainly_empty, size, union
from .context import SchemaContext
from .documents import Documents, Subschema
from .shapes import (
    ANY,
    EMPTY,
    NEVER,
    UNIVERSE,
    Clause,
    ObjectClause,
    Position,
    Shape,
    StringClause,
    Term,
    canonical_strings,
    string_language,
)
from .unevaluated import without_unevaluated

MAX_BRANCHES = 64  # alternatives of one type at one position
MAX_WORK = 2_500  # pairs of alternatives to look at: some tens of milliseconds
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")


class Normalizer(SchemaContext):
    """Shapes of one schema's positions, each worked out once.

    Args:
        documents: the schema, and what it may refer to.
        point_zero: whether an integer may be written 1.0.
        spelling: of names that are not declared.
    """

    def __init__(self, documents: Documents, *, point_zero: bool = True, spelling: Spelling = "any"):
        self.point_zero, self._spelling = point_zero, spelling
        self.documents = documents
        self._losses: dict[tuple[str, str], Loss] = {}
        self._shapes: dict[Position, Shape] = {ANY: UNIVERSE, NEVER: EMPTY}
        self._terms: dict[Term, Shape] = {}
        self._under_way: list[Term] = []
        self.formats: dict[str, Subschema] = {}  # schemas that say the same, made once each
        self._work = 0
        self._emptiness = Emptiness()
        if documents.unread_vocabulary:
            self.lose(documents.root, "$schema", f"its metaschema has no {documents.unread_vocabulary} vocabulary")

    @classmethod
    def of(cls, constraint: JsonSchema) -> Normalizer:
        """For the schema of a constraint."""
        documents = Documents(constraint.schema_json, constraint.registry)
        return cls(documents, point_zero=constraint.point_zero, spelling=constraint.spelling)

    @property
    def root(self) -> Position:
        """The position of the whole instance."""
        return self.position_of(self.documents.root)

    @property
    @override
    def losses(self) -> list[Loss]:
        return list(self._losses.values())

    @override
    def lose(self, sub: Subschema, keyword: str, reason: str) -> None:
        self.lose_at(sub.pointer, keyword, reason)

    @override
    def lose_at(self, pointer: str, keyword: str, reason: str) -> None:
        self._losses.setdefault((pointer, keyword), Loss(pointer, keyword, reason))

    @override
    def position(self, parent: Subschema, schema: Any, *steps: str | int) -> Position:
        return self.position_of(self.documents.child(parent, schema, *steps))

    @override
    def opposite(self, position: Position) -> Position:
        if position in (ANY, NEVER):
            return ANY if position else NEVER
        (term,) = position
        return frozenset({Term(term.schema, not term.holds)})

    @override
    def shape(self, position: Position) -> Shape:
        found = self._shapes.get(position)
        if found is None:
            found = UNIVERSE
            for term in sorted(position, key=lambda term: term.schema.order):
                found = self.meet(found, self.term(term), term.schema, "allOf")
            self._shapes[position] = found
        return found

    @override
    def value(self, value: Any, near: Subschema | None = None) -> Position:
        return self.position_of(self.documents.invent(near or self.documents.root, {"const": value}))

    def has_name(self, position: Position, name: str) -> bool:
        """Whether a property name satisfies a position of strings."""
        return any(isinstance(one, StringClause) and one.has(name) for one in self.shape(position).get("string", ()))

    @override
    def names(self, position: Position) -> Node:
        return alt(
            *(string_language(one) for one in self.shape(position).get("string", ()) if isinstance(one, StringClause))
        )

    def written_names(self, position: Position) -> Node:
        """Those of the strings at a position that are written as names."""
        if self._spelling != "canonical":
            return self.names(position)
        strings = (one for one in self.shape(position).get("string", ()) if isinstance(one, StringClause))
        return alt(*map(canonical_strings, strings))

    def is_empty(self, language: Node) -> bool:
        """Whether a language is known to have no string."""
        return self._emptiness(language)

    @override
    def is_plainly_empty(self, clause: Clause) -> bool:
        if is_plainly_empty(clause):
            return True
        return isinstance(clause, StringClause) and clause.values is None and self.is_empty(string_language(clause))

    # -- terms -------------------------------------------------------------------------------------------------------

    @override
    def position_of(self, sub: Subschema) -> Position:
        if sub.schema is False:
            return NEVER
        return ANY if sub.schema is True or not sub.schema else frozenset({Term(sub)})

    @override
    def term(self, term: Term) -> Shape:
        found = self._terms.get(term)
        if found is None:
            if term in self._under_way:
                raise InvalidConstraint(
                    f"the JSON Schema at {term.schema.pointer or '/'} only refers back to itself, so it says nothing",
                    pointers=[term.schema.pointer],
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
            return referred(self, sub, "$ref", True)
        shape = assertions.holding(self, sub)
        for keyword, apply in APPLY.items():
            if keyword in schema:
                shape = self.meet(shape, apply(self, sub, True), sub, keyword)
        for keyword in _UNEVALUATED:
            if keyword in schema and sub.dialect >= 2019:
                shape = without_unevaluated(self, sub, keyword, shape)
        return shape

    def _failing(self, sub: Subschema) -> Shape:
        schema = sub.schema
        if isinstance(schema, bool):
            return EMPTY if schema else UNIVERSE
        if sub.dialect <= 7 and "$ref" in schema:
            return referred(self, sub, "$ref", False)
        shapes = [shape for _, shape in assertions.failing(self, sub)]
        shapes += [apply(self, sub, False) for keyword, apply in APPLY.items() if keyword in schema]
        for keyword in ("multipleOf", "uniqueItems", *_UNEVALUATED):
            if schema.get(keyword) not in (None, False) or (keyword in _UNEVALUATED and keyword in schema):
                self.lose(sub, keyword, "cannot be negated")
                shapes.append(UNIVERSE)
        return self.bounded(union(*shapes), sub, "not")

    @override
    def meet(self, one: Shape, other: Shape, sub: Subschema, keyword: str) -> Shape:
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

    @override
    def common(self, one: Shape, other: Shape) -> Shape:
        self._work += _work(one, other)
        if self._work > MAX_WORK:
            return one
        return self._without_hopeless(self._with_strings(intersection(one, other)))

    @override
    def bounded(self, shape: Shape, sub: Subschema, keyword: str) -> Shape:
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


def _work(one: Shape, other: Shape) -> int:
    """How many pairs of alternatives there are, where there is a choice."""
    return sum(len(one[kind]) * len(other[kind]) - 1 for kind in one.keys() & other.keys())


_DEEP = (HOLDS_SCHEMA | HOLDS_SCHEMA_LIST | HOLDS_SCHEMA_MAP | APPLY.keys()) - {"const", "enum", "format"}
