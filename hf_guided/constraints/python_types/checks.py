"""Pydantic's own checks of a finished value, moved to the types where they constrain its text.

Where a type has no such option itself, Pydantic checks the value by a function of its own after everything else. Such
a check is moved inwards, through what keeps the value, to a type that has the option.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from .scalars import Core

_NUMBERS = frozenset(("int", "float", "decimal", "fraction"))
_SIZED = frozenset(("str", "list", "tuple", "dict"))  # of which JSON has as many parts as the value
_LENGTHS = frozenset(("min_length", "max_length"))
_BOUNDS = frozenset(("gt", "ge", "lt", "le"))
_TAKERS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_LENGTHS, _SIZED | {"bytes", "set", "frozenset"}),
    **dict.fromkeys(_BOUNDS, _NUMBERS | {"date", "time", "datetime", "timedelta"}),
    "multiple_of": _NUMBERS | {"timedelta"},
    "max_digits": frozenset(("decimal",)),
    "decimal_places": frozenset(("decimal",)),
    "allow_inf_nan": frozenset(("float", "decimal", "int")),
}
_OPERANDS: dict[str, tuple[type, ...]] = {
    "int": (int, float),
    "float": (int, float),
    "decimal": (int, float, Decimal),
    "fraction": (int, float, Fraction),
}
_HUGEST = 10**307  # of the integers that are known to fit into a double: a round one


def options(function: Any) -> Core | None:
    """The options of core schemas that a Pydantic function checks; None for other functions."""
    bare = function.func if isinstance(function, functools.partial) else function
    if getattr(bare, "__module__", "") != "pydantic._internal._validators":
        return None
    if bare.__name__ == "forbid_inf_nan_check":
        return {"allow_inf_nan": False}
    keywords: Core = getattr(function, "keywords", {})
    return dict(keywords) if keywords and keywords.keys() <= _TAKERS.keys() else None


def moved(schema: Core, checked: Core, definitions: Mapping[str, Core]) -> Core | None:
    """The core schema with the options on the types inside that have them; None where this is not the same check.

    Args:
        schema: of the value that is checked.
        checked: see ``options``.
        definitions: core schemas by the names that others refer to them by.
    """
    for name, value in checked.items():
        inner = _moved(schema, name, value, definitions)
        if inner is None:
            return None
        schema = inner
    return schema


def _moved(schema: Core, name: str, value: Any, definitions: Mapping[str, Core]) -> Core | None:
    kind = schema["type"]
    if kind in _TAKERS[name]:
        return _tightened(schema, name, value)
    if kind in ("url", "multi-host-url") and name in _LENGTHS:
        return _merged(schema, f"value_{name}", value)
    if kind == "union":
        return _moved_into_union(schema, name, value, definitions)
    if kind == "definition-ref":
        target = definitions.get(schema["schema_ref"])
        without_ref = None if target is None else {key: part for key, part in target.items() if key != "ref"}
        return None if without_ref is None else _moved(without_ref, name, value, definitions)
    if kind == "function-after":
        function = schema["function"]["function"]
        if _is_byte_size(function):
            return _byte_size(name, value)
        keeps = options(function) is not None or (name in _LENGTHS and holds_a_secret(function))
        if not keeps:
            return None
    elif kind == "function-wrap" and schema["schema"]["type"] not in ("url", "multi-host-url"):
        return None
    parts = {
        "function-after": ("schema",),
        "function-wrap": ("schema",),
        "json": ("schema",),
        "default": ("schema",),
        "json-or-python": ("json_schema",),
        "lax-or-strict": ("lax_schema", "strict_schema"),
    }.get(kind, ())
    inner = {part: _moved(schema[part], name, value, definitions) for part in parts if part in schema}
    return None if not inner or None in inner.values() else {**schema, **inner}


def _moved_into_union(schema: Core, name: str, value: Any, definitions: Mapping[str, Core]) -> Core | None:
    """Into all members, where a text means values that pass equally, whichever member takes it."""
    members = [choice[0] if isinstance(choice, tuple) else choice for choice in schema["choices"]]
    same_checks = _SIZED if name in _LENGTHS else _NUMBERS
    if not all(member["type"] in same_checks for member in members):
        return None
    inner = [_moved(member, name, value, definitions) for member in members]
    return None if None in inner else {**schema, "choices": inner}


def _tightened(schema: Core, name: str, value: Any) -> Core | None:
    kind = schema["type"]
    if kind == "int" and name == "allow_inf_nan":  # no double holds greater integers, so that their check fails
        return _merged(_merged(schema, "ge", -_HUGEST), "le", _HUGEST)
    if kind in _OPERANDS and (name in _BOUNDS or name == "multiple_of"):
        if not isinstance(value, _OPERANDS[kind]):
            return None
        if isinstance(value, float) and not math.isfinite(value):
            return None
    if name == "multiple_of" and kind in ("int", "float"):
        exact = Fraction(value)
        if kind == "float" and exact != Fraction(repr(value)):
            return None  # the remainder of doubles is rarely 0 then
        if kind == "int":
            if isinstance(value, float):  # the remainder is that of doubles, so that greater integers are rounded
                schema = _merged(_merged(schema, "ge", -(2**53)), "le", 2**53)
            value = exact.numerator
    if name == "multiple_of":
        if kind == "decimal" and isinstance(value, float):
            return None
        before = schema.get(name)
        if before is not None and before != value:
            if kind != "int" or not isinstance(before, int):
                return None
            value = math.lcm(before, value)
        return {**schema, name: value}
    return _merged(schema, name, value)


def _merged(schema: Core, name: str, value: Any) -> Core:
    """With the narrower of both values."""
    before = schema.get(name)
    if before is not None:
        is_lower = name in ("gt", "ge", "min_length", "value_min_length")
        value = max(before, value) if is_lower else min(before, value)
    return {**schema, name: value}


def _is_byte_size(function: Any) -> bool:
    from pydantic import ByteSize

    return getattr(function, "__func__", None) is ByteSize._validate.__func__  # type: ignore[attr-defined]


def _byte_size(name: str, value: Any) -> Core | None:
    """As a number of bytes; with a unit the number would not be in the text."""
    if name == "multiple_of":
        return _tightened({"type": "int", "ge": 0}, name, value)
    if name not in _BOUNDS or not isinstance(value, (int, float, Decimal)):
        return None
    whole = math.ceil(value) if name in ("ge", "lt") else math.floor(value)
    return _merged({"type": "int", "ge": 0}, name, whole)


def holds_a_secret(function: Any) -> bool:
    """Whether a function is a class that holds a string, or bytes, of the same length."""
    from pydantic.types import SecretBytes, SecretStr

    return isinstance(function, type) and issubclass(function, (SecretBytes, SecretStr))
