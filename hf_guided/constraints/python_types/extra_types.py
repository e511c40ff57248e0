"""Codes of pydantic-extra-types (countries, currencies, languages ...): those that the package itself takes."""

from __future__ import annotations

import json
import string
from functools import lru_cache
from itertools import product
from typing import Any

from pydantic_core import SchemaValidator, ValidationError

from .scalars import Core

# The code of each class in the package decides the letters; these are all the spellings of codes.
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
    codes = _codes(function, json.dumps({name: value for name, value in inner.items() if name != "metadata"}))
    return list(codes) or None


@lru_cache(maxsize=64)
def _codes(function: Any, inner: str) -> tuple[str, ...]:
    schema: Any = {
        "type": "function-after",
        "function": {"type": "with-info", "function": function},
        "schema": json.loads(inner),
    }
    takes = SchemaValidator(schema).validate_json
    candidates = (
        "".join(letters) for n in _LENGTHS for alphabet in _ALPHABETS for letters in product(alphabet, repeat=n)
    )
    codes = []
    for code in candidates:
        try:
            takes(json.dumps(code))
        except ValidationError:
            continue
        codes.append(code)
    return tuple(codes)
