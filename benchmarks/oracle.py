"""Is a text valid against a JSON Schema? Decided by ``json`` and ``jsonschema``, with exact numbers and formats."""

from __future__ import annotations

import decimal
import json
import re
from decimal import Decimal
from typing import Any

from jsonschema import Draft3Validator, Draft4Validator, Draft202012Validator, validators
from jsonschema_specifications import REGISTRY as METASCHEMAS

from hf_guided.schema.formats import FORMATS

# Of the newest draft, whatever the schema's: older ones know fewer formats, and all together have draft 3's `time`.
FORMAT_CHECKER = Draft202012Validator.FORMAT_CHECKER


class Undecided(Exception):
    """The oracle cannot tell: a pattern that Python does not read, a number beyond its reach."""


class Oracle:
    """Judges texts against one schema, which is read as draft 2020-12 without "$schema".

    Numbers are decimals in schema and text alike: as floats, 19.99 would be no multiple of 0.01.
    """

    def __init__(self, schema: Any):
        missing = FORMATS.keys() - FORMAT_CHECKER.checkers.keys()
        if missing:
            raise RuntimeError(f"jsonschema cannot check {sorted(missing)}; install jsonschema[format-nongpl]")
        kind = validators.validator_for(schema, default=Draft202012Validator)
        if kind not in (Draft3Validator, Draft4Validator):  # to these 1.0 is no integer
            types = kind.TYPE_CHECKER.redefine("integer", _is_integer)
            kind = validators.extend(kind, type_checker=types)
        self._validator = kind(_loads(json.dumps(schema)), registry=METASCHEMAS, format_checker=FORMAT_CHECKER)

    def problem(self, text: bytes) -> str:
        """Problem of a text; "" if it is valid. Raises Undecided."""
        try:
            value = _loads(text.decode())
        except ValueError as error:
            return f"no JSON: {error}"
        except (decimal.DecimalException, RecursionError) as error:  # an exponent of 20 digits
            raise Undecided(f"{type(error).__name__}: {error}") from error
        try:
            # A remainder has as many digits as the quotient.
            with decimal.localcontext(decimal.Context(prec=20_000, Emax=10**9, Emin=-(10**9))):
                error = next(self._validator.iter_errors(value), None)
        except (decimal.DecimalException, re.error, RecursionError) as error:
            raise Undecided(f"{type(error).__name__}: {error}") from error
        return "" if error is None else f"{error.json_path}: {error.message}"


def is_instance(schema: Any, text: str | bytes) -> bool:
    """Whether a text is JSON and ``jsonschema`` accepts its value, as most programs call it: floats, and no formats."""
    try:
        return Draft202012Validator(schema).is_valid(json.loads(text))
    except ValueError:
        return False


def _loads(text: str) -> Any:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(text, parse_float=Decimal, parse_int=_integer, parse_constant=refuse)


def _integer(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < 4000 else Decimal(digits)  # Python converts no longer ones


def _is_integer(checker: Any, value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.as_tuple().exponent >= 0 or value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool)
