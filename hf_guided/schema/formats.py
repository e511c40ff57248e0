"""Formats that we spell out as patterns, exactly: what the pattern matches, a strict format checker accepts.

The lengths of months, leap years, the ranges of hours and of IPv4 octets are all in the patterns. A leap second is
left out (checkers disagree on it), and so is the hour 24.
"""

from __future__ import annotations

from typing import Any

from .walk import walk

# Two digits: 01-99 without and with the multiples of four, for leap years.
_NOT_00 = r"(?:0[1-9]|[1-9]\d)"
_FOURS = r"(?:0[48]|[2468][048]|[13579][26])"  # 04 .. 96
_LEAP = rf"(?:\d\d{_FOURS}|(?:{_FOURS})00)"  # 0000 is no year for Python's date, hence never 00 before 00
_YEAR = rf"(?:\d\d{_NOT_00}|{_NOT_00}00)"  # 0001 .. 9999
_DAY_OF_YEAR = (
    r"(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))"
)
_DATE = rf"(?:{_YEAR}-{_DAY_OF_YEAR}|{_LEAP}-02-29)"
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_ZONE = r"(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"

FORMATS: dict[str, dict[str, Any]] = {
    "date": {"pattern": f"^{_DATE}$"},
    "time": {"pattern": f"^{_CLOCK}{_ZONE}$"},
    "date-time": {"pattern": f"^{_DATE}T{_CLOCK}{_ZONE}$"},
    "uuid": {"pattern": r"^[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$"},
    "ipv4": {"pattern": rf"^(?:{_OCTET}\.){{3}}{_OCTET}$"},
    "email": {"pattern": rf"^[A-Za-z0-9_+-]+(?:\.[A-Za-z0-9_+-]+)*@{_LABEL}(?:\.{_LABEL})+$"},
    "hostname": {"pattern": rf"^{_LABEL}(?:\.{_LABEL})*$", "maxLength": 253},
}
"""Each format as a schema for strings."""


def spell_out(schema: dict[str, Any] | bool) -> None:
    """Replace every ``format`` of the table by its pattern, in place; other formats stay.

    Keywords already there keep their place: what clashes goes into an ``allOf``. Formats bind strings only, and so
    do the keywords that spell them out.
    """
    for place in list(walk(schema)):
        here = place.schema
        name = here.get("format") if isinstance(here, dict) else None
        if not isinstance(here, dict) or not isinstance(name, str) or name not in FORMATS:
            continue
        del here["format"]
        if FORMATS[name].keys() & here.keys():
            here["allOf"] = [*here.get("allOf", ()), dict(FORMATS[name])]
        else:
            here.update(FORMATS[name])
