"""Dates, times and durations as Pydantic reads them.

Bounds are kept by comparing digits: a date-time of a fixed shape sorts as its text does. What a shape cannot compare
(offsets, months of different lengths) is left out where there are bounds.
"""

from __future__ import annotations

import datetime as dt
from fractions import Fraction
from typing import Any

from ..format_patterns import FULL_DATE, SECONDS, USUAL_OFFSET
from .digits import NOTHING, between, decimals, either, ends, literal, whole
from .notes import Core, JsonSchemaDict, anchored, narrower

_FRACTION = r"(?:\.[0-9]{1,6})?"
_ONE_SECOND = dt.timedelta(seconds=1)
# Between the making of a schema and the validating of a text, and between two time zones.
_NOW_MARGIN = dt.timedelta(days=2)
_LONGEST = dt.timedelta(days=999_999_999)
_BOUNDS = ("gt", "ge", "lt", "le")


def date(core: Core) -> JsonSchemaDict:
    """The texts of a ``date``."""
    one = {"gt": dt.timedelta(days=1), "lt": dt.timedelta(days=-1)}
    try:
        low, high = ends(core, lambda name, bound: bound + one.get(name, dt.timedelta()), dt.date.min, dt.date.max)
    except OverflowError:
        raise ValueError("no date is inside the bounds") from None
    json_schema: JsonSchemaDict = {"type": "string", "format": "date"}
    today = dt.datetime.now(dt.timezone.utc).date()
    if core.get("now_op") == "past":
        high = min(high, today - _NOW_MARGIN)
    elif core.get("now_op") == "future":
        low = max(low, today + _NOW_MARGIN)
    if low > high:
        raise ValueError("no date is inside the bounds")
    if (low, high) != (dt.date.min, dt.date.max):
        json_schema["pattern"] = f"^{between(low.isoformat(), high.isoformat())}$"
    return _noting_now(narrower(json_schema, "date"), core)


def datetime(core: Core) -> JsonSchemaDict:
    """The texts of a ``datetime``, with an offset, without, or either."""
    limits = {name: _clock(core[name]) for name in _BOUNDS if name in core}
    # The start of a day, so that schemas built on one day are equal and share one compile.
    today = dt.datetime.combine(dt.datetime.now(dt.timezone.utc).date(), dt.time())
    if core.get("now_op") == "past":
        limits["lt"] = min(limits.get("lt", dt.datetime.max), today - _NOW_MARGIN)
    elif core.get("now_op") == "future":
        limits["gt"] = max(limits.get("gt", dt.datetime.min), today + _DAY + _NOW_MARGIN)
    json_schema = _clock_times(core, f"{FULL_DATE}T", limits, dt.datetime.min, dt.datetime.max)
    return _noting_now(narrower(json_schema, "datetime"), core)


def time(core: Core) -> JsonSchemaDict:
    """The texts of a ``time``, with an offset or without."""
    day = dt.datetime(2000, 1, 1)  # an arbitrary day: date-times can be counted in seconds
    limits = {name: dt.datetime.combine(day, core[name].replace(tzinfo=None)) for name in _BOUNDS if name in core}
    return narrower(_clock_times(core, "", limits, day, day + _DAY - _ONE_SECOND), "time")


def _clock_times(
    core: Core, date: str, limits: dict[str, dt.datetime], first: dt.datetime, last: dt.datetime
) -> JsonSchemaDict:
    """Texts of a date, if there is one, a clock time and an offset; in limits between ``first`` and ``last``."""
    offset = _offset(core.get("tz_constraint"), [core[name] for name in _BOUNDS if name in core])
    json_schema = anchored(f"{date}{SECONDS}{_FRACTION}{offset}")
    if limits:
        json_schema["allOf"] = [{"pattern": f"^{_in_bounds(limits, first, last, bool(date))}{offset}$"}]
    return json_schema


def _noting_now(json_schema: JsonSchemaDict, core: Core) -> JsonSchemaDict:
    return narrower(json_schema, core["now_op"]) if core.get("now_op") else json_schema


def _offset(zone: Any, bounds: list[Any]) -> str:
    """The offsets that may be written: where there are bounds, only such as do not move the clock."""
    if isinstance(zone, int) and not isinstance(zone, bool):
        sign, minutes = "-" if zone < 0 else "[+]", abs(zone) // 60
        return f"{sign}{minutes // 60:02}:{minutes % 60:02}" if zone else "(?:Z|[+]00:00)"
    if zone == "naive":
        return ""
    if not bounds:
        return USUAL_OFFSET if zone == "aware" else f"{USUAL_OFFSET}?"
    aware = zone == "aware" or any(bound.tzinfo is not None for bound in bounds)
    return "Z" if aware else "Z?"


def _clock(bound: dt.datetime) -> dt.datetime:
    """The clock time of the bound: in UTC, if the bound has an offset."""
    return bound if bound.tzinfo is None else bound.astimezone(dt.timezone.utc).replace(tzinfo=None)


def _in_bounds(limits: dict[str, dt.datetime], first: dt.datetime, last: dt.datetime, has_date: bool) -> str:
    """Clock times between the limits: seconds with any fraction, and the last one perhaps without."""

    def written(seconds: int) -> str:
        moment = first + dt.timedelta(seconds=seconds)
        return (moment if has_date else moment.time()).isoformat()

    start, end = 0, (last - first) // _ONE_SECOND
    end_alone = end  # the last second that may be written without a fraction
    for name, limit in limits.items():
        second, fraction = divmod(limit - first, _ONE_SECOND)
        if name in ("gt", "ge"):
            start = max(start, second + (name == "gt" or bool(fraction)))
        else:
            end = min(end, second - 1)
            end_alone = min(end_alone, second - (name == "lt" and not fraction))
    alternatives = []
    if start <= end:
        alternatives.append(between(written(start), written(end)) + _FRACTION)
    if end < end_alone and start <= end_alone:
        alternatives.append(literal(written(end_alone)))
    if not alternatives:
        raise ValueError("no time is inside the bounds")
    return either(*alternatives)


_WHOLE = "[0-9]{1,6}"
_SECOND = rf"{_WHOLE}(?:\.[0-9]{{1,6}})?S"
_CLOCK = f"T(?:{_WHOLE}H(?:{_WHOLE}M)?(?:{_SECOND})?|{_WHOLE}M(?:{_SECOND})?|{_SECOND})"
# All of them at their longest are less than the 999,999,999 days that a timedelta may have.
_YEARS, _MONTHS, _WEEKS, _DAYS = "[0-9]{1,5}Y", "[0-9]{1,6}M", "[0-9]{1,7}W", "[0-9]{1,8}D"
_FROM_WEEKS = f"(?:{_WEEKS}(?:{_DAYS})?|{_DAYS})"
_FROM_MONTHS = f"(?:{_MONTHS}{_FROM_WEEKS}?|{_FROM_WEEKS})"
_CALENDAR = f"(?:{_YEARS}{_FROM_MONTHS}?|{_FROM_MONTHS})"
_DAY = dt.timedelta(days=1)
_UNITS = (("H", dt.timedelta(hours=1)), ("M", dt.timedelta(minutes=1)), ("S", dt.timedelta(seconds=1)))
_MAX_STEPS = 1440  # steps of multiple_of in a day: a minute each


def timedelta(core: Core) -> JsonSchemaDict:
    """The texts of a ``timedelta``: ISO 8601 durations."""
    step: dt.timedelta | None = core.get("multiple_of")
    limits = {name: core[name] for name in _BOUNDS if name in core}
    if not limits and step is None:
        return anchored(f"-?P(?:{_CALENDAR}(?:{_CLOCK})?|{_CLOCK})", "timedelta")
    if step is not None and (_DAY % step or (_DAY // step > _MAX_STEPS and step not in (tick for _, tick in _UNITS))):
        raise ValueError(
            f"multiple_of={step!r} is not enforced: expected a part of a day, a second or a minute at least"
        )
    tick = dt.timedelta.resolution
    inwards = {"gt": tick, "lt": -tick}
    low, high = ends(limits, lambda name, bound: bound + inwards.get(name, dt.timedelta()), -_LONGEST, _LONGEST)
    positive = _durations(max(low, dt.timedelta()), high, step) if high >= dt.timedelta() else NOTHING
    negative = _durations(max(-high, tick), -low, step) if low < dt.timedelta() else NOTHING
    pattern = either(positive, "-" + negative if negative else NOTHING)
    if pattern == NOTHING:
        raise ValueError("no duration is inside the bounds")
    return anchored(pattern, "timedelta")


def _durations(low: dt.timedelta, high: dt.timedelta, step: dt.timedelta | None) -> str:
    """Durations of 0 or more between two, with every unit below the size of the next and left out where it is 0."""
    if low > high:
        return NOTHING
    alternatives = []
    for days, start, end in _split(low, high, _DAY):
        clock = _clock_between(start, end, step)
        if days[0] == 0:
            alternatives.append(f"PT{clock}" if clock else NOTHING)
            alternatives.append("PT0S" if not start else NOTHING)
            days = range(1, days.stop)
        if days:
            written = f"P{whole(days[0], days[-1])}D"
            if not start:
                alternatives.append(f"{written}(?:T{clock})?" if clock else written)
            elif clock:
                alternatives.append(f"{written}T{clock}")
    return either(*alternatives)


def _split(low: dt.timedelta, high: dt.timedelta, size: dt.timedelta) -> list[tuple[range, dt.timedelta, dt.timedelta]]:
    """Counts of a unit, with the range of what follows them: the first count, those after it, and the last one."""
    first, last = low // size, high // size
    most = size - dt.timedelta.resolution
    parts = (
        (range(first, first + 1), low % size, high % size if first == last else most),
        (range(first + 1, last), dt.timedelta(), most),
        (range(max(last, first + 1), last + 1), dt.timedelta(), high % size),
    )
    return [part for part in parts if part[0]]


def _clock_between(low: dt.timedelta, high: dt.timedelta, step: dt.timedelta | None) -> str:
    """The part after the T, for more than zero and less than a day."""
    if step is not None and _DAY // step <= _MAX_STEPS:
        return either(*(_clock_text(step * i) for i in range(1, _DAY // step) if low <= step * i <= high))
    return _from_unit(0, low, high, 0 if step else 6)


def _from_unit(index: int, low: dt.timedelta, high: dt.timedelta, places: int) -> str:
    """Hours, minutes and seconds, or the smaller units among them; not zero."""
    letter, size = _UNITS[index]
    low = max(low, dt.timedelta.resolution)
    if low > high:
        return NOTHING
    if letter == "S":
        tick = dt.timedelta.resolution
        bounds = Fraction(low // tick, 10**6), Fraction(high // tick, 10**6)
        seconds = decimals(bounds[0], bounds[1], places)
        return f"{seconds}S" if seconds else NOTHING
    alternatives = []
    for counts, start, stop in _split(low, high, size):
        rest = _from_unit(index + 1, start, stop, places)
        if counts[0] == 0:
            alternatives.append(rest)
            counts = range(1, counts.stop)
        if counts:
            written = f"{whole(counts[0], counts[-1])}{letter}"
            alternatives.append(
                f"{written}(?:{rest})?" if not start and rest else written + rest if not start or rest else NOTHING
            )
    return either(*alternatives)


def _clock_text(clock: dt.timedelta) -> str:
    written = ""
    for letter, size in _UNITS:
        count, clock = divmod(clock, size)
        written += f"{count}{letter}" if count else ""
    return written
