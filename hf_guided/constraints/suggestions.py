"""Suggestions for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LIKENESS = 0.8  # of 1; "requred" has 0.93 to "required", "maxlen" has 0.8 to "maxLength"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if there is one that a typing mistake can explain; capitals do not count."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=_LIKENESS)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: "; did you mean 'properties'?", or nothing."""
    match = closest(name, known)
    return "" if match is None else f"; did you mean {match!r}?"
