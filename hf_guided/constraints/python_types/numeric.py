"""Numbers as Pydantic reads them: floats as doubles, decimals through doubles or from strings, fractions, complex."""

from __future__ import annotations

import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .digits import NOTHING, decimals, either, ends
from .notes import Core, JsonSchemaDict, anchored, narrower

_EXACT_DIGITS = 15  # a decimal with this number of digits survives a round trip through a double
_PLACES = 6  # digits after the point where bounds have fewer
_MAX_SPLITS = 8  # alternatives for max_digits without decimal_places
_TOLERATED = 10**6  # below it Pydantic's division of doubles is exact enough for its own tolerance
_MAX_PARTS = 100  # into how many parts multiple_of may divide 1, where multiples are recognized by their digits
_REAL = r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?"
_LARGEST = math.ldexp(2 - 2**-52, 1023)
# The side of a bound that it lets pass.
_INWARDS = {"gt": math.inf, "ge": math.inf, "lt": -math.inf, "le": -math.inf}
_HOLDS = {"gt": operator.gt, "ge": operator.ge, "lt": operator.lt, "le": operator.le}


def floating(core: Core) -> JsonSchemaDict:
    """The numbers whose nearest double satisfies a ``float``; a literal such as 1e999 is read as infinity."""

    def move(name: str, bound: Any) -> float:
        return math.nextafter(float(bound), _INWARDS[name]) if name in ("gt", "lt") else float(bound)

    json_schema: JsonSchemaDict = {"type": "number"}
    low, high = ends(core, move, -math.inf, math.inf)  # decimals between two doubles round to doubles between them
    if not core["allow_inf_nan"]:
        low, high = max(low, -_LARGEST), min(high, _LARGEST)
    step = core.get("multiple_of")
    if step is not None:
        exact = _exact_multiples(float(step))
        low, high = max(low, -exact), min(high, exact)
        json_schema = narrower(json_schema, "float")
        json_schema["multipleOf"] = _json_number(float(step))
    if low > high:
        raise ValueError("no float is inside the bounds")
    if low == math.inf or high == -math.inf:
        raise ValueError("no JSON number is inside the bounds")
    if low > -math.inf:
        json_schema["minimum"] = _json_number(low)
    if high < math.inf:
        json_schema["maximum"] = _json_number(high)
    return json_schema


def _json_number(value: float) -> int | float:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _exact_multiples(step: float) -> float:
    """The number up to which the double of each multiple passes Pydantic's check."""
    written = Fraction(repr(step))
    if written == Fraction(step):  # a sum of powers of two: multiples are exact while they fit into 53 bits
        return float(2**53 // written.denominator)
    return float(_TOLERATED)


def decimal(core: Core) -> JsonSchemaDict:
    """A ``Decimal``, as a JSON number or as a string."""
    core = {**core}
    for name, holds in _HOLDS.items():
        bound = Decimal(core.get(name, 0))
        if bound.is_infinite() and holds(0, bound):
            del core[name]  # all decimals of JSON are inside
        elif not bound.is_finite():
            raise ValueError("no decimal is inside the bounds")
    return _any_of([*_decimal_numbers(core), *_decimal_strings(core)], "Decimal")


def _any_of(alternatives: list[JsonSchemaDict], name: str) -> JsonSchemaDict:
    if not alternatives:
        raise ValueError(f"no {name.lower()} is inside the bounds")
    return narrower({"anyOf": alternatives} if len(alternatives) > 1 else alternatives[0], name)


def _splits(core: Core) -> list[tuple[int | None, int | None]]:
    """The most digits before and after the point; None is no limit."""
    total, places = core.get("max_digits"), core.get("decimal_places")
    if total is None:
        return [(None, places)]
    if places is not None:
        return [(max(total - places, 0), min(places, total))]
    return [(total - after, after) for after in range(min(total, _MAX_SPLITS) + 1)]


def _decimal_numbers(core: Core) -> list[JsonSchemaDict]:
    """Pydantic makes a double of a JSON number, and a Decimal of its shortest repr."""
    low, high = ends(core, _outermost, -math.inf, math.inf)
    step = core.get("multiple_of")
    alternatives: list[JsonSchemaDict] = []
    for before, after in _splits(core):
        multiple: JsonSchemaDict = {}
        largest = unit = _LARGEST
        if (before, after, step) != (None, None, None):
            after = _PLACES if after is None else min(after, _EXACT_DIGITS)
            if step is not None:
                after = min(after, max(0, -int(Decimal(step).normalize().as_tuple().exponent)))
            whole = _EXACT_DIGITS - after if before is None else min(before, _EXACT_DIGITS - after)
            largest = float(Decimal(10) ** whole - Decimal(10) ** -after)
            place = Decimal(1).scaleb(-after)
            unit = _json_number(float(place if step is None else _common_multiple(place, Decimal(step))))
            multiple = {"multipleOf": unit}
        least, most = max(low, -largest), min(high, largest)
        sides = [(least, most)] if _takes_zero(core) else [(max(least, unit), most), (least, min(most, -unit))]
        alternatives += [
            {"type": "number", "minimum": _json_number(lowest), "maximum": _json_number(greatest), **multiple}
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


def _outermost(name: str, bound: Any) -> float:
    """The outermost double whose shortest repr is inside the bound, as a decimal."""
    bound = Decimal(bound)
    inside = float(bound)
    while not _HOLDS[name](Decimal(repr(inside)), bound):
        inside = math.nextafter(inside, _INWARDS[name])
    return inside


def _decimal_strings(core: Core) -> list[JsonSchemaDict]:
    by_fraction = None
    if core.get("multiple_of") is not None:
        by_fraction = multiples(Decimal(core["multiple_of"]))
        if by_fraction is None:
            return []
    bounds = {name: Decimal(core[name]) for name in _INWARDS if name in core}
    if not bounds and by_fraction is None and core.get("max_digits") is None and core.get("decimal_places") is None:
        return [anchored(f"-?{_REAL}")]
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
    json_schema = anchored(pattern)
    return [json_schema if by_fraction is None else {**json_schema, "allOf": [{"pattern": f"^{by_fraction}$"}]}]


def multiples(step: Decimal) -> str | None:
    """Decimals that are multiples of a part of 1, by their fractions; None for other steps."""
    if 1 % step or 1 / step > _MAX_PARTS:
        return None
    parts = ((step * i).normalize() for i in range(1, int(1 / step)))
    fractions = either("0", *(f"{part:f}".partition(".")[2] for part in parts))
    return rf"-?(?:0|[1-9][0-9]*)(?:\.{fractions}0*)?"


def text_between(bounds: Core, places: int, low: Fraction | None = None, high: Fraction | None = None) -> str:
    """Decimals of at most ``places`` digits after the point, and no exponent, as a pattern without anchors.

    They are inside the bounds, by the names "gt", "ge", "lt", "le"; from ``low``, to ``high``.
    """
    unit = 10**places

    def move(name: str, bound: Any) -> Fraction:
        """The outermost decimal with this number of places."""
        scaled = Fraction(bound) * unit
        moved = math.ceil(scaled) if name in ("gt", "ge") else math.floor(scaled)
        if moved == scaled and name in ("gt", "lt"):
            moved += 1 if name == "gt" else -1
        return Fraction(moved, unit)

    return decimals(*ends(bounds, move, low, high), places)


def fraction(core: Core) -> JsonSchemaDict:
    """A ``Fraction``: "3/4", "0.75" or a number."""
    bounds = {name: Fraction(core[name]) for name in _INWARDS if name in core}
    if core.get("multiple_of") is not None:
        raise ValueError("multiple_of of a Fraction is not enforced")
    if not bounds:
        whole = "(?:0|[1-9][0-9]{0,17})"
        pattern = f"-?(?:{whole}/[1-9][0-9]{{0,17}}|{whole}(?:\\.[0-9]{{1,18}})?)"
    else:
        pattern = text_between(bounds, _PLACES)
    alternatives = [anchored(pattern)] if pattern != NOTHING else []
    # One double further in than the nearest: the bound itself was rounded.
    as_decimal = {name: Decimal(bound.numerator) / bound.denominator for name, bound in bounds.items()}
    low, high = ends(as_decimal, lambda name, bound: math.nextafter(float(bound), _INWARDS[name]), -_LARGEST, _LARGEST)
    if low <= high:
        alternatives.append({"type": "number", "minimum": _json_number(low), "maximum": _json_number(high)})
    return _any_of(alternatives, "Fraction")


def complex_number(core: Core) -> JsonSchemaDict:
    """A ``complex``, as the string that Python writes."""
    return anchored(f"-?(?:{_REAL}|(?:{_REAL}[+-])?{_REAL}?j)", "complex")


BYTE_SIZE: JsonSchemaDict = narrower(
    {
        "anyOf": [
            {"type": "integer", "minimum": 0},
            {
                "type": "string",
                "pattern": r"^(?:0|[1-9][0-9]{0,11})(?:\.[0-9]{1,6})?(?: ?(?:[kKMGTPE]i?)?(?:B|b|bit))?$",
            },
        ]
    },
    "ByteSize",
)
"""A ``ByteSize``: a number of bytes, or a number with its unit."""
