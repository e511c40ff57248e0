"""Unknown names: the error, and the name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from ..errors import InvalidConstraint, shown

_LIKENESS = 0.8  # smallest ratio; "requred" has 0.93 to "required", "maxlen" has 0.8 to "maxLength"


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like this one, if there is one that a typing mistake can explain; capitals do not count."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_lower, n=1, cutoff=_LIKENESS)
    return by_lower[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message: "; did you mean 'properties'?", or nothing."""
    match = closest(name, known)
    return "" if match is None else f"; did you mean {match!r}?"


def got(value: Any) -> str:
    """The end of a message that says what was expected: the value, or that there is none."""
    return "but it is missing" if value is None else f"got {shown(value)}"


def expect_keys(value: Mapping[str, Any], known: Sequence[str], path: str) -> None:
    """Refuse keys that would change nothing; those that are null say nothing."""
    for key in value:
        if key not in known and value[key] is not None:
            near = did_you_mean(str(key), known)
            raise InvalidConstraint(f"{path}: expected the keys {', '.join(known)}, got {shown(key)}{near}")
