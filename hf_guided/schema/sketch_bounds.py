"""What bounds a string, number, array or object of a schema, in words short enough for a prompt."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any


def json_of(value: Any) -> str:
    """A JSON value whose numbers may be ``Decimal``, as text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json_of(key)}: {json_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(json_of, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def bounds_of(schema: dict[str, Any], kind: str) -> list[str]:
    """What a schema's keywords say of values of one JSON type, each in a few words.

    Args:
        schema: the schema; bounds that are schemas themselves are left out.
        kind: the name of the JSON type.
    """
    if kind in ("number", "integer"):
        return _number(schema)
    if kind == "string":
        words = _between(schema.get("minLength"), schema.get("maxLength"), "chars")
        if "pattern" in schema:
            words.append(f"/{schema['pattern']}/")
        return words + [
            schema[keyword] for keyword in ("format", "contentEncoding") if isinstance(schema.get(keyword), str)
        ]
    if kind == "array":
        distinct = ["without duplicates"] * (schema.get("uniqueItems") is True)
        return _between(schema.get("minItems"), schema.get("maxItems"), "items") + distinct
    if kind == "object":
        return _between(schema.get("minProperties"), schema.get("maxProperties"), "keys")
    return []


def _number(schema: dict[str, Any]) -> list[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, bool):  # draft 4: it says how `minimum` is meant
        low, above = (None, low) if above else (low, None)
    if isinstance(below, bool):
        high, below = (None, high) if below else (high, None)
    words = _between(low, high, "")
    signs = (">", above), ("<", below), ("multiple of", schema.get("multipleOf"))
    return words + [f"{sign} {json_of(value)}" for sign, value in signs if value is not None]


def _between(low: Any, high: Any, what: str) -> list[str]:
    unit = f" {what}" if what else ""
    if low is None and high is None:
        return []
    if low is None:
        return [f"<= {json_of(high)}{unit}"]
    if high is None:
        return [f">= {json_of(low)}{unit}"]
    if low == high:
        return [f"{json_of(low)}{unit}" if what else f"= {json_of(low)}"]
    return [f"{json_of(low)}..{json_of(high)}{unit}"]
