"""Schemas and finished values as the library `jsonschema` judges them, with three things mended.

Numbers are exact: as a float, 19.99 is no multiple of 0.01. Patterns that only ECMA-262 reads are spelled out for
Python's `re`. IRIs are checked by their pattern: `jsonschema` leaves them to `rfc3987_syntax`, which compiles 38
grammars when it is imported (two seconds of CPU time in each process), so that package is no dependency.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import Any

from jsonschema import FormatChecker
from jsonschema.exceptions import SchemaError
from jsonschema.validators import Draft4Validator, Draft7Validator, Draft202012Validator, validator_for
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from ..errors import InvalidConstraint
from ..regex import UnsupportedRegex, parse_search, to_pattern, tree_cache
from .format_patterns import IRI, IRI_REFERENCE
from .json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP

_HOLDS = HOLDS_SCHEMA | HOLDS_SCHEMA_LIST
_CODE_POINT = re.compile(r"\\u\{([0-9a-f]+)\}")  # as plain patterns write one; Python wants eight digits


@lru_cache(maxsize=64)
def check_schema(schema_json: str) -> None:
    """Validate a schema against its metaschema.

    Raises:
        InvalidConstraint: with the JSON pointer of the first thing that is wrong.
    """
    schema = json.loads(schema_json)
    if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
        raise InvalidConstraint(f"not a valid JSON Schema, at /$schema: expected a URI, got {schema['$schema']!r}")
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        # Many schemas that do not name their draft were written for an older one than the default.
        older = (Draft7Validator, Draft4Validator) if "$schema" not in schema_json else ()
        if any(draft(draft.META_SCHEMA).is_valid(schema) for draft in older):
            return
        pointer = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
        raise InvalidConstraint(f"not a valid JSON Schema, at {pointer}: {error.message}") from None
    except RecursionError:
        raise InvalidConstraint("the JSON Schema is nested too deeply; flatten it with $defs and $ref") from None


def validator(schema_json: str, registry: Mapping[str, Any]) -> Any:
    """The validator of a schema, for values that ``with_exact_numbers`` has read; the registry has documents by URI.

    Raises:
        InvalidConstraint: Python reads a pattern in no spelling.
    """
    schema = with_python_patterns(with_exact_numbers(schema_json))
    known = validator_for(schema, default=Draft202012Validator)
    documents = [
        (uri, DRAFT202012.create_resource(with_python_patterns(document))) for uri, document in registry.items()
    ]
    return known(schema, registry=Registry().with_resources(documents), format_checker=format_checker(known))


def with_exact_numbers(text: str) -> Any:
    """The value of JSON text, whose numbers with a point are exact: ints, or Decimals (of which 1.0 is no integer)."""
    return json.loads(text, parse_float=_exact_number)


def _exact_number(digits: str) -> int | Decimal:
    number = Decimal(digits)
    return int(number) if number == number.to_integral_value() and number.adjusted() < 400 else number


@lru_cache(maxsize=8)
def format_checker(validator: Any) -> FormatChecker:
    """The checker of formats for a validator class of `jsonschema`."""
    checker = FormatChecker()
    ours = {"iri": (_matches(IRI), ()), "iri-reference": (_matches(IRI_REFERENCE), ())}
    checker.checkers = {**ours, **validator.FORMAT_CHECKER.checkers}
    return checker


def _matches(pattern: str) -> Callable[[object], bool]:
    compiled = re.compile(pattern)
    return lambda value: not isinstance(value, str) or compiled.fullmatch(value) is not None


def with_python_patterns(schema: Any) -> Any:
    r"""A copy of a schema in which patterns that only ECMA-262 reads (``\p{L}``, ``[\w-.]``) are spelled out.

    Raises:
        InvalidConstraint: Python reads a pattern in no spelling.
    """
    if isinstance(schema, list):
        return [*map(with_python_patterns, schema)]
    return {name: _spelled(name, value) for name, value in schema.items()} if isinstance(schema, dict) else schema


def _spelled(keyword: str, value: Any) -> Any:
    if keyword == "pattern" and isinstance(value, str):
        return _python_pattern(value)
    if keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
        is_pattern = keyword == "patternProperties"
        return {
            _python_pattern(name) if is_pattern else name: with_python_patterns(member)
            for name, member in value.items()
        }
    return with_python_patterns(value) if keyword in _HOLDS else value


@tree_cache(maxsize=512)
def _python_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
        return pattern
    except re.error as error:
        try:
            plain = to_pattern(parse_search(pattern))
        except (re.error, UnsupportedRegex) as refused:
            raise InvalidConstraint(
                f"the pattern {pattern!r} cannot be checked in a finished text: Python does not read it ({error}), "
                f"and it cannot be spelled out ({refused}); write it so that Python reads it"
            ) from None
    spelled = _CODE_POINT.sub(lambda match: f"\\U{int(match[1], 16):08x}", plain)
    return rf"\A(?:{spelled})\Z"
