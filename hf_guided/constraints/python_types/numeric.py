"""Numbers as Pydantic reads them: floats as doubles, decimals through doubles or from strings, fractions, complex."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from . import digits
from .digits import NOTHING, either
from .notes import narrower

Core = dict[str, Any]

_EXACT_DIGITS = 15  # a decimal with this number of digits survives a round trip through a double
_PLACES = 6  # digits after the point where bounds have fewer
_MAX_SPLITS = 8  # alternatives for max_digits without decimal_places
_TOLERATED = 10**6  # below it Pydantic's division of doubles is exact enough for its own tolerance
_MAX_PARTS = 100  # of 1 that multiple_of may make, where multiples are recognized by their digits
_REAL = r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?"


class NoNumber(ValueError):
    """No number is inside the bounds."""


def floating(core: Core, *, finite: bool) -> dict[str, Any]:
    """The numbers whose nearest double satisfies a ``float``.

    Args:
        core: of the type.
        finite: whether infinity is refused; a literal such as 1e999 is read as infinity.
    """
    json_schema: dict[str, Any] = {"type": "number"}
    low, high = _double_bounds(core)
    if finite:
        low, high = max(low, -_LARGEST), min(high, _LARGEST)
    step = core.get("multiple_of")
    if step is not None:
        exact = _exact_multiples(float(step))
        low, high = max(low, -exact), min(high, exact)
        json_schema = narrower(json_schema, "float")
        json_schema["multipleOf"] = _json_number(float(step))
    if low > high:
        raise NoNumber("no float is inside the bounds")
    if low == math.inf or high == -math.inf:
        raise NoNumber("no JSON number is inside the bounds")
    if low > -math.inf:
        json_schema["minimum"] = _json_number(low)
    if high < math.inf:
        json_schema["maximum"] = _json_number(high)
    return json_schema


_LARGEST = math.ldexp(2 - 2**-52, 1023)


def _double_bounds(core: Core) -> tuple[float, float]:
    """The least and the greatest double inside the bounds: decimals between them round to doubles between them."""
    low, high = -math.inf, math.inf
    if "ge" in core:
        low = max(low, float(core["ge"]))
    if "gt" in core:
        low = max(low, math.nextafter(float(core["gt"]), math.inf))
    if "le" in core:
        high = min(high, float(core["le"]))
    if "lt" in core:
        high = min(high, math.nextafter(float(core["lt"]), -math.inf))
    return low, high


def _json_number(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _exact_multiples(step: float) -> float:
    """Up to where the double of each multiple passes Pydantic's check."""
    written = Fraction(repr(step))
    if written == Fraction(step):  # a sum of powers of two: multiples are exact while they fit into 53 bits
        return float(2**53 // written.denominator)
    return float(_TOLERATED)


def decimal(core: Core) -> dict[str, Any]:
    """A ``Decimal``, as a JSON number or as a string."""
    alternatives = [*_decimal_numbers(core), *_decimal_strings(core)]
    if not alternatives:
        raise NoNumber("no decimal is inside the bounds")
    return narrower({"anyOf": alternatives} if len(alternatives) > 1 else alternatives[0], "Decimal")


def _splits(core: Core) -> list[tuple[int | None, int | None]]:
    """The most digits before and after the point; None is no limit."""
    total, places = core.get("max_digits"), core.get("decimal_places")
    if total is None:
        return [(None, places)]
    if places is not None:
        return [(max(total - places, 0), min(places, total))]
    return [(total - after, after) for after in range(min(total, _MAX_SPLITS) + 1)]


def _decimal_numbers(core: Core) -> list[dict[str, Any]]:
    """Pydantic makes a double of a JSON number, and a Decimal of its shortest repr."""
    low, high = _decimal_bounds(core)
    step = core.get("multiple_of")
    alternatives = []
    for before, after in _splits(core):
        if before is None and after is None and step is None:
            json_schema: dict[str, Any] = {
                "type": "number",
                "minimum": max(low, -_LARGEST),
                "maximum": min(high, _LARGEST),
            }
        else:
            after = _PLACES if after is None else min(after, _EXACT_DIGITS)
            if step is not None:
                after = min(after, max(0, -int(Decimal(step).normalize().as_tuple().exponent)))
            whole = _EXACT_DIGITS - after if before is None else min(before, _EXACT_DIGITS - after)
            largest = float(Decimal(10) ** whole - Decimal(10) ** -after)
            unit = Decimal(1).scaleb(-after)
            json_schema = {"type": "number", "minimum": max(low, -largest), "maximum": min(high, largest)}
            json_schema["multipleOf"] = _json_number(
                float(unit if step is None else _common_multiple(unit, Decimal(step)))
            )
        sides = [(json_schema["minimum"], json_schema["maximum"])]
        if not _takes_zero(core):
            least = json_schema["multipleOf"]
            sides = [
                (max(json_schema["minimum"], least), json_schema["maximum"]),
                (json_schema["minimum"], min(json_schema["maximum"], -least)),
            ]
        alternatives += [
            {**json_schema, "minimum": _json_number(lowest), "maximum": _json_number(greatest)}
            for lowest, greatest in sides
            if lowest <= greatest
        ]
    return alternatives


def _takes_zero(core: Core) -> bool:
    """Whether 0 is within the digits: Pydantic counts the digit before its point, but not that of 0.1."""
    total, places = core.get("max_digits"), core.get("decimal_places")
    return total is None or (total > 0 if places is None else total > places)


def _common_multiple(first: Decimal, second: Decimal) -> Decimal:
    places = max(0, *(-int(value.normalize().as_tuple().exponent) for value in (first, second)))
    unit = 10**places
    return Decimal(math.lcm(int(first * unit), int(second * unit))).scaleb(-places)


def _decimal_bounds(core: Core) -> tuple[float, float]:
    """The outermost doubles whose shortest repr is inside the bounds, as a decimal."""
    low, high = -math.inf, math.inf
    for name in ("gt", "ge"):
        if name in core:
            bound = Decimal(core[name])
            inside = float(bound)
            while Decimal(repr(inside)) < bound or (name == "gt" and Decimal(repr(inside)) == bound):
                inside = math.nextafter(inside, math.inf)
            low = max(low, inside)
    for name in ("lt", "le"):
        if name in core:
            bound = Decimal(core[name])
            inside = float(bound)
            while Decimal(repr(inside)) > bound or (name == "lt" and Decimal(repr(inside)) == bound):
                inside = math.nextafter(inside, -math.inf)
            high = min(high, inside)
    return low, high


def _decimal_strings(core: Core) -> list[dict[str, Any]]:
    by_fraction = None
    if core.get("multiple_of") is not None:
        by_fraction = multiples(Decimal(core["multiple_of"]))
        if by_fraction is None:
            return []
    bounds: dict[str, Any] = {name: Decimal(core[name]) for name in ("gt", "ge", "lt", "le") if name in core}
    if not bounds and by_fraction is None and core.get("max_digits") is None and core.get("decimal_places") is None:
        return [{"type": "string", "pattern": f"^-?{_REAL}$"}]
    precise = max([_PLACES, *(-int(bound.as_tuple().exponent) for bound in bounds.values())])
    patterns = []
    for before, after in _splits(core):
        places = precise if after is None else after
        low, high = None, None
        if by_fraction is not None:
            before = min(_EXACT_DIGITS, _EXACT_DIGITS if before is None else before)  # Pydantic divides with 28 digits
        if before is not None:
            high = Fraction(10**before) - Fraction(1, 10**places)
            low = -high
        if _takes_zero(core):
            patterns.append(text_between(bounds, places, low, high))
        else:
            least = Fraction(1, 10**places)
            patterns += [text_between(bounds, places, least, high), text_between(bounds, places, low, -least)]
    pattern = either(*patterns)
    if pattern == NOTHING:
        return []
    json_schema: dict[str, Any] = {"type": "string", "pattern": f"^{pattern}$"}
    return [json_schema if by_fraction is None else {**json_schema, "allOf": [{"pattern": f"^{by_fraction}$"}]}]


def multiples(step: Decimal) -> str | None:
    """Decimals that are multiples of a part of 1, by their fractions; None for other steps."""
    if 1 % step or 1 / step > _MAX_PARTS:
        return None
    parts = ((step * i).normalize() for i in range(1, int(1 / step)))
    fractions = either("0", *(f"{part:f}".partition(".")[2] for part in parts))
    return rf"-?(?:0|[1-9][0-9]*)(?:\.{fractions}0*)?"


def text_between(bounds: dict[str, Any], places: int, low: Fraction | None = None, high: Fraction | None = None) -> str:
    """Decimals without an exponent, as a pattern without anchors.

    Args:
        bounds: by the names "gt", "ge", "lt", "le".
        places: digits after the point, at most.
        low: a further bound, inside.
        high: a further bound, inside.
    """
    for name in ("gt", "ge"):
        if name in bounds:
            inside = digits.grid(bounds[name], places, upper=False, is_open=name == "gt")
            low = inside if low is None else max(low, inside)
    for name in ("lt", "le"):
        if name in bounds:
            inside = digits.grid(bounds[name], places, upper=True, is_open=name == "lt")
            high = inside if high is None else min(high, inside)
    return digits.decimals(low, high, places)


def fraction(core: Core) -> dict[str, Any]:
    """A ``Fraction``: "3/4", "0.75" or a number."""
    bounds: dict[str, Any] = {name: Fraction(core[name]) for name in ("gt", "ge", "lt", "le") if name in core}
    if core.get("multiple_of") is not None:
        raise NoNumber("multiple_of of a Fraction is not enforced")
    if not bounds:
        whole = "(?:0|[1-9][0-9]{0,17})"
        text = f"^-?(?:{whole}/[1-9][0-9]{{0,17}}|{whole}(?:\\.[0-9]{{1,18}})?)$"
    else:
        text = f"^{text_between(bounds, _PLACES)}$"
    alternatives: list[dict[str, Any]] = [{"type": "string", "pattern": text}] if text != "^$" else []
    as_decimal = {name: Decimal(bound.numerator) / bound.denominator for name, bound in bounds.items()}
    try:
        alternatives.append(_fraction_numbers(as_decimal))
    except NoNumber:
        pass
    if not alternatives:
        raise NoNumber("no fraction is inside the bounds")
    return narrower({"anyOf": alternatives} if len(alternatives) > 1 else alternatives[0], "Fraction")


def _fraction_numbers(bounds: dict[str, Decimal]) -> dict[str, Any]:
    low, high = -_LARGEST, _LARGEST
    for name, bound in bounds.items():
        # One double further in than the nearest: the bound itself was rounded.
        if name in ("gt", "ge"):
            low = max(low, math.nextafter(float(bound), math.inf))
        else:
            high = min(high, math.nextafter(float(bound), -math.inf))
    if low > high:
        raise NoNumber("no number is inside the bounds")
    return {"type": "number", "minimum": _json_number(low), "maximum": _json_number(high)}


def complex_number(core: Core) -> dict[str, Any]:
    """A ``complex``, as the string that Python writes."""
    return narrower({"type": "string", "pattern": f"^-?(?:{_REAL}|(?:{_REAL}[+-])?{_REAL}?j)$"}, "complex")


BYTE_SIZE: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {
            "type": "string",
            "pattern": r"^(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,6})?(?: ?(?:[kKMGTPE]i?)?(?:B|b|bit))?$",
        },
    ]
}
"""A ``ByteSize``: a number of bytes, or a number with its unit."""
