"""RFC 3339 as patterns: dates, times, durations. Names are those of its grammar (section 5.6 and appendix A).

The lengths of months and leap years are in the patterns. Year 0000 and leap seconds are not: checkers know neither.
"""

from __future__ import annotations

# date: 0001 .. 9999, every month at its length, 29 February in leap years only
_01_TO_99 = r"(?:0[1-9]|[1-9][0-9])"
_FOURS = r"(?:0[48]|[2468][048]|[13579][26])"  # the multiples of four, 04 .. 96
_DATE_FULLYEAR = rf"(?:[0-9]{{2}}{_01_TO_99}|{_01_TO_99}00)"
_LEAP_YEAR = rf"(?:[0-9]{{2}}{_FOURS}|{_FOURS}00)"
_MONTH_AND_DAY = (
    "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
)
FULL_DATE = f"(?:{_DATE_FULLYEAR}-{_MONTH_AND_DAY}|{_LEAP_YEAR}-02-29)"

# time: any number of digits after the point, letters in either case
_TIME_HOUR = "(?:[01][0-9]|2[0-3])"
_PARTIAL_TIME = rf"{_TIME_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
_TIME_OFFSET = f"(?:[Zz]|[+-]{_TIME_HOUR}:[0-5][0-9])"
FULL_TIME = f"{_PARTIAL_TIME}{_TIME_OFFSET}"

DATE_TIME = f"{FULL_DATE}[Tt]{FULL_TIME}"

# what datetime.isoformat() writes of them, and RFC 3339 recommends; fractions down to nanoseconds
USUAL_TIME = rf"{_TIME_HOUR}:[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,9}})?(?:Z|[+-]{_TIME_HOUR}:[0-5][0-9])"
USUAL_DATE_TIME = f"{FULL_DATE}T{USUAL_TIME}"

# duration: a unit may be followed by the next smaller one only
_DUR_TIME = "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
_DUR_DATE = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
DURATION = f"P(?:{_DUR_DATE}(?:{_DUR_TIME})?|{_DUR_TIME}|[0-9]+W)"
