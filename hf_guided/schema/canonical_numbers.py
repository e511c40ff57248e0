"""Numbers in the shape that Python gives them: integers as ``int`` prints them, all others as the repr of a float.

    integer   -?(0|[1-9][0-9]*)             at most 20 digits, or as many as the clause needs
    fixed     -?WHOLE.FRACTION              from 1e-4 to below 1e16
    exponent  -?D(.DIGITS)?e(+XX|-XX)       below and above that, with two or three digits

The last two have at most 17 significant digits and no trailing zeros but ``.0``, and are read as finite doubles.
Bounds and excluded values hold for the double too, not only for the decimal as written: a reader takes
0.10000000000000001 for 0.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from ..constraints.json_style import MAX_DIGITS
from ..regex import EMPTY, NOTHING, CharSet, Node, alt, both, chars, complement, concat, repeat, text
from .ranges import (
    DIGIT,
    MINUS,
    NONZERO,
    POINT,
    POINT_ZERO,
    ZERO,
    Magnitudes,
    digits_between,
    integers_between,
    magnitudes,
    multiples,
    same_length,
    undecided_factors,
    whole_bounds,
)
from .shapes import NumberClause

SIGNIFICANT = 17  # digits of a float
_LAST_FIXED, _FIRST_FIXED = 15, -4  # powers of ten that a float's repr writes without an exponent
_LARGEST = Decimal(repr(1.7976931348623157e308))
_SMALLEST, _NO_SIZE = Decimal("5e-324"), Decimal(0)
_DOWN = Context(prec=SIGNIFICANT, rounding=ROUND_FLOOR, Emin=-400, Emax=400, traps=[])
_UP = Context(prec=SIGNIFICANT, rounding=ROUND_CEILING, Emin=-400, Emax=400, traps=[])
_FLOAT_ZERO = text("0.0")
_ONE, _ALL_NINES = 10 ** (SIGNIFICANT - 1), 10**SIGNIFICANT - 1  # the least and the greatest 17 digits


def canonical_numbers(clause: NumberClause) -> Node:
    """The texts of a clause's numbers; with ``undecided_factors`` as for ``number_language``."""
    parts = [alt(*_integers(clause), *_floats(clause))]
    parts += [complement(_spellings(value)) for value in sorted(clause.excluded)]
    return both(*parts)


def canonical_listed(clause: NumberClause) -> Iterator[str]:
    """The texts of the listed numbers of a clause: as the schema writes them, a float also without its ``.0``."""
    unlisted = replace(clause, values=None)
    for value in clause.values or ():
        if clause.has(value):
            for written in dict.fromkeys(_listed(value, value in clause.floats, clause.integral is True)):
                # The digits of 1e+23 are another number, which may be no multiple of 10, or below a bound.
                if (number := Decimal(written)) == value or unlisted.has(number):
                    yield written


def _listed(value: Decimal, is_float: bool, is_integer: bool) -> Iterator[str]:
    as_float = float(value)
    whole = value == value.to_integral_value()
    if is_float and Decimal(repr(as_float)) == value:
        if is_integer:  # 1e+23 is another number than its digits
            yield str(int(as_float))
            return
        yield repr(as_float)
        if not value:
            yield from ("0.0", "-0.0")
        whole = whole and int(as_float) == value
    elif not whole:
        yield f"{value:f}"
    if whole:
        yield str(int(value))


# -- integers ----------------------------------------------------------------------------------------------------------


def _integers(clause: NumberClause) -> Iterator[Node]:
    if clause.integral is not False:
        low, high = _integer_bounds(clause)
        yield _multiples_of(clause, _wholes(clause, max(low or 0, 0), high))
        least = 1 if high is None else max(-high, 1)
        yield concat(MINUS, _multiples_of(clause, _wholes(clause, least, None if low is None else -low)))


def _integer_bounds(clause: NumberClause) -> tuple[int | None, int | None]:
    """The least and the greatest integer inside the bounds as written and as doubles: 1e23 is read as a bit less."""
    read = replace(clause, low=_as_read(clause.low), high=_as_read(clause.high))
    lows, highs = zip(whole_bounds(clause), whole_bounds(read), strict=True)
    return (
        max((value for value in lows if value is not None), default=None),
        min((value for value in highs if value is not None), default=None),
    )


def _as_read(bound: Decimal | None) -> Decimal | None:
    """The value a reader takes a number of the schema for: a double unless it is an integer; None if not finite."""
    if bound is None or bound.as_tuple().exponent == 0:
        return bound
    return Decimal(float(bound)) if math.isfinite(float(bound)) else None


def _wholes(clause: NumberClause, low: int, high: int | None) -> Node:
    """Integers without sign; an unbounded side has the digits of the other bound, and enough for one integer."""
    if high is None:
        step = math.lcm(*(factor.as_integer_ratio()[0] for factor in clause.factors))
        first = -(-low // step) * step + step * (len(clause.excluded) + (low == 0))
        bounds = (abs(bound) for bound in whole_bounds(clause) if bound is not None)
        high = 10 ** max(MAX_DIGITS, *(len(str(value)) for value in (first, *bounds))) - 1
    return integers_between(low, high)


def _multiples_of(clause: NumberClause, node: Node) -> Node:
    """Numbers without an exponent, where they are multiples of all factors that digits decide."""
    return both(node, *(found for factor in clause.factors if (found := multiples(factor)) is not None))


# -- floats ------------------------------------------------------------------------------------------------------------


def _floats(clause: NumberClause) -> Iterator[Node]:
    if clause.integral is True:
        return
    above, below = magnitudes(clause), magnitudes(clause, negative=True)
    # Written once where both signs are equal: engines are slow on long expressions.
    signs = [(repeat(MINUS, 0, 1), above)] if above == below else [(EMPTY, above), (MINUS, below)]
    for sign, sizes in signs:
        if sizes is None:
            continue
        if not sizes.low and not sizes.low_open and clause.integral is None:
            yield concat(sign, _FLOAT_ZERO)
        bounds = _doubles(sizes)
        if bounds is not None:
            fixed = _multiples_of(clause, _fixed(*bounds))
            if clause.integral is False:
                fixed = both(fixed, _with_fraction())
            yield concat(sign, alt(fixed, *_with_exponent(clause, *bounds)))


def _doubles(sizes: Magnitudes) -> tuple[Decimal, Decimal] | None:
    """The least and the greatest decimal of 17 digits that is inside as written and as a double; None if none is."""
    low, high = _SMALLEST, _LARGEST
    if sizes.low:
        low = sizes.low.normalize(_UP)
        if sizes.low_open and low == sizes.low:
            low = low.next_plus(_UP)
        first = _nearest_double(sizes.low, math.inf, sizes.low_open)
        low = max(low, _SMALLEST, _read_as(first)[0] if first < math.inf else low)
    if sizes.high is not None:
        high = sizes.high.normalize(_DOWN)
        if sizes.high_open and high == sizes.high:
            high = high.next_minus(_DOWN)
        last = _nearest_double(sizes.high, 0.0, sizes.high_open)
        high = min(high, _LARGEST, _read_as(last)[1] if last > 0 else _NO_SIZE)
    return (low, high) if low <= high else None


def _nearest_double(bound: Decimal, toward: float, is_open: bool) -> float:
    """The first double inside of a bound; a reader takes a number of the schema for an int or a double too."""
    read = int(bound) if bound.as_tuple().exponent == 0 else float(bound)
    double = float(bound)
    outside = double < read if toward > double else double > read
    return math.nextafter(double, toward) if outside or (is_open and double == read) else double


@lru_cache(maxsize=256)
def _fixed(low: Decimal, high: Decimal) -> Node:
    """Floats without an exponent between two magnitudes."""
    alternatives: list[Node] = []
    whole_range: list[int] = []  # numbers of digits before the point of which all are inside
    zeros_before: dict[Node, list[int]] = {}  # by the digits after them
    for power in range(max(low.adjusted(), _FIRST_FIXED), min(high.adjusted(), _LAST_FIXED) + 1):
        first, last = _digits_at(low, high, power)
        if power < 0:
            zeros_before.setdefault(_fractions(SIGNIFICANT, first, last), []).append(-power - 1)
        elif (first, last) == (_ONE, _ALL_NINES):
            whole_range.append(power + 1)
        else:
            alternatives += _decade(first, last, power + 1, POINT_ZERO)
    for digits, counts in zeros_before.items():  # counts fall
        alternatives.append(concat(text("0."), repeat(ZERO, counts[-1], counts[0]), digits))
    if whole_range:
        alternatives.append(_any_fixed(whole_range[0], whole_range[-1]))
    return alt(*alternatives)


def _digits_at(low: Decimal, high: Decimal, power: int) -> tuple[int, int]:
    """The first and the last 17 digits of magnitudes between these two that begin at a power of ten."""
    first = int(low.scaleb(SIGNIFICANT - 1 - power)) if power == low.adjusted() else _ONE
    last = int(high.scaleb(SIGNIFICANT - 1 - power)) if power == high.adjusted() else _ALL_NINES
    return first, last


@lru_cache(maxsize=64)
def _any_fixed(shortest: int, longest: int) -> Node:
    """Floats with a given number of digits before the point: a tree, each digit leaves one fewer for the fraction."""
    rest: Node = NOTHING
    for digits in range(longest, 0, -1):
        after = alt(ZERO, _ending(SIGNIFICANT - digits)) if digits >= shortest else NOTHING
        rest = concat(NONZERO if digits == 1 else DIGIT, alt(concat(POINT, after), rest))
    return rest


def _decade(first: int, last: int, digits: int, no_fraction: Node) -> Iterator[Node]:
    """Numbers between two of 17 digits, ``digits`` of them before the point; ``no_fraction`` follows an integer."""
    unit = 10 ** (SIGNIFICANT - digits)
    (low, low_fraction), (high, high_fraction) = divmod(first, unit), divmod(last, unit)
    if low == high:
        runs = [(low, high, low_fraction, high_fraction)]
    else:
        from_, to = low + (low_fraction > 0), high - (high_fraction < unit - 1)
        runs = [(low, low, low_fraction, unit - 1)] if from_ > low else []
        runs.append((from_, to, 0, unit - 1))
        runs += [(high, high, 0, high_fraction)] if to < high else []
    for from_, to, least_fraction, most_fraction in runs:
        if from_ <= to:
            fractions = concat(POINT, _fractions(SIGNIFICANT - digits, least_fraction, most_fraction))
            after = alt(fractions, no_fraction) if least_fraction == 0 else fractions
            yield concat(same_length(str(from_), str(to)), after)


@lru_cache(maxsize=1)
def _with_fraction() -> Node:
    """All texts but those of floats without an exponent that are read as integers."""
    lost = _units_lost(0.5, 0)
    alternatives = [concat(repeat(DIGIT), POINT_ZERO)]
    alternatives.append(concat(text("0."), _fractions(SIGNIFICANT, _ALL_NINES - lost + 1, _ALL_NINES)))
    for digits in range(1, _LAST_FIXED + 2):
        unit = 10 ** (SIGNIFICANT - digits)
        for low, high in _binades(10 ** (digits - 1), 10**digits - 1):
            lost = min(_units_lost(low, digits), unit - 1)
            near = [(1, lost), (unit - lost, unit - 1)]
            fractions = alt(*(_fractions(SIGNIFICANT - digits, *ends) for ends in near))
            alternatives.append(concat(same_length(str(low), str(high)), POINT, fractions))
    return complement(alt(*alternatives))


def _binades(low: int, high: int) -> Iterator[tuple[int, int]]:
    """The integers between two of 1 and more, in runs between powers of two: doubles are equally close in each."""
    while low <= high:
        yield low, min(2 ** low.bit_length() - 1, high)
        low = 2 ** low.bit_length()


def _units_lost(number: float, digits: int) -> int:
    """The rounding distance of a double in units of the last of 17 digits, with ``digits`` before the point."""
    return int(Fraction(math.ulp(number)) / 2 * Fraction(10) ** (SIGNIFICANT - digits))


def _fractions(places: int, first: int, last: int) -> Node:
    """Digits after a point without zeros at their end, between two numbers of units in the last place."""
    return _endings(f"{first:0{places}}", f"{last:0{places}}") if first <= last else NOTHING


def _endings(low: str, high: str) -> Node:
    """Digits of which the last is not zero, from ``low`` to ``high`` when they are filled up with zeros."""
    rest = len(low) - 1
    if not int(high):
        return NOTHING
    if int(low) <= 1 and high == "9" * len(high):
        return _ending(len(high))
    if not rest:
        return digits_between(max(low, "1"), high)
    by_following: dict[Node, str] = {}
    for digit in range(int(low[0]), int(high[0]) + 1):
        least = low[1:] if digit == int(low[0]) else "0" * rest
        most = high[1:] if digit == int(high[0]) else "9" * rest
        alternatives = [_endings(least, most)]
        alternatives += [EMPTY] if digit and not int(least) else []
        for following in alternatives:
            by_following[following] = by_following.get(following, "") + str(digit)
    return alt(*(concat(chars(CharSet.of(found)), following) for following, found in by_following.items()))


def _ending(most: int) -> Node:
    """Up to this number of digits, the last of which is not zero."""
    return concat(repeat(DIGIT, 0, most - 1), NONZERO)


def _with_exponent(clause: NumberClause, low: Decimal, high: Decimal) -> Iterator[Node]:
    """Floats with an exponent between two magnitudes."""
    if undecided_factors(clause):
        return
    # Below the last digit of a factor there are no multiples; above all digits of a float no fractions.
    least = max([-len(f"{factor:f}".partition(".")[2]) for factor in clause.factors], default=-324)
    by_mantissa: dict[Node, list[int]] = {}
    for power in (*range(-324, _FIRST_FIXED), *range(_LAST_FIXED + 1, 0 if clause.integral is False else 309)):
        if max(low.adjusted(), least) <= power <= high.adjusted():
            mantissa = _mantissa_between(clause, power, low, high)
            if mantissa != NOTHING:
                by_mantissa.setdefault(mantissa, []).append(power)
    for mantissa, found in by_mantissa.items():
        yield concat(mantissa, text("e"), alt(*_exponents(found)))


def _mantissa_between(clause: NumberClause, power: int, low: Decimal, high: Decimal) -> Node:
    """The part before the e: one digit, and a fraction if there are more."""
    mantissa = _mantissa(*_digits_at(low, high, power))
    if not clause.factors:
        return mantissa
    significant = [factor for factor in clause.factors if not _divides_power(factor, power - SIGNIFICANT + 1)]
    return both(mantissa, *(multiples(factor.scaleb(-power)) or NOTHING for factor in significant))


@lru_cache(maxsize=256)
def _mantissa(first: int, last: int) -> Node:
    return alt(*_decade(first, last, 1, EMPTY))


def _divides_power(factor: Decimal, power: int) -> bool:
    """Whether a power of ten is a multiple of a factor."""
    top, bottom = factor.as_integer_ratio()
    return power >= 0 and int(pow(10, power, top)) * bottom % top == 0


def _exponents(powers: list[int]) -> Iterator[Node]:
    """How powers of ten are written after the e: in runs of one sign and one length."""
    runs: list[list[str]] = []
    for power in sorted(powers):
        written = f"{power:+03}"
        if runs and power == int(runs[-1][-1]) + 1 and len(written) == len(runs[-1][-1]):
            runs[-1].append(written)
        else:
            runs.append([written])
    for run in runs:
        sign, (first, last) = run[0][0], sorted([run[0][1:], run[-1][1:]])
        yield concat(text(sign), same_length(first, last))


# -- excluded values ---------------------------------------------------------------------------------------------------


def _spellings(value: Decimal) -> Node:
    """Every text that is this number, as written or as it is read."""
    sign, size = (MINUS if value < 0 else EMPTY), value.copy_abs()
    if not value:
        return alt(ZERO, concat(repeat(MINUS, 0, 1), _FLOAT_ZERO))
    read = _as_read(size)
    sizes = [size] if read is None else [size, read]
    alternatives = [text(str(int(value))) for value in sizes if value == value.to_integral_value() and value]
    double = float(size)
    floats = [(size, size)] if size == size.normalize(_DOWN) else []
    floats += [_read_as(double)] if 0 < double < math.inf and double == read else []
    for bounds in floats:
        alternatives += [_fixed(*bounds), *_with_exponent(NumberClause(), *bounds)]
    return alt(*(concat(sign, alternative) for alternative in alternatives))


def _read_as(double: float) -> tuple[Decimal, Decimal]:
    """The least and the greatest decimal of 17 digits that are read as this double; it is finite, and above 0."""
    below, above = math.nextafter(double, 0.0), math.nextafter(double, math.inf)
    least = _halfway(below, double, _UP)
    greatest = _LARGEST if above == math.inf else _halfway(double, above, _DOWN)
    while float(least) < double:
        least = least.next_plus(_UP)
    while float(greatest) > double:
        greatest = greatest.next_minus(_DOWN)
    return max(least, _SMALLEST), greatest


def _halfway(low: float, high: float, context: Context) -> Decimal:
    exactly = Context(prec=1200, Emin=-1200, Emax=1200)
    return exactly.divide(exactly.add(Decimal(low), Decimal(high)), Decimal(2)).normalize(context)
