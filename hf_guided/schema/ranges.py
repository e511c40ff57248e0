"""Numbers as text: every decimal spelling of the numbers of a clause, and only those.

    -?(0|[1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]{1,3})?

Exponents are there where bounds do not depend on them: none, or at zero. Elsewhere a number is written without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache

from ..regex import EMPTY, NOTHING, CharSet, Node, alt, both, chars, complement, concat, repeat, text, tree_cache
from .shapes import NumberClause

MAX_ENDINGS = 1000  # last digits to list for multipleOf
_DIGIT, _NONZERO, _ZERO = (chars(CharSet.of(digits)) for digits in ("0123456789", "123456789", "0"))
_DIGITS = repeat(_DIGIT)
_POINT = text(".")
_WHOLE = alt(_ZERO, concat(_NONZERO, _DIGITS))
_FRACTION = concat(_POINT, repeat(_DIGIT, 1))
_SOME_FRACTION = concat(_POINT, _DIGITS, _NONZERO, _DIGITS)  # not just zeros
_ZERO_FRACTION = concat(_POINT, repeat(_ZERO, 1))
# Up to 299: from about 308 on most parsers read Infinity.
_EXPONENT = concat(
    chars(CharSet.of("eE")),
    repeat(chars(CharSet.of("+-")), 0, 1),
    alt(repeat(_DIGIT, 1, 2), concat(chars(CharSet.of("12")), repeat(_DIGIT, 2, 2))),
)
_POINT_ZERO = text(".0")  # as a whole number may end; more zeros would let a model continue for ever
_MINUS = text("-")
_LONG = 40  # digits; longer numbers are written with an exponent


@tree_cache(maxsize=4096)
def number_language(clause: NumberClause) -> Node | None:
    """The texts of a clause's numbers.

    Returns:
        Their language; None where ``multipleOf`` has a factor that plain digits cannot decide (3, 0.7 ...).
    """
    if clause.values is not None:
        return alt(*map(text, listed_numbers(clause)))
    if clause.low is None and clause.high is None and not clause.factors and not clause.excluded:
        return _unbounded(clause)
    if clause.integral is None and not clause.factors and not clause.excluded:
        if signed := _by_sign(clause):
            return signed
    return None if undecided_factors(clause) else but_for_untold(clause)


def undecided_factors(clause: NumberClause) -> tuple[Decimal, ...]:
    """The factors that plain digits cannot decide."""
    return tuple(factor for factor in clause.factors if clause.values is None and multiples(factor) is None)


def remainder_states(factor: Decimal) -> int:
    """How many states an automaton needs to recognize multiples of a factor by their remainders."""
    whole, fraction = _split(factor)
    return int(whole + fraction) * (len(fraction) + 2)


def but_for_untold(clause: NumberClause) -> Node:
    """The texts of the numbers without an exponent that are in a clause, or would be but for ``undecided_factors``."""
    parts = [alt(_magnitudes(clause), concat(_MINUS, _magnitudes(_mirrored(clause))))]
    if clause.integral is False:
        parts.append(concat(repeat(_MINUS, 0, 1), _WHOLE, _SOME_FRACTION))
    for multiple in map(multiples, clause.factors):
        if multiple is not None:
            parts.append(concat(repeat(_MINUS, 0, 1), multiple))
    parts += [complement(_decimals(value)) for value in sorted(clause.excluded)]
    return both(*parts)


def _unbounded(clause: NumberClause) -> Node:
    if clause.integral is None:
        return concat(repeat(_MINUS, 0, 1), _WHOLE, repeat(_FRACTION, 0, 1), repeat(_EXPONENT, 0, 1))
    fraction = repeat(_POINT_ZERO, 0, int(clause.point_zero)) if clause.integral else _SOME_FRACTION
    return concat(repeat(_MINUS, 0, 1), _WHOLE, fraction)


def _by_sign(clause: NumberClause) -> Node | None:
    """Bounded by zero alone, so that any exponent will do."""
    for sign, bound, is_open, other in (
        (EMPTY, clause.low, clause.low_open, clause.high),
        (_MINUS, clause.high, clause.high_open, clause.low),
    ):
        if bound == 0 and other is None:
            positive = alt(
                concat(_NONZERO, _DIGITS, repeat(_FRACTION, 0, 1)),
                concat(_ZERO, _SOME_FRACTION),
            )
            zero = concat(_ZERO, repeat(_ZERO_FRACTION, 0, 1))
            return concat(alt(concat(sign, positive), NOTHING if is_open else zero), repeat(_EXPONENT, 0, 1))
    return None


def _mirrored(clause: NumberClause) -> NumberClause:
    """The bounds as they look from below zero; zero itself has no sign here."""
    low = _negated(clause.high)
    high = _negated(clause.low)
    low_open = clause.high_open
    if low is None or low <= 0:
        low, low_open = Decimal(0), True
    return replace(clause, low=low, low_open=low_open, high=high, high_open=clause.low_open)


def _negated(bound: Decimal | None) -> Decimal | None:
    """The same bound from the other side; a minus sign alone would round to the digits of the context."""
    return bound.copy_negate() if bound else bound


def _magnitudes(clause: NumberClause) -> Node:
    """Decimals without sign inside the bounds; whole ones if the clause has no others."""
    if clause.integral:
        return concat(_wholes(clause), repeat(_POINT_ZERO, 0, int(clause.point_zero)))
    parts = []
    if clause.low is not None and (clause.low > 0 or (clause.low == 0 and clause.low_open)):
        parts.append(_at_least(clause.low, clause.low_open))
    if clause.high is not None:
        if clause.high < 0:
            return NOTHING
        parts.append(_at_most(clause.high, clause.high_open))
    return both(*parts) if parts else concat(_WHOLE, repeat(_FRACTION, 0, 1))


def _wholes(clause: NumberClause) -> Node:
    low, high = whole_bounds(clause)
    if high is not None and high < 0:
        return NOTHING
    parts = [] if low is None or low <= 0 else [alt(_above(str(low)), text(str(low)))]
    parts += [] if high is None else [alt(_below(str(high)), text(str(high)))]
    return both(*parts) if parts else _WHOLE


def whole_bounds(clause: NumberClause) -> tuple[int | None, int | None]:
    """The least and the greatest whole number that the bounds of a clause allow."""
    low, high = clause.low, clause.high
    least = None if low is None else int(low.to_integral_value(ROUND_CEILING))
    greatest = None if high is None else int(high.to_integral_value(ROUND_FLOOR))
    return (
        least + 1 if least is not None and clause.low_open and least == low else least,
        greatest - 1 if greatest is not None and clause.high_open and greatest == high else greatest,
    )


def _split(bound: Decimal) -> tuple[str, str]:
    """Digits before and after the point, without trailing zeros."""
    whole, _, fraction = f"{bound:f}".partition(".")
    return whole, fraction.rstrip("0")


def _at_least(bound: Decimal, is_open: bool) -> Node:
    whole, fraction = _split(bound)
    if not fraction:
        same = _SOME_FRACTION if is_open else repeat(_FRACTION, 0, 1)
    else:
        alternatives = [concat(text(fraction), _DIGITS, _NONZERO if is_open else EMPTY, _DIGITS if is_open else EMPTY)]
        alternatives += [
            concat(text(fraction[:i]), _digits_above(digit), _DIGITS)
            for i, digit in enumerate(fraction)
            if digit != "9"
        ]
        same = concat(_POINT, alt(*alternatives))
    return alt(concat(_above(whole), repeat(_FRACTION, 0, 1)), concat(text(whole), same))


def _at_most(bound: Decimal, is_open: bool) -> Node:
    whole, fraction = _split(bound)
    if not fraction:
        same = NOTHING if is_open else repeat(_ZERO_FRACTION, 0, 1)
    else:
        alternatives = [NOTHING if is_open else concat(text(fraction), repeat(_ZERO))]
        alternatives += [text(fraction[:i]) for i in range(1, len(fraction))]
        alternatives += [
            concat(text(fraction[:i]), _digits_below(digit), _DIGITS)
            for i, digit in enumerate(fraction)
            if digit != "0"
        ]
        same = repeat(concat(_POINT, alt(*alternatives)), 0, 1)
    return alt(concat(_below(whole), repeat(_FRACTION, 0, 1)), concat(text(whole), same))


def _above(whole: str) -> Node:
    """Whole numbers greater than this one."""
    alternatives = [concat(_NONZERO, repeat(_DIGIT, len(whole), None))]
    for i, digit in enumerate(whole):
        if digit != "9":
            alternatives.append(
                concat(text(whole[:i]), _digits_above(digit), repeat(_DIGIT, len(whole) - i - 1, len(whole) - i - 1))
            )
    return alt(*alternatives)


def _below(whole: str) -> Node:
    """Whole numbers of 0 or more, less than this one."""
    alternatives: list[Node] = []
    if len(whole) > 1:
        alternatives += [_ZERO, concat(_NONZERO, repeat(_DIGIT, 0, len(whole) - 2))]
    for i, digit in enumerate(whole):
        lower = _digits_below(digit)
        if i == 0 and len(whole) > 1:
            lower = chars(CharSet.of("".join(candidate for candidate in "123456789" if candidate < digit)))
        rest = len(whole) - i - 1
        alternatives.append(concat(text(whole[:i]), lower, repeat(_DIGIT, rest, rest)))
    return alt(*alternatives)


def _digits_above(digit: str) -> Node:
    return chars(CharSet.of("".join(candidate for candidate in "0123456789" if candidate > digit)))


def _digits_below(digit: str) -> Node:
    return chars(CharSet.of("".join(candidate for candidate in "0123456789" if candidate < digit)))


@lru_cache(maxsize=256)
def multiples(factor: Decimal) -> Node | None:
    """Decimals without sign that are a multiple; None if their last digits do not decide it."""
    before_point, fraction = _split(factor)
    places, whole = (
        len(fraction),
        int(before_point + fraction),
    )  # with this number of places, a multiple of `whole` units
    digits = 0
    while 10**digits % whole:
        digits += 1
        if digits > 18 or 10**digits // whole > MAX_ENDINGS * 10:
            return None
    if 10**digits // whole > MAX_ENDINGS:
        return None
    endings = [str(value).zfill(digits) for value in range(0, 10**digits, whole)] if digits else [""]
    # The spelling depends on the position of the point in an ending: `after_point` of its digits are after it.
    after_point = min(places, digits)
    alternatives: list[Node] = []
    for ending in endings:
        before, after = (ending[: digits - after_point], ending[digits - after_point :])
        free = places - after_point  # digits after the point that may be anything
        alternatives.append(concat(_ending_with(before), _fraction_of(free, after)))
    return alt(*alternatives)


def _ending_with(digits: str) -> Node:
    """Whole numbers whose last digits are these, shorter ones filled up with zeros in front."""
    if not digits:
        return _WHOLE
    short = digits.lstrip("0")
    longer = concat(_NONZERO, _DIGITS, text(digits))
    if len(short) == len(digits):
        return alt(text(digits), longer)
    # 5 ends with 05; so does 105, and 0 with 00.
    return alt(text(short or "0"), longer)


def _fraction_of(free: int, after: str) -> Node:
    """A fraction of ``free`` digits, then these, then zeros; trailing zeros may be left out."""
    if not free and not after:
        return repeat(_ZERO_FRACTION, 0, 1)
    short = after.rstrip("0")
    zeros = repeat(_ZERO)
    if short:
        return concat(_POINT, repeat(_DIGIT, free, free), text(short), zeros)
    shorter = concat(_POINT, repeat(_DIGIT, 1, free), zeros) if free else _ZERO_FRACTION
    return repeat(shorter, 0, 1)


def _decimals(value: Decimal) -> Node:
    """Every spelling of one number without an exponent."""
    whole, fraction = _split(value.copy_abs())
    tail = concat(_POINT, text(fraction), repeat(_ZERO)) if fraction else repeat(_ZERO_FRACTION, 0, 1)
    sign = _MINUS if value < 0 else repeat(_MINUS, 0, 1) if value == 0 else EMPTY
    return concat(sign, text(whole), tail)


def listed_numbers(clause: NumberClause) -> Iterator[str]:
    """How the listed numbers of a clause may be written: in digits, and as Python's `json` does; 1 also as 1.0."""
    for value in clause.values or ():
        if clause.has(value):
            written = repr(float(value))
            as_json = "e" in written and Decimal(written) == value
            if as_json:
                yield written
            whole, fraction = _split(value)
            if len(whole) + len(fraction) < _LONG or not as_json:
                yield f"{whole}.{fraction}" if fraction else whole
                if not fraction and clause.point_zero:
                    yield f"{whole}.0"
