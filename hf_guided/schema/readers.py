"""The values of keywords, read or refused: validating against a metaschema takes longer than all the rest."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, NoReturn

from ..errors import InvalidConstraint, Loss, UnsupportedConstraint, shown
from .documents import Subschema
from .subschemas import escape

MAX_DIGITS = 400
"""Of a bound or a factor: a range of digits is written with the square of their number. The largest float has 309."""


def malformed(sub: Subschema, keyword: str, expected: str) -> NoReturn:
    """Report the actual and the expected value.

    Raises:
        InvalidConstraint: always.
    """
    assert isinstance(sub.schema, dict)
    got, pointer = sub.schema[keyword], f"{sub.pointer}/{escape(keyword)}"
    raise InvalidConstraint(
        f"not a valid JSON Schema, at {pointer}: expected {expected}, got {shown(got)}", pointers=[pointer]
    )


def count(sub: Subschema, keyword: str, default: int) -> int:
    """A number of characters, items or members; 2.0 is 2."""
    value = _value(sub, keyword)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)) or value < 0 or value != int(value):
        malformed(sub, keyword, "a whole number of 0 or more")
    return int(value)


def optional_count(sub: Subschema, keyword: str) -> int | None:
    """As ``count``; None where the keyword is not there."""
    return None if _value(sub, keyword) is None else count(sub, keyword, 0)


def number(sub: Subschema, keyword: str) -> Decimal | None:
    """A number, exactly.

    Raises:
        UnsupportedConstraint: it has more than ``MAX_DIGITS`` digits.
    """
    value = _value(sub, keyword)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        malformed(sub, keyword, "a number")
    exact = Decimal(value)
    if exact.adjusted() >= MAX_DIGITS:
        loss = Loss(f"{sub.pointer}/{escape(keyword)}", keyword, f"has more than {MAX_DIGITS} digits")
        raise UnsupportedConstraint("no backend takes numbers this long", (loss,))
    return exact


def string(sub: Subschema, keyword: str) -> str | None:
    """A string."""
    value = _value(sub, keyword)
    if value is not None and not isinstance(value, str):
        malformed(sub, keyword, "a string")
    return value


def flag(sub: Subschema, keyword: str) -> bool:
    """True or false."""
    value = _value(sub, keyword)
    if value is not None and not isinstance(value, bool):
        malformed(sub, keyword, "true or false")
    return bool(value)


def names(sub: Subschema, keyword: str) -> tuple[str, ...]:
    """A list of property names; draft 3 had `required: true`, which means nothing today."""
    value = _value(sub, keyword)
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        malformed(sub, keyword, "a list of strings")
    return tuple(dict.fromkeys(value))


def schemas(sub: Subschema, keyword: str) -> list[Any]:
    """A list of schemas, one at least."""
    value = _value(sub, keyword)
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        malformed(sub, keyword, "a list of schemas, one at least")
    return value


def mapping(sub: Subschema, keyword: str) -> dict[str, Any]:
    """An object whose values are schemas (or whatever the keyword holds)."""
    value = _value(sub, keyword)
    if value is None:
        return {}
    if not isinstance(value, dict):
        malformed(sub, keyword, "an object")
    return value


def types(sub: Subschema) -> tuple[str, ...] | None:
    """The names of types a schema allows, each once; None for all."""
    value = _value(sub, "type")
    if value is None:
        return None
    if type(value) is str and value in _TYPES:
        return (value,)
    listed = value if isinstance(value, list) else [value]
    if not listed or not all([isinstance(name, str) and name in _TYPES for name in listed]):
        malformed(sub, "type", f"one of {', '.join(sorted(_TYPES))}, or a list of those")
    return tuple(dict.fromkeys(listed))


_TYPES = frozenset("array boolean integer null number object string".split())


def _value(sub: Subschema, keyword: str) -> Any:
    assert isinstance(sub.schema, dict)
    if keyword not in sub.schema:
        return None
    value = sub.schema[keyword]
    if value is None:
        malformed(sub, keyword, "something else than null")
    return value
