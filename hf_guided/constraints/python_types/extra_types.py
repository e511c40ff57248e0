"""Codes of pydantic-extra-types (countries, currencies, languages ...): those that the package itself takes."""

from __future__ import annotations

import json
import string
from functools import lru_cache
from itertools import product
from typing import Any

from pydantic_core import SchemaValidator, ValidationError

from .scalars import Core

# Which letters the package wants is in the code of each class; these are all the ways in which codes are written.
_ALPHABETS = (string.ascii_uppercase, string.ascii_lowercase, string.digits)
_LENGTHS = (2, 3)


def listed(schema: Core) -> list[str] | None:
    """The codes of two or three letters or digits that a type takes; None if it takes no such code, or nearly all.

    Args:
        schema: a core schema of a string, with the package's own function.
    """
    function = schema["function"]["function"]
    inner = schema.get("schema", {})
    if inner.get("type") != "str":
        return None
    found = _codes(function, json.dumps({name: value for name, value in inner.items() if name != "metadata"}))
    return list(found) or None


@lru_cache(maxsize=64)
def _codes(function: Any, inner: str) -> tuple[str, ...]:
    schema: Any = {
        "type": "function-after",
        "function": {"type": "with-info", "function": function},
        "schema": json.loads(inner),
    }
    takes = SchemaValidator(schema).validate_json
    codes = ("".join(letters) for n in _LENGTHS for alphabet in _ALPHABETS for letters in product(alphabet, repeat=n))
    found = []
    for code in codes:
        try:
            takes(json.dumps(code))
        except ValidationError:
            continue
        found.append(code)
    return tuple(found)
