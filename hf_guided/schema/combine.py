"""Operations on shapes: union, intersection, and emptiness."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import product
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
    all_of,
)


def certainly(holds: bool) -> Shape:
    """The shape of a keyword without effect, or its negation."""
    return UNIVERSE if holds else EMPTY


def union(*shapes: Shape) -> Shape:
    """Values of any of the shapes; equal clauses are kept once, and those that only list scalars as one."""
    met: Shape = {}
    for kind in KINDS:
        if clauses := [clause for shape in shapes if kind in shape for clause in shape[kind]]:
            whole = UNIVERSE[kind]
            met[kind] = whole if whole[0] in clauses else _joined(clauses) if len(clauses) > 1 else tuple(clauses)
    return met


def _joined(clauses: Iterable[Clause]) -> tuple[Clause, ...]:
    lists: dict[Clause, list[Any]] = {}  # lists of scalars, by all else that is said of them
    for clause in clauses:
        is_list = isinstance(clause, (NumberClause, StringClause)) and clause.values is not None
        lists.setdefault(_without_values(clause) if is_list else clause, []).append(clause)
    return tuple(_as_one(alike, listing) for alike, listing in lists.items())


def _without_values(clause: Any) -> Clause:
    return replace(clause, values=(), **({"floats": frozenset()} if isinstance(clause, NumberClause) else {}))  # type: ignore[no-any-return]


def _as_one(alike: Any, listing: list[Any]) -> Clause:
    if len(listing) == 1 or alike == listing[0]:
        return listing[0]  # type: ignore[no-any-return]
    values = tuple(dict.fromkeys(value for clause in listing for value in clause.values))
    if isinstance(alike, StringClause):
        return replace(alike, values=values)
    return replace(alike, values=values, floats=frozenset().union(*(clause.floats for clause in listing)))  # type: ignore[no-any-return]


def absorbed(shape: Shape) -> Shape:
    """Without objects that are a special case of others, as far as required and forbidden names alone tell."""
    clauses = [clause for clause in dict.fromkeys(shape.get("object", ())) if isinstance(clause, ObjectClause)]
    general: dict[
        ObjectClause, list[tuple[frozenset[str], frozenset[str]]]
    ] = {}  # names, by all else that the clauses say
    special = set[ObjectClause]()
    for clause in sorted(clauses, key=lambda clause: len(clause.required) + len(clause.forbidden)):
        others = general.setdefault(replace(clause, required=(), forbidden=frozenset()), [])
        required, forbidden = frozenset(clause.required), clause.forbidden
        if any([names <= required and absent <= forbidden for names, absent in others]):
            special.add(clause)
        else:
            others.append((required, forbidden))
    return {**shape, "object": tuple(clause for clause in clauses if clause not in special)} if clauses else shape


def _all_pairs(first: Sequence[Clause], second: Sequence[Clause]) -> Iterable[tuple[int, int]]:
    return product(range(len(first)), range(len(second)))


Pairs = Callable[[Sequence[Clause], Sequence[Clause]], Iterable[tuple[int, int]]]


def intersection(first: Shape, second: Shape, pairs: Pairs = _all_pairs) -> Shape:
    """Values of both shapes, without clauses that are plainly empty.

    Args:
        first: a shape.
        second: another one.
        pairs: says which of the clauses of one type may have a value in common.
    """
    if first is UNIVERSE or second is UNIVERSE:
        return second if first is UNIVERSE else first
    met: Shape = {}
    for kind in KINDS:
        if kind not in first or kind not in second:
            continue
        if first[kind] is UNIVERSE[kind]:
            met[kind] = second[kind]
        elif second[kind] is UNIVERSE[kind]:
            met[kind] = first[kind]
        else:
            clauses = [meet(first[kind][i], second[kind][j]) for i, j in pairs(first[kind], second[kind])]
            if clauses_left := tuple(dict.fromkeys(clause for clause in clauses if clause is not None)):
                met[kind] = clauses_left
    return met


def untold(shape: Shape) -> Shape:
    """The same values; under a negation, they do not mark items or members as evaluated."""
    met = dict(shape)
    if "array" in shape:
        met["array"] = tuple(
            replace(
                clause,
                items=tuple(items._replace(evaluates=False) for items in clause.items),
                contains=tuple(contains._replace(evaluates=False) for contains in clause.contains),
            )
            for clause in shape["array"]
            if isinstance(clause, ArrayClause)
        )
    if "object" in shape:
        met["object"] = tuple(
            replace(clause, members=tuple(replace(members, evaluates=False) for members in clause.members))
            for clause in shape["object"]
            if isinstance(clause, ObjectClause)
        )
    return met


def size(shape: Shape) -> int:
    """How many alternatives the largest type has."""
    return max(map(len, shape.values()), default=0)


def meet(first: Any, second: Any) -> Clause | None:
    """The intersection of two clauses of one type; None if it is plainly empty."""
    if first == second or second == UNIVERSE[_kind(second)][0]:
        return first  # type: ignore[no-any-return]
    if first == UNIVERSE[_kind(first)][0]:
        return second  # type: ignore[no-any-return]
    return _MEET[type(first)](first, second)  # type: ignore[no-any-return]


def _kind(clause: Clause) -> Kind:
    return _KIND_OF[type(clause)]


def _meet_booleans(first: BooleanClause, second: BooleanClause) -> BooleanClause | None:
    values = first.values & second.values
    return BooleanClause(values) if values else None


def _meet_numbers(first: NumberClause, second: NumberClause) -> NumberClause | None:
    if None not in (first.integral, second.integral) and first.integral != second.integral:
        return None
    low, low_open = _tighter((first.low, first.low_open), (second.low, second.low_open), upper=False)
    high, high_open = _tighter((first.high, first.high_open), (second.high, second.high_open), upper=True)
    values = first.values if second.values is None else second.values
    met = NumberClause(
        first.integral if second.integral is None else second.integral,
        first.point_zero and second.point_zero,
        low,
        low_open,
        high,
        high_open,
        tuple(dict.fromkeys([*first.factors, *second.factors])),
        None if values is None else tuple(value for value in values if first.has(value) and second.has(value)),
        first.excluded | second.excluded,
        second.floats if first.values is None else first.floats,
        first.origin if first.factors else second.origin,
    )
    return None if is_plainly_empty(met) else met


def _tighter(
    first: tuple[Decimal | None, bool], second: tuple[Decimal | None, bool], *, upper: bool
) -> tuple[Decimal | None, bool]:
    if first[0] is None or second[0] is None:
        return second if first[0] is None else first
    if first[0] == second[0]:
        return first[0], first[1] or second[1]
    return first if (first[0] < second[0]) == upper else second


def _meet_strings(first: StringClause, second: StringClause) -> StringClause | None:
    values = first.values if second.values is None else second.values
    met = StringClause(
        max(first.low, second.low),
        _lowest(first.high, second.high),
        both(first.language, second.language),
        None if values is None else tuple(value for value in values if first.has(value) and second.has(value)),
        tuple(dict.fromkeys([*first.usual, *second.usual])),
    )
    return None if is_plainly_empty(met) else met


def _meet_arrays(first: ArrayClause, second: ArrayClause) -> ArrayClause | None:
    constant = second.constant if first.constant is None else first.constant
    if second.constant not in (None, constant):
        return None
    met = ArrayClause(
        tuple(dict.fromkeys([*first.items, *second.items])),
        max(first.low, second.low),
        _lowest(first.high, second.high),
        tuple(dict.fromkeys([*first.contains, *second.contains])),
        second.unique if first.unique is None else first.unique,
        constant,
    )
    return None if is_plainly_empty(met) else met


def _meet_objects(first: ObjectClause, second: ObjectClause) -> ObjectClause | None:
    constant = second.constant if first.constant is None else first.constant
    if second.constant not in (None, constant):
        return None
    met = ObjectClause(
        tuple(dict.fromkeys([*first.members, *second.members])),
        tuple(dict.fromkeys([*first.required, *second.required])),
        first.forbidden | second.forbidden,
        all_of(first.names, second.names),
        max(first.low, second.low),
        _lowest(first.high, second.high),
        tuple(dict.fromkeys([*first.at_least_one, *second.at_least_one])),
        constant,
        first.origin if first.low or first.high is not None else second.origin,
    )
    return None if is_plainly_empty(met) else met


def is_plainly_empty(clause: Clause) -> bool:
    """Whether no value satisfies it, as far as is visible without the children."""
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
    if clause.integral is False and _least_common_multiple(clause).denominator == 1:
        return True
    if clause.low is None or clause.high is None:
        return False
    step = _least_common_multiple(clause)
    first = math.ceil(Fraction(*clause.low.as_integer_ratio()) / step)
    last = math.floor(Fraction(*clause.high.as_integer_ratio()) / step)
    # Among more there is one that is not left out: not the bounds, not listed, and of two neighbours one is not whole.
    few = 2 * len(clause.excluded) + 6
    return last - first < few and not any(clause.has(_times(step, times)) for times in range(first, last + 1))


def _least_common_multiple(clause: NumberClause) -> Fraction:
    """A common factor of all numbers of the clause."""
    steps = [factor.as_integer_ratio() for factor in clause.factors]
    steps += [(1, 1)] * (clause.integral is True)
    return Fraction(math.lcm(*(top for top, _ in steps)), math.gcd(*(bottom for _, bottom in steps)))


def _times(step: Fraction, times: int) -> Decimal:
    """A multiple of a decimal, exactly."""
    places = step.denominator.bit_length()  # enough: the denominator has no other factors than 2 and 5
    return Decimal(f"{step.numerator * times * 10**places // step.denominator}e-{places}")


def _lowest(first: int | None, second: int | None) -> int | None:
    return min((value for value in (first, second) if value is not None), default=None)


_MEET: dict[type, Any] = {
    NullClause: lambda first, second: first,
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
