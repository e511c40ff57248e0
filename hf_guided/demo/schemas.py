"""The JSON Schemas of the three kinds of record the demo model writes.

Property order is output order, every property is required and nothing else is allowed, so a finished record equals
`json.dumps(record, ensure_ascii=False)` byte for byte when the values are right.
"""

from __future__ import annotations

from typing import Any

CURRENCIES: tuple[str, ...] = ("EUR", "USD", "GBP", "CHF", "JPY")
ROOMS: tuple[str, ...] = ("single", "double", "suite")


def _record(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1, "maxLength": 40}
_DATE = {"type": "string", "format": "date"}

SCHEMAS: dict[str, dict[str, Any]] = {
    "invoice": _record(
        {
            "number": {"type": "string", "pattern": "^INV-[0-9]{4}$"},
            "seller": dict(_TEXT),
            "date": dict(_DATE),
            "total": {"type": "number", "minimum": 0, "maximum": 10000},
            "currency": {"enum": list(CURRENCIES)},
            "paid": {"type": "boolean"},
        }
    ),
    "booking": _record(
        {
            "guest": dict(_TEXT),
            "city": dict(_TEXT),
            "check_in": dict(_DATE),
            "nights": {"type": "integer", "minimum": 1, "maximum": 14},
            "people": {"type": "integer", "minimum": 1, "maximum": 6},
            "room": {"enum": list(ROOMS)},
            "breakfast": {"type": "boolean"},
        }
    ),
    "person": _record(
        {
            "name": dict(_TEXT),
            "email": {"type": "string", "pattern": "^[a-z]{1,20}@[a-z]{1,20}[.]example$"},
            "age": {"type": "integer", "minimum": 18, "maximum": 79},
            "city": dict(_TEXT),
            "job": dict(_TEXT),
            "since": {"type": "integer", "minimum": 1990, "maximum": 2029},
            "remote": {"type": "boolean"},
        }
    ),
}
