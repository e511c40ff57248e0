"""Numbers as text: every decimal spelling of the numbers of a clause, and only those.

    -?(0|[1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]{1,3})?

Exponents are there where bounds do not depend on them: none, or at zero. Elsewhere a number is written without one.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import lru_cache
from os.path import commonprefix
from typing import NamedTuple

from ..regex import EMPTY, NOTHING, CharSet, Node, alt, both, chars, complement, concat, repeat, text
from .shapes import Clause, NumberClause

MAX_ENDINGS = 1000  # last digits to list for multipleOf
DIGIT, NONZERO = (chars(CharSet.of(digits)) for digits in ("0123456789", "123456789"))
ZERO, MINUS, POINT, POINT_ZERO = map(text, ("0", "-", ".", ".0"))
_DIGITS = repeat(DIGIT)
_WHOLE = alt(ZERO, concat(NONZERO, _DIGITS))
_SIGN = repeat(MINUS, 0, 1)
_FRACTION = repeat(concat(POINT, repeat(DIGIT, 1)), 0, 1)
_SOME_FRACTION = concat(POINT, _DIGITS, NONZERO, _DIGITS)  # not just zeros
_ZERO_FRACTION = repeat(concat(POINT, repeat(ZERO, 1)), 0, 1)
# Up to 299: from about 308 on most parsers read Infinity.
_EXPONENT = concat(
    chars(CharSet.of("eE")),
    repeat(chars(CharSet.of("+-")), 0, 1),
    alt(repeat(DIGIT, 1, 2), concat(chars(CharSet.of("12")), repeat(DIGIT, 2, 2))),
)
_LONG = 40  # digits; longer numbers are written with an exponent


def number_language(clause: NumberClause) -> Node:
    """The texts of a clause's numbers.

    With ``undecided_factors`` those without an exponent that would be in the clause but for these.
    """
    if clause.low is None and clause.high is None and not clause.factors and not clause.excluded:
        return _unbounded(clause)
    if clause.integral is None and not clause.factors and not clause.excluded and (signed := _by_sign(clause)):
        return signed
    parts = [alt(_of_sign(clause), concat(MINUS, _of_sign(clause, negative=True)))]
    if clause.integral is False:
        parts.append(concat(_SIGN, _WHOLE, _SOME_FRACTION))
    parts += [concat(_SIGN, multiple) for factor in clause.factors if (multiple := multiples(factor)) is not None]
    parts += [complement(_spellings(value)) for value in sorted(clause.excluded)]
    return both(*parts)


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


def _unbounded(clause: NumberClause) -> Node:
    if clause.integral is None:
        return concat(_SIGN, _WHOLE, _FRACTION, repeat(_EXPONENT, 0, 1))
    return concat(_SIGN, _WHOLE, _point_zero(clause) if clause.integral else _SOME_FRACTION)


def _point_zero(clause: NumberClause) -> Node:
    """The end of a whole number: with more zeros a model could continue for ever."""
    return repeat(POINT_ZERO, 0, int(clause.point_zero))


def _by_sign(clause: NumberClause) -> Node | None:
    """Bounded by zero alone, so that any exponent will do."""
    for sign, bound, is_open, other in (
        (EMPTY, clause.low, clause.low_open, clause.high),
        (MINUS, clause.high, clause.high_open, clause.low),
    ):
        if bound == 0 and other is None:
            positive = alt(concat(NONZERO, _DIGITS, _FRACTION), concat(ZERO, _SOME_FRACTION))
            zero = NOTHING if is_open else concat(ZERO, _ZERO_FRACTION)
            return concat(alt(concat(sign, positive), zero), repeat(_EXPONENT, 0, 1))
    return None


def _spellings(value: Decimal) -> Node:
    """Every spelling of one number without an exponent."""
    whole, fraction = _split(value.copy_abs())
    tail = concat(POINT, text(fraction), repeat(ZERO)) if fraction else _ZERO_FRACTION
    sign = MINUS if value < 0 else _SIGN if value == 0 else EMPTY
    return concat(sign, text(whole), tail)


# -- bounds ------------------------------------------------------------------------------------------------------------


class Magnitudes(NamedTuple):
    """The numbers of one sign inside some bounds, without the sign; ``high`` None is no bound."""

    low: Decimal
    low_open: bool
    high: Decimal | None
    high_open: bool


def magnitudes(clause: NumberClause, *, negative: bool = False) -> Magnitudes | None:
    """The numbers of a sign that the bounds of a clause allow; None if there are none. Zero has both signs."""
    bounds = [clause.low, clause.high]
    low, high = [bound and bound.copy_negate() for bound in reversed(bounds)] if negative else bounds  # -x would round
    is_open = (clause.high_open, clause.low_open) if negative else (clause.low_open, clause.high_open)
    if low is None or low < 0:
        low, is_open = Decimal(0), (False, is_open[1])
    if high is not None and (high < low or (high == low and any(is_open))):
        return None
    return Magnitudes(low, is_open[0], high, is_open[1])


def whole_bounds(clause: NumberClause) -> tuple[int | None, int | None]:
    """The least and the greatest whole number that the bounds of a clause allow."""
    low, high = clause.low, clause.high
    least = None if low is None else int(low.to_integral_value(ROUND_CEILING))
    greatest = None if high is None else int(high.to_integral_value(ROUND_FLOOR))
    return (
        least + 1 if least is not None and clause.low_open and least == low else least,
        greatest - 1 if greatest is not None and clause.high_open and greatest == high else greatest,
    )


def _of_sign(clause: NumberClause, *, negative: bool = False) -> Node:
    """Numbers of one sign, without it, inside the bounds; whole ones if the clause has no others. Zero has no sign."""
    if clause.integral:
        low, high = whole_bounds(clause)
        if negative:
            low, high = None if high is None else -high, None if low is None else -low
        return concat(integers_between(max(low or 0, int(negative)), high), _point_zero(clause))
    sizes = magnitudes(clause, negative=negative)
    if sizes is None:
        return NOTHING
    if negative and not sizes.low:
        sizes = sizes._replace(low_open=True)
    return _decimals_between(*sizes)


def _decimals_between(low: Decimal, low_open: bool, high: Decimal | None, high_open: bool) -> Node:
    if high is None and not low and not low_open:
        return concat(_WHOLE, _FRACTION)
    (first, least), (last, most) = _split(low), ("", "") if high is None else _split(high)
    from_low = _fraction_at_least(least, low_open)
    up_to_high = _fraction_at_most(most, high_open)
    if first == last:
        return concat(text(first), both(from_low, up_to_high))
    between = concat(integers_between(int(first) + 1, None if high is None else int(last) - 1), _FRACTION)
    at_high = NOTHING if high is None else concat(text(last), up_to_high)
    return alt(concat(text(first), from_low), between, at_high)


def _fraction_at_least(digits: str, is_open: bool) -> Node:
    if not digits and not is_open:
        return _FRACTION
    equal = concat(text(digits), _DIGITS, NONZERO, _DIGITS) if is_open else concat(text(digits), _DIGITS)
    greater = [concat(text(digits[:i]), _digits_beyond(digit, upward=True), _DIGITS) for i, digit in enumerate(digits)]
    return concat(POINT, alt(equal, *greater))


def _fraction_at_most(digits: str, is_open: bool) -> Node:
    if not digits:
        return NOTHING if is_open else _ZERO_FRACTION
    equal = NOTHING if is_open else concat(text(digits), repeat(ZERO))
    less = [text(digits[:i]) for i in range(1, len(digits))]
    less += [concat(text(digits[:i]), _digits_beyond(digit, upward=False), _DIGITS) for i, digit in enumerate(digits)]
    return repeat(concat(POINT, alt(equal, *less)), 0, 1)


def _split(bound: Decimal) -> tuple[str, str]:
    """Digits before and after the point, without trailing zeros."""
    whole, _, fraction = f"{bound:f}".partition(".")
    return whole, fraction.rstrip("0")


# -- integers ----------------------------------------------------------------------------------------------------------


def integers_between(low: int, high: int | None) -> Node:
    """The integers of 0 and more from ``low`` to ``high``, without leading zeros; ``high`` None is no bound."""
    if high is None:
        if low == 0:
            return _WHOLE
        digits = len(str(low))
        return alt(integers_between(low, 10**digits - 1), concat(NONZERO, repeat(DIGIT, digits)))
    if high < low:
        return NOTHING
    alternatives = [ZERO] if low == 0 else []
    low = max(low, 1)
    free: list[int] = []  # lengths whose numbers are all inside
    for length in range(len(str(low)), len(str(high)) + 1):
        first, last = max(low, 10 ** (length - 1)), min(high, 10**length - 1)
        if (first, last) == (10 ** (length - 1), 10**length - 1):
            free.append(length)
        elif first <= last:
            alternatives.append(same_length(str(first), str(last)))
    if free:
        alternatives.append(concat(NONZERO, repeat(DIGIT, free[0] - 1, free[-1] - 1)))
    return alt(*alternatives)


def same_length(low: str, high: str) -> Node:
    """The digits from ``low`` to ``high``, which have equal lengths."""
    common = len(commonprefix((low, high)))
    if common:
        return concat(text(low[:common]), same_length(low[common:], high[common:]))
    if not low:
        return EMPTY
    alternatives, first, last, rest = [], low[0], high[0], len(low) - 1
    if low[1:] != "0" * rest:
        significant = low[1:].rstrip("0")
        before = significant[:-1] + chr(ord(significant[-1]) - 1)
        alternatives.append(concat(text(first), _beyond(before, rest - len(significant), upward=True)))
        first = chr(ord(first) + 1)
    if high[1:] != "9" * rest:
        significant = high[1:].rstrip("9")
        after = significant[:-1] + chr(ord(significant[-1]) + 1)
        alternatives.append(concat(text(last), _beyond(after, rest - len(significant), upward=False)))
        last = chr(ord(last) - 1)
    return alt(concat(digits_between(first, last), repeat(DIGIT, rest, rest)), *alternatives)


def _beyond(digits: str, free_digits: int, *, upward: bool) -> Node:
    """Digits greater (or less) than these, then a fixed number of any digits: in halves, for there may be hundreds."""
    if len(digits) == 1:
        return concat(_digits_beyond(digits, upward=upward), repeat(DIGIT, free_digits, free_digits))
    middle = len(digits) // 2
    first, second = digits[:middle], digits[middle:]
    return alt(
        _beyond(first, free_digits + len(second), upward=upward),
        concat(text(first), _beyond(second, free_digits, upward=upward)),
    )


def _digits_beyond(digit: str, *, upward: bool) -> Node:
    return digits_between(chr(ord(digit) + 1), "9") if upward else digits_between("0", chr(ord(digit) - 1))


@lru_cache(maxsize=128)  # a language of floats has hundreds
def digits_between(first: str, last: str) -> Node:
    """One digit from ``first`` to ``last``."""
    return chars(CharSet.of("".join(digit for digit in "0123456789" if first <= digit <= last)))


# -- multiples ---------------------------------------------------------------------------------------------------------


def undecided_factors(clause: Clause) -> tuple[Decimal, ...]:
    """The factors of numbers that plain digits cannot decide (3, 0.7 ...)."""
    factors = clause.factors if isinstance(clause, NumberClause) and clause.values is None else ()
    return tuple(factor for factor in factors if multiples(factor) is None)


def remainder_states(factor: Decimal) -> int:
    """How many states an automaton needs to recognize multiples of a factor by their remainders."""
    whole, fraction = _split(factor)
    return int(whole + fraction) * (len(fraction) + 2)


@lru_cache(maxsize=256)
def multiples(factor: Decimal) -> Node | None:
    """Decimals without sign that are a multiple; None if their last digits do not decide it."""
    whole, fraction = _split(factor)
    places, units = len(fraction), int(whole + fraction)  # with these places, a multiple of ``units`` in the last one
    digits = 0
    while 10**digits % units:
        digits += 1
        if digits > 18 or 10**digits // units > MAX_ENDINGS * 10:
            return None
    if 10**digits // units > MAX_ENDINGS:
        return None
    endings = [str(value).zfill(digits) for value in range(0, 10**digits, units)] if digits else [""]
    # The spelling depends on the position of the point in an ending: some of its digits are after it.
    after_point = min(places, digits)
    free = places - after_point  # digits after the point that may be anything
    at = digits - after_point
    return alt(*(concat(_ending_with(ending[:at]), _fraction_of(free, ending[at:])) for ending in endings))


def _ending_with(digits: str) -> Node:
    """Whole numbers whose last digits are these, shorter ones filled up with zeros in front."""
    if not digits:
        return _WHOLE
    # 5 ends with 05; so does 105, and 0 with 00.
    return alt(text(digits.lstrip("0") or "0"), concat(NONZERO, _DIGITS, text(digits)))


def _fraction_of(free: int, after: str) -> Node:
    """A fraction of ``free`` digits, then these, then zeros; trailing zeros may be left out."""
    if short := after.rstrip("0"):
        return concat(POINT, repeat(DIGIT, free, free), text(short), repeat(ZERO))
    return repeat(concat(POINT, repeat(DIGIT, 1, free), repeat(ZERO)), 0, 1) if free else _ZERO_FRACTION
