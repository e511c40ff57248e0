"""The JSON texts of a value that the canonical spelling leaves out: in words, for the audit."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..constraints.json_style import MAX_DIGITS
from .formats import USUAL
from .ranges import multiples

IN_GENERAL = (
    "other spellings of a number than Python's (1E2, 1.50, -0), escapes in strings that json.dumps does not write, and "
    f"integers of more than {MAX_DIGITS} digits that no bound, enum or const requires"
)
_POINT = "integers with a point (1.0)"
_LONG = f"integers of more than {MAX_DIGITS} digits"


def left_out(schema: Mapping[str, Any], keyword: str) -> str:
    """The texts it leaves out for one keyword; "" if ``json.dumps`` writes all of them."""
    value = schema[keyword]
    if keyword == "type":
        return _of_types(schema, value if isinstance(value, list) else [value])
    if keyword in ("enum", "const"):
        values = value if keyword == "enum" and isinstance(value, list) else [value]
        return _POINT if any(type(value) is int for value in values) else ""
    if keyword == "format" and value in USUAL:
        return "lower-case t and z, and more than 9 digits of a fraction of a second"
    if keyword == "multipleOf" and _is_number(value) and value > 0 and multiples(Decimal(str(value))) is None:
        return "multiples with an exponent, and with llguidance those beyond 9.2e18"
    return ""


def _of_types(schema: Mapping[str, Any], types: list[Any]) -> str:
    reasons = [_POINT] if "integer" in types and "number" not in types else []
    low = any(_is_number(schema.get(bound)) for bound in ("minimum", "exclusiveMinimum"))
    high = any(_is_number(schema.get(bound)) for bound in ("maximum", "exclusiveMaximum"))
    listed = "enum" in schema or "const" in schema
    if (
        {"integer", "number"} & {value for value in types if isinstance(value, str)}
        and not listed
        and not (low and high)
    ):
        reasons.append(_LONG)
    return " and ".join(reasons)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
