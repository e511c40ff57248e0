"""From keywords to shapes: what a JSON Schema of any draft requires of the values at each position.

The shape of a schema is the intersection of what its keywords say, with negation pushed inwards to them. Those that
look at the value as a whole (``allOf``, ``not``, ``if``, ``$ref`` ...) are in applicators.py, those of one type in
assertions.py.

An unsupported keyword is a loss and taken as "anything", so that the result holds every value of the schema.
That is why a keyword lost under a ``not`` loses the ``not``: dropped there, it would forbid more instead of less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from ..automaton.emptiness import Emptiness
from ..automaton.limits import count
from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP
from ..constraints.json_style import Spelling
from ..constraints.values import JsonSchema
from ..errors import CompileLimitExceeded, InvalidConstraint, Loss
from ..regex import ANYTHING, Node, alt
from . import assertions
from .applicators import APPLY, referred, without_unevaluated
from .combine import certainly, intersection, listed, may_meet, near_shapes, union
from .documents import Documents, Subschema, UnknownReference
from .shapes import (
    ANY,
    EMPTY,
    NEVER,
    UNIVERSE,
    Clause,
    Kind,
    ObjectClause,
    Position,
    Shape,
    StringClause,
    Term,
    canonical_strings,
    string_language,
)

MAX_WORK = 6_000  # intersections of two alternatives: some hundreds of milliseconds
_PATTERNS = 40  # the cost of a product of two patterns: it is large, for an engine too
_MEETINGS = 8  # pairs that cost no more than one intersection: most take no search
_MOST_REFS = 8  # the most references that lead from one to the next
_UNEVALUATED = ("unevaluatedProperties", "unevaluatedItems")
_OF_THE_WHOLE = frozenset({*APPLY, *_UNEVALUATED})  # most schemas have none of these


class _TooMuch(Exception):
    """There are too many alternatives to combine."""


class Normalizer:
    """Shapes of one schema's positions, each worked out once.

    ``point_zero``: whether an integer may be written 1.0; ``spelling`` is that of names that are not declared;
    ``is_widest``: whether patterns are read so that what any reader of JSON Schema takes is taken, else what all take.
    """

    def __init__(
        self, documents: Documents, *, point_zero: bool = True, spelling: Spelling = "any", is_widest: bool = False
    ):
        self.point_zero, self._spelling, self.is_widest = point_zero, spelling, is_widest
        self.documents = documents
        self._losses: dict[tuple[str, str], Loss] = {}
        self._shapes: dict[Position, Shape] = {ANY: UNIVERSE, NEVER: EMPTY}
        self._terms: dict[Term, Shape] = {}
        self._under_way: list[Term] = []
        self._hopeless: dict[Position, bool] = {}
        self._tags: dict[Position, dict[str, frozenset[Any]]] = {}
        self._values: dict[tuple[Subschema, type, Any], Position] = {}  # positions of scalars
        self.formats: dict[str, Subschema] = {}  # equal schemas, created once each
        self._work = 0
        self.emptiness = Emptiness()

    @classmethod
    def of(cls, constraint: JsonSchema) -> Normalizer:
        """For the schema of a constraint."""
        documents = Documents(constraint.schema_json, constraint.registry)
        return cls(documents, point_zero=constraint.point_zero, spelling=constraint.spelling)

    @property
    def widest(self) -> Normalizer:
        """The same schema, with ``is_widest``: what has no value there has none for any reader."""
        # Only another one is kept: an object that holds itself is freed by the garbage collector alone.
        return self if self.is_widest or not self.documents.has_patterns else self._widest

    @cached_property
    def _widest(self) -> Normalizer:
        return Normalizer(self.documents, point_zero=self.point_zero, spelling=self._spelling, is_widest=True)

    @property
    def root(self) -> Position:
        """The position of the whole instance."""
        return self.position_of(self.documents.root)

    @property
    def losses(self) -> list[Loss]:
        """The losses so far."""
        return list(self._losses.values())

    def lose(self, pointer: str, keyword: str, reason: str) -> None:
        """Note that a keyword will not be enforced."""
        self._losses.setdefault((pointer, keyword), Loss.within(pointer, keyword, reason))

    def position(self, parent: Subschema, schema: Any, *steps: str | int) -> Position:
        """The position that one schema inside another governs."""
        return self.position_of(self.documents.child(parent, schema, *steps))

    def opposite(self, position: Position) -> Position:
        """The position whose value fails what one schema says."""
        if position in (ANY, NEVER):
            return ANY if position else NEVER
        (term,) = position
        return frozenset({Term(term.schema, not term.holds)})

    def shape(self, position: Position) -> Shape:
        """The values that all terms of a position agree on."""
        shape = self._shapes.get(position)
        if shape is None:
            shape = self._shapes[position] = self._shape(position)
        return shape

    def _shape(self, position: Position) -> Shape:
        if len(position) == 1:
            (term,) = position
            shape = self.term(term)
            # Where a schema holds, its alternatives are looked at already; where there is no choice, that is no work.
            if term.holds and max(map(len, shape.values()), default=0) < 2:
                return shape
        shape = UNIVERSE
        for term in sorted(position, key=lambda term: (term.schema.order, not term.holds)):
            shape = self.meet(shape, self.term(term), term.schema, "allOf")
        return shape

    def value(self, value: Any, near: Subschema | None = None) -> Position:
        """The position that only this JSON value satisfies."""
        count(20)
        near = near or self.documents.root
        key = near, type(value), None if isinstance(value, (list, dict)) else value  # 1 and 1.0 are written differently
        position = self._values.get(key)
        if position is None:
            position = self.position_of(self.documents.invent(near, {"const": value}))
            if not isinstance(value, (list, dict)):
                self._values[key] = position
        return position

    def has_name(self, position: Position, name: str) -> bool:
        """Whether a property name satisfies a position of strings."""
        return position == ANY or any(clause.has(name) for clause in self._strings(position))

    def names(self, position: Position) -> Node:
        """The strings at a position, as one language."""
        return alt(*map(string_language, self._strings(position)))

    def written_names(self, position: Position) -> Node:
        """The strings at a position that are written as names."""
        written = canonical_strings if self._spelling == "canonical" else string_language
        return alt(*map(written, self._strings(position)))

    def _strings(self, position: Position) -> list[StringClause]:
        return [clause for clause in self.shape(position).get("string", ()) if isinstance(clause, StringClause)]

    def is_empty(self, language: Node, pointer: str, keyword: str) -> bool:
        """Whether a language has no string.

        It is a loss of the keyword if that is too hard to tell: a text that begins with such a string may have no end.
        """
        empty = self.emptiness.verdict(language)
        if empty is None:
            self.lose(pointer, keyword, "takes too long to tell whether any string satisfies all that is said here")
        return empty is True

    def is_plainly_empty(self, clause: Clause) -> bool:
        """Whether no value satisfies a clause, as far as is visible without the children."""
        if clause.is_plainly_empty():
            return True
        if not isinstance(clause, StringClause) or clause.values is not None or clause.language is ANYTHING:
            return False
        return self.emptiness(string_language(clause))

    def position_of(self, sub: Subschema) -> Position:
        """The position that one schema governs."""
        if sub.schema is False:
            return NEVER
        return ANY if sub.schema is True or not sub.schema else frozenset({Term(sub)})

    def term(self, term: Term) -> Shape:
        """The values for which one schema holds, or does not."""
        shape = self._terms.get(term)
        if shape is None:
            if term in self._under_way:
                raise InvalidConstraint(
                    f"the JSON Schema at {term.schema.pointer or '/'} only refers back to itself, so it says nothing",
                    pointers=[term.schema.pointer],
                )
            self._under_way.append(term)
            shape = self._terms[term] = self._of(*term)
            self._under_way.pop()
        return shape

    def _of(self, sub: Subschema, holds: bool) -> Shape:
        schema = sub.schema
        if isinstance(schema, bool):
            return certainly(schema == holds)
        for keyword in schema:
            if keyword in self.documents.left_out:
                self.lose(sub.pointer, keyword, "the metaschema that $schema names has no vocabulary for it")
        if sub.dialect <= 7 and "$ref" in schema:
            return referred(self, sub, holds)
        if not holds:
            shapes = list(assertions.failing(self, sub))
            shapes += [apply(self, sub, False) for keyword, apply in APPLY.items() if keyword in schema]
            for keyword in ("multipleOf", "uniqueItems", *_UNEVALUATED):
                if schema.get(keyword) not in (None, False) or (keyword in _UNEVALUATED and keyword in schema):
                    self.lose(sub.pointer, keyword, "cannot be negated")
                    shapes.append(UNIVERSE)
            return union(*shapes)
        shape = assertions.holding(self, sub)
        if _OF_THE_WHOLE.isdisjoint(schema):
            return shape
        for keyword, apply in APPLY.items():
            if keyword in schema:
                shape = self.meet(shape, apply(self, sub, True), sub, keyword)
        for keyword in _UNEVALUATED:
            if keyword in schema and sub.dialect >= 2019:
                shape = without_unevaluated(self, sub, keyword, shape)
        return shape

    def meet(self, first: Shape, second: Shape, sub: Subschema, keyword: str) -> Shape:
        """The intersection of two shapes; the first one where it has too many alternatives, which is a loss."""
        count(4)
        try:
            shape = intersection(first, second, self._pairs)
        except _TooMuch:
            self.lose(sub.pointer, keyword, "has too many combinations of alternatives")
            return first
        return self._possible(shape, objects=2)  # a single one is checked later, when all positions are known

    def common(self, first: Shape, second: Shape) -> Shape:
        """The values that satisfy both; all of the first where this takes too long to compute."""
        try:
            return self._possible(intersection(first, second, self._pairs), objects=1)
        except _TooMuch:
            return first

    def meetings(self, shapes: Sequence[Shape]) -> dict[tuple[int, int], Shape]:
        """The common part of each two shapes, by their numbers; pairs that have none are left out."""
        near, work = near_shapes(self, shapes)
        self._work += work + len(near) // _MEETINGS
        met = {(i, j): self.common(shapes[i], shapes[j]) for i, j in near}
        return {pair: shape for pair, shape in met.items() if shape}

    def _pairs(self, first: Sequence[Clause], second: Sequence[Clause]) -> Iterable[tuple[int, int]]:
        """Pairs that may meet; raises _TooMuch where they are more than may still be combined."""
        pairs, work = may_meet(self, first, second) if self._work <= MAX_WORK else ((), 0)
        self._work += work
        are_products = min(len(first), len(second)) > 1 and isinstance(first[0], StringClause)
        more = max(len(pairs) - 1, 0) * (_PATTERNS if are_products else 1)
        if more > (MAX_WORK - self._work) // 2:  # the other half is for other places
            raise _TooMuch
        self._work += more
        return pairs

    def _possible(self, shape: Shape, objects: int) -> Shape:
        """The shape without alternatives that no string satisfies, or whose required members can have no value.

        Members are looked at where there are this many ``objects``: there they tell branches apart.
        """
        checks: tuple[tuple[Kind, int, Callable[[Clause], bool]], ...] = (
            ("string", 1, self.is_plainly_empty),
            ("object", objects, self._lacks_a_member),
        )
        for kind, minimum, is_wrong in checks:
            clauses = shape.get(kind, ())
            if len(clauses) >= minimum and any(map(is_wrong, clauses)):
                remaining = tuple(clause for clause in clauses if not is_wrong(clause))
                shape = {other: of_other for other, of_other in {**shape, kind: remaining}.items() if of_other}
        return shape

    def _lacks_a_member(self, clause: Clause) -> bool:
        assert isinstance(clause, ObjectClause)
        return any(self._is_hopeless(clause.at(name)) for name in clause.required)

    def _is_hopeless(self, position: Position) -> bool:
        """Whether terms contradict each other; only scalars are compared, since deeper ones might lead back to here."""
        if len(position) < 2:
            return False
        hopeless = self._hopeless.get(position)
        if hopeless is None:
            hopeless = any(not term.holds and term._replace(holds=True) in position for term in position)
            hopeless = hopeless or (self._is_flat(position) and not self.shape(position))
            self._hopeless[position] = hopeless
        return hopeless

    def _is_flat(self, position: Position) -> bool:
        """Whether a position is surely not deep: nothing in it leads to another position."""
        return all([self._is_flat_schema(term.schema) for term in position])

    def _is_flat_schema(self, sub: Subschema) -> bool:
        for _ in range(_MOST_REFS):
            if not isinstance(sub.schema, dict):
                return False
            deep = _DEEP & sub.schema.keys()
            if deep != {"$ref"} or not isinstance(sub.schema["$ref"], str):
                return not deep
            try:
                sub = self.documents.target(sub, sub.schema["$ref"])
            except UnknownReference:
                return False
        return False

    def tags(self, position: Position) -> Mapping[str, frozenset[Any]]:
        """The types of the values at a position, and the values themselves if they are listed."""
        tags = self._tags.get(position)
        if tags is None:
            tags = self._tags[position] = {}
            if position and self._is_flat(position):
                shape = self.shape(position)
                tags["type"] = frozenset(shape)
                values = [listed(clause) for clauses in shape.values() for clause in clauses]
                if None not in values:
                    tags["values"] = frozenset().union(*filter(None, values))
        return tags


_DEEP = (HOLDS_SCHEMA | HOLDS_SCHEMA_LIST | HOLDS_SCHEMA_MAP | APPLY.keys()) - {"const", "enum", "format"}


@contextmanager
def too_deep_is_a_limit() -> Iterator[None]:
    """Turn Python's RecursionError into CompileLimitExceeded."""
    try:
        yield
    except RecursionError:
        raise CompileLimitExceeded("the JSON Schema is nested too deeply; flatten it with $defs and $ref") from None
