"""Shapes put together: unions, what two have in common, and whether anything is left."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ..regex import NOTHING, both
from .shapes import (
    EMPTY,
    KINDS,
    NEVER,
    UNIVERSE,
    ArrayClause,
    BooleanClause,
    Clause,
    Kind,
    NullClause,
    NumberClause,
    ObjectClause,
    Shape,
    StringClause,
    together,
)


def certainly(holds: bool) -> Shape:
    """What a keyword that says nothing says, or its negation."""
    return UNIVERSE if holds else EMPTY


def union(*shapes: Shape) -> Shape:
    """Values of any of the shapes; equal clauses stand once."""
    found: Shape = {}
    for kind in KINDS:
        if clauses := tuple(dict.fromkeys(clause for shape in shapes for clause in shape.get(kind, ()))):
            whole = UNIVERSE[kind]
            found[kind] = whole if whole[0] in clauses else clauses
    return found


def intersection(one: Shape, other: Shape) -> Shape:
    """Values of both shapes, without clauses that are plainly empty."""
    if one is UNIVERSE or other is UNIVERSE:
        return other if one is UNIVERSE else one
    found: Shape = {}
    for kind in KINDS:
        if kind in one and kind in other:
            clauses = [meet(a, b) for a in one[kind] for b in other[kind]]
            if kept := tuple(dict.fromkeys(clause for clause in clauses if clause is not None)):
                found[kind] = kept
    return found


def untold(shape: Shape) -> Shape:
    """The same values; but what was found out on the way, under a negation, tells nobody what has been looked at."""
    found = dict(shape)
    if "array" in shape:
        found["array"] = tuple(
            replace(
                one,
                items=tuple(items._replace(tells=False) for items in one.items),
                contains=tuple(contains._replace(tells=False) for contains in one.contains),
            )
            for one in shape["array"]
            if isinstance(one, ArrayClause)
        )
    if "object" in shape:
        found["object"] = tuple(
            replace(one, members=tuple(replace(members, tells=False) for members in one.members))
            for one in shape["object"]
            if isinstance(one, ObjectClause)
        )
    return found


def size(shape: Shape) -> int:
    """How many alternatives the largest type has."""
    return max(map(len, shape.values()), default=0)


def meet(one: Any, other: Any) -> Clause | None:
    """The clause of what two clauses of one type have in common; None if that is plainly nothing."""
    if one == other or other == UNIVERSE[_kind(other)][0]:
        return one  # type: ignore[no-any-return]
    if one == UNIVERSE[_kind(one)][0]:
        return other  # type: ignore[no-any-return]
    return _MEET[type(one)](one, other)  # type: ignore[no-any-return]


def _kind(clause: Clause) -> Kind:
    return _KIND_OF[type(clause)]


def _meet_booleans(one: BooleanClause, other: BooleanClause) -> BooleanClause | None:
    values = one.values & other.values
    return BooleanClause(values) if values else None


def _meet_numbers(one: NumberClause, other: NumberClause) -> NumberClause | None:
    if None not in (one.integral, other.integral) and one.integral != other.integral:
        return None
    low, low_open = _tighter((one.low, one.low_open), (other.low, other.low_open), upper=False)
    high, high_open = _tighter((one.high, one.high_open), (other.high, other.high_open), upper=True)
    values = one.values if other.values is None else other.values
    found = NumberClause(
        one.integral if other.integral is None else other.integral,
        one.point_zero and other.point_zero,
        low,
        low_open,
        high,
        high_open,
        tuple(dict.fromkeys([*one.factors, *other.factors])),
        None if values is None else tuple(value for value in values if one.has(value) and other.has(value)),
        one.excluded | other.excluded,
        other.floats if one.values is None else one.floats,
        one.origin if one.factors else other.origin,
    )
    return None if is_plainly_empty(found) else found


def _tighter(
    one: tuple[Decimal | None, bool], other: tuple[Decimal | None, bool], *, upper: bool
) -> tuple[Decimal | None, bool]:
    if one[0] is None or other[0] is None:
        return other if one[0] is None else one
    if one[0] == other[0]:
        return one[0], one[1] or other[1]
    return one if (one[0] < other[0]) == upper else other


def _meet_strings(one: StringClause, other: StringClause) -> StringClause | None:
    values = one.values if other.values is None else other.values
    found = StringClause(
        max(one.low, other.low),
        _least(one.high, other.high),
        both(one.language, other.language),
        None if values is None else tuple(value for value in values if one.has(value) and other.has(value)),
        tuple(dict.fromkeys([*one.usual, *other.usual])),
    )
    return None if is_plainly_empty(found) else found


def _meet_arrays(one: ArrayClause, other: ArrayClause) -> ArrayClause | None:
    found = ArrayClause(
        tuple(dict.fromkeys([*one.items, *other.items])),
        max(one.low, other.low),
        _least(one.high, other.high),
        tuple(dict.fromkeys([*one.contains, *other.contains])),
        other.unique if one.unique is None else one.unique,
    )
    return None if is_plainly_empty(found) else found


def _meet_objects(one: ObjectClause, other: ObjectClause) -> ObjectClause | None:
    found = ObjectClause(
        tuple(dict.fromkeys([*one.members, *other.members])),
        tuple(dict.fromkeys([*one.required, *other.required])),
        one.forbidden | other.forbidden,
        together(one.names, other.names),
        max(one.low, other.low),
        _least(one.high, other.high),
        tuple(dict.fromkeys([*one.some, *other.some])),
        one.origin if one.low or one.high is not None else other.origin,
    )
    return None if is_plainly_empty(found) else found


def is_plainly_empty(clause: Clause) -> bool:
    """Whether no value satisfies it, as far as can be seen without looking into children."""
    if isinstance(clause, NumberClause):
        return _has_no_number(clause)
    if isinstance(clause, StringClause):
        if clause.values is not None:
            return not clause.values
        return clause.language == NOTHING or (clause.high is not None and clause.low > clause.high)
    if isinstance(clause, ArrayClause):
        return (clause.high is not None and clause.low > clause.high) or any(
            clause.at(index) == NEVER for index in range(min(clause.low, clause.prefix_length + 1))
        )
    if isinstance(clause, ObjectClause):
        return (clause.high is not None and max(clause.low, len(clause.required)) > clause.high) or any(
            clause.at(name) == NEVER for name in clause.required
        )
    return False


def _has_no_number(clause: NumberClause) -> bool:
    if clause.values is not None:
        return not clause.values
    if clause.integral is not True and not clause.factors:
        if clause.low is None or clause.high is None or clause.low < clause.high:
            return False
        return clause.low > clause.high or not clause.has(clause.low)
    step = _least_common_multiple(clause)
    if clause.integral is False and step.denominator == 1:
        return True
    if clause.low is None or clause.high is None:
        return False
    first = math.ceil(Fraction(*clause.low.as_integer_ratio()) / step)
    last = math.floor(Fraction(*clause.high.as_integer_ratio()) / step)
    # Among more there is one that is not left out: not the bounds, not listed, and of two neighbours one is not whole.
    few = 2 * len(clause.excluded) + 6
    return last - first < few and not any(clause.has(_times(step, times)) for times in range(first, last + 1))


def _least_common_multiple(clause: NumberClause) -> Fraction:
    """What all numbers of the clause are multiples of."""
    steps = [factor.as_integer_ratio() for factor in clause.factors]
    steps += [(1, 1)] * (clause.integral is True)
    return Fraction(math.lcm(*(top for top, _ in steps)), math.gcd(*(bottom for _, bottom in steps)))


def _times(step: Fraction, times: int) -> Decimal:
    """A multiple of a decimal, exactly."""
    places = step.denominator.bit_length()  # enough: the denominator has no other factors than 2 and 5
    return Decimal(f"{step.numerator * times * 10**places // step.denominator}e-{places}")


def _least(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value is not None), default=None)


_MEET: dict[type, Any] = {
    NullClause: lambda one, other: one,
    BooleanClause: _meet_booleans,
    NumberClause: _meet_numbers,
    StringClause: _meet_strings,
    ArrayClause: _meet_arrays,
    ObjectClause: _meet_objects,
}
_KIND_OF: dict[type, Kind] = {
    NullClause: "null",
    BooleanClause: "boolean",
    NumberClause: "number",
    StringClause: "string",
    ArrayClause: "array",
    ObjectClause: "object",
}
