"""The values of keywords, read or refused: validating against a metaschema takes longer than all the rest."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn, TypeVar

from ..errors import InvalidConstraint, Loss, UnsupportedConstraint, shown
from .documents import Subschema, escape

MAX_DIGITS = 400
"""Of a bound or a factor: a range of digits is written with the square of their number. The largest float has 309."""
_TYPES = frozenset("array boolean integer null number object string".split())
_T = TypeVar("_T")


def malformed(sub: Subschema, keyword: str, expected: str) -> NoReturn:
    """Raise InvalidConstraint, with the actual and the expected value."""
    got, pointer = sub.keywords[keyword], f"{sub.pointer}/{escape(keyword)}"
    raise InvalidConstraint(
        f"not a valid JSON Schema, at {pointer}: expected {expected}, got {shown(got)}", pointers=[pointer]
    )


def is_number(value: Any) -> bool:
    """Whether a JSON value is a number: true and false are none."""
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def count(sub: Subschema, keyword: str) -> int | None:
    """A number of characters, items or members; 2.0 is 2."""
    value = _value(sub, keyword)
    if value is None:
        return None
    if not is_number(value) or value < 0 or value != int(value):
        malformed(sub, keyword, "a whole number of 0 or more")
    return int(value)


def number(sub: Subschema, keyword: str) -> Decimal | None:
    """A number, exactly; raises UnsupportedConstraint where it has more than ``MAX_DIGITS`` digits."""
    value = _value(sub, keyword)
    if value is None:
        return None
    if not is_number(value):
        malformed(sub, keyword, "a number")
    exact = Decimal(value)
    if exact.adjusted() >= MAX_DIGITS:
        loss = Loss.within(sub.pointer, keyword, f"has more than {MAX_DIGITS} digits")
        raise UnsupportedConstraint("no backend takes numbers this long", (loss,))
    return exact


def string(sub: Subschema, keyword: str) -> str | None:
    """A string."""
    return _of_type(sub, keyword, str, "a string")


def flag(sub: Subschema, keyword: str) -> bool:
    """True or false."""
    return _of_type(sub, keyword, bool, "true or false") or False


def names(sub: Subschema, keyword: str) -> tuple[str, ...]:
    """A list of property names, each once."""
    value = _of_type(sub, keyword, list, "a list of strings") or ()
    if not all(isinstance(name, str) for name in value):
        malformed(sub, keyword, "a list of strings")
    return tuple(dict.fromkeys(value))


def schemas(sub: Subschema, keyword: str) -> list[Any]:
    """A list of schemas, one at least."""
    value = _of_type(sub, keyword, list, "a list of schemas, one at least")
    if value == []:
        malformed(sub, keyword, "a list of schemas, one at least")
    return value or []


def mapping(sub: Subschema, keyword: str) -> dict[str, Any]:
    """An object whose values are schemas (or whatever the keyword holds)."""
    return _of_type(sub, keyword, dict, "an object") or {}


def types(sub: Subschema) -> tuple[str, ...] | None:
    """The names of types a schema allows, each once; None for all."""
    value = _value(sub, "type")
    if value is None:
        return None
    listed = value if isinstance(value, list) else [value]
    if not listed or not all([isinstance(name, str) and name in _TYPES for name in listed]):
        malformed(sub, "type", f"one of {', '.join(sorted(_TYPES))}, or a list of those")
    return tuple(dict.fromkeys(listed))


def _of_type(sub: Subschema, keyword: str, kind: type[_T], expected: str) -> _T | None:
    value = _value(sub, keyword)
    if value is not None and not isinstance(value, kind):
        malformed(sub, keyword, expected)
    return value


def _value(sub: Subschema, keyword: str) -> Any:
    if keyword not in sub.keywords:
        return None
    value = sub.keywords[keyword]
    if value is None:
        malformed(sub, keyword, "something else than null")
    return value
