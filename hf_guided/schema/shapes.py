"""The core language: what remains of a JSON Schema once its keywords are interpreted.

A ``Position`` is a location in an instance: the set of schemas that the value there must satisfy, or must not. A
``Shape`` says the same per JSON type: for each type the clauses of which the value satisfies at least one. Everything
inside a clause (items, values of properties) is a position again, so recursion stays recursion.

    position ──► shape: {"string": (clause, ...), "object": (clause, ...), ...} ──► positions of children ──► ...
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple, get_args

from ..automaton.emptiness import Emptiness
from ..automaton.limits import count
from ..regex import ALL, ANYTHING, NOTHING, Node, alt, both, chars, matches, repeat, text, tree_cache
from .documents import Subschema

Kind = Literal["null", "boolean", "number", "string", "array", "object"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class Term(NamedTuple):
    """A schema that holds (or, negated, does not)."""

    schema: Subschema
    holds: bool = True


Position = frozenset[Term]
ANY: Position = frozenset()
NEVER: Position = frozenset({Term(Subschema(False, "", "", 0))})


@dataclass(frozen=True)
class _Clause:
    """Values of one JSON type."""

    kind: ClassVar[Kind]

    def meet(self, other: Any) -> Any:
        """The values that another clause of the type has too; it may have none, and None says so."""
        return self

    def is_plainly_empty(self) -> bool:
        """Whether no value satisfies it, as far as is visible without the children."""
        return False


@dataclass(frozen=True)
class NullClause(_Clause):
    """null."""

    kind = "null"


@dataclass(frozen=True)
class BooleanClause(_Clause):
    """true, false, or either."""

    kind = "boolean"
    values: frozenset[bool] = frozenset({True, False})

    def meet(self, other: BooleanClause) -> BooleanClause | None:
        """See ``_Clause``."""
        values = self.values & other.values
        return BooleanClause(values) if values else None


@dataclass(frozen=True)
class NumberClause(_Clause):
    """Numbers."""

    kind = "number"
    integral: bool | None = None  # True: whole numbers only; False: anything but; None: both
    point_zero: bool = True  # whether 1.0 is a spelling of a whole number (not in draft 4)
    low: Decimal | None = None
    low_open: bool = False  # whether the bound itself is outside
    high: Decimal | None = None
    high_open: bool = False
    factors: tuple[Decimal, ...] = ()  # the number is a multiple of each
    values: tuple[Decimal, ...] | None = None  # the only numbers there are, in order; None is no such list
    excluded: frozenset[Decimal] = frozenset()  # numbers that are not there
    floats: frozenset[Decimal] = frozenset()  # the ``values`` that the schema writes with a point or an exponent
    origin: str = field(default="", compare=False)  # pointer of the schema that has the factors

    def has(self, number: Decimal) -> bool:
        """Whether the number satisfies all of it."""
        if self.integral is not None and (number == number.to_integral_value()) != self.integral:
            return False
        if self.low is not None and (number < self.low or (self.low_open and number == self.low)):
            return False
        if self.high is not None and (number > self.high or (self.high_open and number == self.high)):
            return False
        if number in self.excluded or (self.values is not None and number not in self._listed):
            return False
        return all(is_multiple(number, factor) for factor in self.factors)

    @cached_property
    def _listed(self) -> frozenset[Decimal]:
        return frozenset(self.values or ())

    @cached_property
    def _hash(self) -> int:
        bounds = self.low, self.low_open, self.high, self.high_open
        return hash((self.integral, self.point_zero, bounds, self.factors, self.values, self.excluded, self.floats))

    def __hash__(self) -> int:  # asked for many times
        return self._hash

    def meet(self, other: NumberClause) -> NumberClause | None:
        """See ``_Clause``."""
        if None not in (self.integral, other.integral) and self.integral != other.integral:
            return None
        low, low_open = _tighter((self.low, self.low_open), (other.low, other.low_open), upper=False)
        high, high_open = _tighter((self.high, self.high_open), (other.high, other.high_open), upper=True)
        values = self.values if other.values is None else other.values
        return NumberClause(
            self.integral if other.integral is None else other.integral,
            self.point_zero and other.point_zero,
            low,
            low_open,
            high,
            high_open,
            tuple(dict.fromkeys([*self.factors, *other.factors])),
            None if values is None else tuple(value for value in values if self.has(value) and other.has(value)),
            self.excluded | other.excluded,
            other.floats if self.values is None else self.floats,
            self.origin if self.factors else other.origin,
        )

    def is_plainly_empty(self) -> bool:
        """See ``_Clause``."""
        if self.values is not None:
            return not self.values
        if self.integral is not True and not self.factors:
            if self.low is None or self.high is None or self.low < self.high:
                return False
            return self.low > self.high or not self.has(self.low)
        if self.integral is False and _least_common_multiple(self).denominator == 1:
            return True
        if self.low is None or self.high is None:
            return False
        step = _least_common_multiple(self)
        first = math.ceil(Fraction(*self.low.as_integer_ratio()) / step)
        last = math.floor(Fraction(*self.high.as_integer_ratio()) / step)
        # Among more numbers, one is allowed: it is no bound, it is not listed, and one of two neighbours is not whole.
        few = 2 * len(self.excluded) + 6
        return last - first < few and not any(self.has(_times(step, times)) for times in range(first, last + 1))


@dataclass(frozen=True)
class StringClause(_Clause):
    """Strings."""

    kind = "string"
    low: int = 0  # code points
    high: int | None = None
    language: Node = ANYTHING  # language of the decoded string
    values: tuple[str, ...] | None = None  # the only strings there are, in order; None is no such list
    usual: tuple[tuple[Node, Node], ...] = ()  # languages of formats, each with its strings of canonical spelling

    def has(self, string: str) -> bool:
        """Whether the string satisfies all of it."""
        if len(string) < self.low or (self.high is not None and len(string) > self.high):
            return False
        if self.values is not None and string not in self._listed:
            return False
        return self.language is ANYTHING or matches(self.language, string)

    @property
    def is_format(self) -> bool:
        """Whether it is all strings of one format, whatever their length."""
        is_bounded = self.low > 0 or self.high is not None or self.values is not None
        return not is_bounded and [self.language] == [whole for whole, _ in self.usual]

    @cached_property
    def _listed(self) -> frozenset[str]:
        return frozenset(self.values or ())

    @cached_property
    def _hash(self) -> int:
        return hash((self.low, self.high, self.language, self.values, self.usual))

    def __hash__(self) -> int:  # asked for many times
        return self._hash

    def meet(self, other: StringClause) -> StringClause | None:
        """See ``_Clause``."""
        values = self.values if other.values is None else other.values
        return StringClause(
            max(self.low, other.low),
            _lowest(self.high, other.high),
            both(self.language, other.language),
            None if values is None else tuple(value for value in values if self.has(value) and other.has(value)),
            tuple(dict.fromkeys([*self.usual, *other.usual])),
        )

    def is_plainly_empty(self) -> bool:
        """See ``_Clause``."""
        if self.values is not None:
            return not self.values
        return self.language == NOTHING or (self.high is not None and self.low > self.high)


class Items(NamedTuple):
    """The rules of one schema for an array's items: for the first ones each, and for all the others."""

    prefix: tuple[Position, ...] = ()
    rest: Position | None = None  # None if the schema does not speak of the others
    evaluates: bool = True  # whether it names what the array has; False under a negation

    def at(self, index: int) -> Position:
        """The position of the item at this index."""
        if index < len(self.prefix):
            return self.prefix[index]
        return ANY if self.rest is None else self.rest


class Contains(NamedTuple):
    """At least ``low`` and at most ``high`` items from ``start`` on satisfy ``item``."""

    item: Position
    low: int
    high: int | None
    start: int
    origin: tuple[str, str]
    evaluates: bool = True  # whether these items count as evaluated; False under a negation


@dataclass(frozen=True)
class ArrayClause(_Clause):
    """Arrays; an item satisfies what every member of ``items`` says of its index."""

    kind = "array"
    items: tuple[Items, ...] = ()
    low: int = 0
    high: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: str | None = None  # pointer of the schema that forbids equal items
    constant: Hashable = None  # equal for all arrays there may be; None if there may be several

    def at(self, index: int) -> Position:
        """The position of the item at this index."""
        return all_of(*(part.at(index) for part in self.items))

    @property
    def prefix_length(self) -> int:
        """From this index on all items must satisfy the same."""
        return max((len(part.prefix) for part in self.items), default=0)

    def meet(self, other: ArrayClause) -> ArrayClause | None:
        """See ``_Clause``."""
        constant = other.constant if self.constant is None else self.constant
        if other.constant not in (None, constant):
            return None
        return ArrayClause(
            tuple(dict.fromkeys([*self.items, *other.items])),
            max(self.low, other.low),
            _lowest(self.high, other.high),
            tuple(dict.fromkeys([*self.contains, *other.contains])),
            other.unique if self.unique is None else self.unique,
            constant,
        )

    def is_plainly_empty(self) -> bool:
        """See ``_Clause``."""
        return (self.high is not None and self.low > self.high) or any(
            self.at(index) == NEVER for index in range(min(self.low, self.prefix_length + 1))
        )


class Names(NamedTuple):
    """Property names that match a pattern.

    Readers of JSON Schema read some patterns differently. Names that only some of them match are not written, unless
    the schema lists them. Where values that any reader takes are wanted (``Normalizer.is_widest``), the fields are the
    other way round.
    """

    language: Node  # the names that all match: no other rule holds for them
    either: Node  # the names that any matches: the pattern's rule holds for them


@dataclass(frozen=True, eq=False)
class Members:
    """The rules of one schema for an object's members: by name, by pattern of the name, and for all the others."""

    named: Mapping[str, Position] = field(default_factory=dict)  # members in the order of the schema
    patterns: tuple[tuple[Names, Position], ...] = ()
    additional: Position | None = None  # the position of the others; None if the schema says nothing of them
    evaluates: bool = True  # whether it names what the object has; False under a negation

    def at(self, name: str) -> Position:
        """The position of the value under this name."""
        if not self.patterns:
            return self.named.get(name, ANY if self.additional is None else self.additional)
        positions = [position for names, position in self.patterns if matches(names.either, name)]
        if name in self.named:
            positions.append(self.named[name])
        elif self.additional is not None and not any(matches(names.language, name) for names, _ in self.patterns):
            positions.append(self.additional)  # for some readers, or for all
        return all_of(*positions)


class AtLeastOne(NamedTuple):
    """There is a member whose name matches and whose value satisfies ``value``."""

    names: Node
    value: Position
    origin: tuple[str, str]


@dataclass(frozen=True)
class ObjectClause(_Clause):
    """Objects; a value satisfies what every one of ``members`` says of its name."""

    kind = "object"
    members: tuple[Members, ...] = ()
    required: tuple[str, ...] = ()  # names that are there, in order
    forbidden: frozenset[str] = frozenset()  # names that are not
    names: Position = ANY  # the condition on every name, as a string
    low: int = 0  # lower bound of the number of members
    high: int | None = None
    at_least_one: tuple[AtLeastOne, ...] = ()  # members that must be present
    constant: Hashable = None  # see ``ArrayClause``
    origin: str = field(default="", compare=False)  # pointer of the schema that says how many
    _at: dict[str, Position] = field(default_factory=dict, init=False, repr=False, compare=False)

    def at(self, name: str) -> Position:
        """The position of the value under this name; ``names`` is not in it."""
        position = self._at.get(name)
        if position is None:
            count(1 + len(self.members) // 2)
            members = [part.at(name) for part in self.members]
            position = self._at[name] = NEVER if name in self.forbidden else all_of(*members)
        return position

    @cached_property
    def declared(self) -> tuple[str, ...]:
        """The names the schemas speak of, in the order of output: declared ones first, then those only required."""
        names = [name for part in self.members for name in part.named]
        return tuple(dict.fromkeys([*names, *self.required]))

    def meet(self, other: ObjectClause) -> ObjectClause | None:
        """See ``_Clause``."""
        constant = other.constant if self.constant is None else self.constant
        if other.constant not in (None, constant):
            return None
        return ObjectClause(
            tuple(dict.fromkeys([*self.members, *other.members])),
            tuple(dict.fromkeys([*self.required, *other.required])),
            self.forbidden | other.forbidden,
            all_of(self.names, other.names),
            max(self.low, other.low),
            _lowest(self.high, other.high),
            tuple(dict.fromkeys([*self.at_least_one, *other.at_least_one])),
            constant,
            self.origin if self.low or self.high is not None else other.origin,
        )

    def is_plainly_empty(self) -> bool:
        """See ``_Clause``."""
        return (self.high is not None and max(self.low, len(self.required)) > self.high) or any(
            self.at(name) == NEVER for name in self.required
        )


Clause = NullClause | BooleanClause | NumberClause | StringClause | ArrayClause | ObjectClause
Shape = dict[Kind, tuple[Clause, ...]]

UNIVERSE: Shape = {clause.kind: (clause(),) for clause in get_args(Clause)}
EMPTY: Shape = {}


def all_of(*positions: Position) -> Position:
    """A position where all of these hold."""
    if len(positions) == 1:
        return positions[0]
    merged = frozenset().union(*positions)
    return NEVER if len(merged) > 1 and merged >= NEVER else merged


def pointer_of(position: Position) -> str:
    """The pointer of the first schema that a position has to satisfy."""
    return min((term.schema for term in position), key=lambda schema: schema.order).pointer


def string_language(clause: StringClause) -> Node:
    """All strings of a clause, as one language."""
    if clause.values is not None:
        return alt(*map(text, clause.values)) if clause.values else NOTHING
    if not clause.low and clause.high is None:
        return clause.language
    length = repeat(chars(ALL), clause.low, clause.high)
    return length if clause.language is ANYTHING else both(clause.language, length)


@tree_cache(maxsize=4096)
def canonical_strings(clause: StringClause) -> Node:
    """The strings of a clause that the canonical spelling writes: all of them where it would leave none."""
    return string_language(canonical_clause(clause))


@tree_cache(maxsize=4096)
def canonical_clause(clause: StringClause) -> StringClause:
    """A clause of ``canonical_strings`` alone."""
    if clause.values is not None or not clause.usual:
        return clause
    language = clause.language
    for whole, usual in clause.usual:
        language = usual if language == whole else both(language, usual)
    written = replace(clause, language=language, usual=())
    return clause if Emptiness()(string_language(written)) else written


def is_multiple(number: Decimal, factor: Decimal) -> bool:
    """Whether the number is a whole multiple; exact, however many digits they have."""
    (top, bottom), (factor_top, factor_bottom) = number.as_integer_ratio(), factor.as_integer_ratio()
    return (top * factor_bottom) % (bottom * factor_top) == 0


def _tighter(
    first: tuple[Decimal | None, bool], other: tuple[Decimal | None, bool], *, upper: bool
) -> tuple[Decimal | None, bool]:
    if first[0] is None or other[0] is None:
        return other if first[0] is None else first
    if first[0] == other[0]:
        return first[0], first[1] or other[1]
    return first if (first[0] < other[0]) == upper else other


def _least_common_multiple(clause: NumberClause) -> Fraction:
    steps = [factor.as_integer_ratio() for factor in clause.factors]
    steps += [(1, 1)] * (clause.integral is True)
    return Fraction(math.lcm(*(top for top, _ in steps)), math.gcd(*(bottom for _, bottom in steps)))


def _times(step: Fraction, times: int) -> Decimal:
    places = step.denominator.bit_length()  # enough: the denominator has no other factors than 2 and 5
    return Decimal(f"{step.numerator * times * 10**places // step.denominator}e-{places}")


def _lowest(first: int | None, other: int | None) -> int | None:
    return min((value for value in (first, other) if value is not None), default=None)
