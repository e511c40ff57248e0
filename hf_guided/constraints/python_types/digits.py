"""Numbers and fixed-width texts between two bounds, as plain patterns without anchors.

Plain means literals, classes, groups, ``|`` and counted repetition: every engine reads them alike, and they can be
put into each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from ..json_style import MAX_DIGITS

NOTHING = ""
"""The result of these functions where no text is left."""


def literal(text: str) -> str:
    """A pattern that only this text matches; ``re.escape`` escapes what ECMA-262 does not let it escape."""
    return re.sub(r"[\\\\^$.*+?()\[\]{}|/]", r"\\\g<0>", text)


def either(*patterns: str) -> str:
    """Join patterns as alternatives in one group; those that are NOTHING are left out."""
    patterns_left = list(dict.fromkeys(pattern for pattern in patterns if pattern != NOTHING))
    if not patterns_left:
        return NOTHING
    return patterns_left[0] if len(patterns_left) == 1 else f"(?:{'|'.join(patterns_left)})"


def ends(bounds: Mapping[str, Any], move: Callable[[str, Any], Any], low: Any, high: Any) -> tuple[Any, Any]:
    """Narrow both ends of a range by bounds.

    Args:
        bounds: by the names "gt", "ge", "lt", "le"; others mean nothing.
        move: gives the outermost number inside one bound, from the bound's name and value.
        low: the lower end without bounds; None is no end.
        high: the upper end without bounds.
    """
    for name in ("gt", "ge", "lt", "le"):
        if name in bounds:
            inside = move(name, bounds[name])
            if name in ("gt", "ge"):
                low = inside if low is None else max(low, inside)
            else:
                high = inside if high is None else min(high, inside)
    return low, high


def between(low: str, high: str) -> str:
    """Texts of the shape of both bounds that sort from ``low`` to ``high``.

    Args:
        low: the first text.
        high: the last one, of the same length; other characters are at the same indices in both.
    """
    if low > high:
        return NOTHING
    if low == high:
        return literal(low)
    if _is_run(low, "0") and _is_run(high, "9"):
        return _any_digits(low)
    first = next(i for i, (a, b) in enumerate(zip(low, high, strict=True)) if a != b)
    rest = low[first + 1 :]
    zeros, nines = re.sub("[0-9]", "0", rest), re.sub("[0-9]", "9", rest)
    a, b = int(low[first]), int(high[first])
    alternatives = []
    if rest != zeros:
        alternatives.append(f"{a}{between(rest, nines)}")
        a += 1
    tail = high[first + 1 :]
    last = NOTHING
    if tail != nines:
        last = f"{b}{between(zeros, tail)}"
        b -= 1
    if a <= b:
        alternatives.append(f"{_digit(a, b)}{_any_digits(rest)}")
    return literal(low[:first]) + either(*alternatives, last)


def _is_run(text: str, digit: str) -> bool:
    return all(character == digit for character in text if character.isdigit())


def _digit(low: int, high: int) -> str:
    return str(low) if low == high else f"[{low}-{high}]"


def _any_digits(shape: str) -> str:
    """Write a pattern of all texts of this shape."""
    written = []
    for part in re.findall("[0-9]+|[^0-9]+", shape):
        written.append(literal(part) if not part.isdigit() else "[0-9]" + (f"{{{len(part)}}}" if len(part) > 1 else ""))
    return "".join(written)


def whole(low: int | None, high: int | None) -> str:
    """Whole numbers in these bounds, without leading zeros or ``-0``.

    A side without a bound ends at MAX_DIGITS digits, as integers do in JSON: Python refuses to read thousands of them.
    """
    return _signed(low, high, _positive)


def _signed(low: int | None, high: int | None, magnitudes: Callable[[int, int | None], str]) -> str:
    """Numbers between two bounds, by a function for numbers without a sign; zero has none."""
    if low is not None and high is not None and low > high:
        return NOTHING
    positive = magnitudes(max(low or 0, 0), high) if high is None or high >= 0 else NOTHING
    negative = NOTHING
    if low is None or low < 0:
        negative = magnitudes(1 if high is None or high >= 0 else -high, None if low is None else -low)
    return either(positive, _with("-", negative))


def _positive(low: int, high: int | None) -> str:
    alternatives = []
    if low == 0:
        alternatives.append("0")
        low = 1
    if high is None:  # one digit more than the bound leaves room for the next multiple of any step
        high = 10 ** max(MAX_DIGITS, len(str(low)) + 1) - 1
    first, last = len(str(low)), len(str(high))
    if low == 10 ** (first - 1):
        first -= 1  # all numbers of that many digits
    if high == 10**last - 1:
        last += 1
    if first + 1 < last:
        alternatives.append(f"[1-9][0-9]{{{first},{last - 2}}}")
    if first == last and low <= high:
        alternatives.append(between(str(low), str(high)))
    else:
        alternatives += [between(str(low), "9" * first)] if len(str(low)) == first else []
        alternatives += [between("1" + "0" * (last - 1), str(high))] if len(str(high)) == last else []
    return either(*alternatives)


def decimals(low: Fraction | None, high: Fraction | None, places: int) -> str:
    """Decimals in these bounds (both inside) with a bounded number of digits after the point, without an exponent."""
    unit = 10**places
    least = None if low is None else math.ceil(low * unit)
    greatest = None if high is None else math.floor(high * unit)
    return _signed(least, greatest, lambda lowest, highest: _magnitudes(lowest, highest, places))


def _magnitudes(low: int, high: int | None, places: int) -> str:
    """Decimals without a sign; the bounds count units of the last place."""
    if not places:
        return whole(low, high)
    unit = 10**places
    first, low_part = divmod(low, unit)
    any_part = f"(?:\\.[0-9]{{1,{places}}})?"
    if high is None:
        return either(_one_whole(first, low_part, unit - 1, places), _with(whole(first + 1, None), any_part))
    last, high_part = divmod(high, unit)
    if first == last:
        return _one_whole(first, low_part, high_part, places)
    return either(
        _one_whole(first, low_part, unit - 1, places),
        _with(whole(first + 1, last - 1), any_part),
        _one_whole(last, 0, high_part, places),
    )


def _with(pattern: str, tail: str) -> str:
    return NOTHING if NOTHING in (pattern, tail) else pattern + tail


def _one_whole(number: int, low: int, high: int, places: int) -> str:
    """Decimals with this whole part whose fraction, in units of the last place, is in the bounds."""
    if low == 0 and high == 10**places - 1:
        return f"{number}(?:\\.[0-9]{{1,{places}}})?"
    alternatives = [str(number)] if low == 0 else []
    for width in range(1, places + 1):
        unit = 10 ** (places - width)
        first, last = -(-low // unit), high // unit
        if first <= last:
            alternatives.append(f"{number}\\.{between(str(first).zfill(width), str(last).zfill(width))}")
    return either(*alternatives)
