"""Pydantic's types without children, as JSON Schema that says all that they check."""

from __future__ import annotations

import enum
import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import SchemaError, SchemaValidator, ValidationError, to_jsonable_python

from . import networks, numeric, temporal, text
from .digits import whole
from .notes import narrower, shown

Core = dict[str, Any]
Found = dict[str, Any]

_STRING = ("type", "minLength", "maxLength", "pattern")
_HUGE = 10**300  # bounds that only keep infinity out


class Scalars(GenerateJsonSchema):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def str_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        without_pattern: Any = {name: value for name, value in schema.items() if name != "pattern"}
        strips = schema.get("strip_whitespace", self._config.str_strip_whitespace)
        found = text.string(schema, super().str_schema(without_pattern), strips=bool(strips))
        return (
            shown(found, **{name: value for name, value in found.items() if name in _STRING})
            if "allOf" in found
            else found
        )

    def bytes_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        mode = self._config.val_json_bytes
        found = text.raw_bytes(schema, mode)
        return found if mode == "utf8" else shown(found, type="string", format=mode)

    def float_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return _refusing(numeric.floating, schema, finite=not self._allows_infinity(schema, default=True))

    def _allows_infinity(self, schema: Core, *, default: bool) -> bool:
        allows = schema.get("allow_inf_nan")
        if allows is None:
            allows = self._config.config_dict.get("allow_inf_nan", default)
        return bool(allows)

    def decimal_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(numeric.decimal, schema), type="number", **_bounds(schema))

    def fraction_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(numeric.fraction, schema), type="string", format="fraction")

    def complex_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(numeric.complex_number(schema), type="string", format="complex")

    def date_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.date, schema), type="string", format="date")

    def time_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.time, schema), type="string", format="time")

    def datetime_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.datetime, schema), type="string", format="date-time")

    def timedelta_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.timedelta, schema), type="string", format="duration")

    def uuid_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(text.uuid(schema), type="string", format=f"uuid{schema.get('version') or ''}")

    def url_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(networks.url, schema), type="string", format=_schemes(schema))

    def multi_host_url_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return shown(_refusing(networks.multi_host_url, schema), type="string", format=_schemes(schema))

    def literal_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        found = super().literal_schema(schema)
        return _listed(schema, found, [*found.get("enum", [found.get("const")])])

    def enum_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        found = super().enum_schema(schema)
        listed = _listed(schema, found, [value for member in schema["members"] for value in _spellings(member.value)])
        return narrower(listed, "Flag") if issubclass(schema["cls"], enum.Flag) else listed


def _schemes(schema: Core) -> str:
    """A name for the URLs of a type."""
    return "uri" if not schema.get("allowed_schemes") else f"{'|'.join(schema['allowed_schemes'])} uri"


def _bounds(schema: Core) -> Found:
    """The bounds of a decimal as keywords."""
    names = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
    return {keyword: float(schema[name]) for name, keyword in names.items() if name in schema}


def _refusing(make: Any, schema: Core, **options: Any) -> Found:
    """What ``make`` returns; its ValueError as the one that makes Pydantic leave a member of a union out."""
    try:
        return make(schema, **options)  # type: ignore[no-any-return]
    except ValueError as error:
        raise PydanticInvalidForJsonSchema(f"{schema['type']}: {error}; widen the bounds, or leave them out") from None


def _spellings(value: Any) -> list[Any]:
    """JSON values that may give an Enum's value back."""
    found = [to_jsonable_python(value, fallback=repr)]
    if not isinstance(value, (str, bytes, int, float)) and hasattr(value, "__float__"):
        found.append(float(value))
    return found


def _listed(schema: Core, found: Found, values: list[Any]) -> Found:
    """The values that Pydantic itself takes back."""
    kept = [value for value in values if takes(schema, json.dumps(value))]
    if not kept:
        raise PydanticInvalidForJsonSchema(f"no JSON text gives any of the values {values} back; list strings or ints")
    found = {name: value for name, value in found.items() if name not in ("enum", "const", "type")}
    found.update({"const": kept[0]} if len(kept) == 1 else {"enum": kept})
    return found if len(kept) == len(values) else narrower(found, "Enum")


def takes(schema: Core, text: str) -> bool:
    """Whether Pydantic validates a JSON text against a core schema that refers to no other."""
    bare: Any = {name: value for name, value in schema.items() if name not in ("ref", "metadata", "serialization")}
    try:
        SchemaValidator(bare).validate_json(text)
    except (ValidationError, SchemaError, TypeError):  # the last: a check that the value has no operator for
        return False
    return True


def key_names(found: Found) -> Found | None:
    """Numbers or booleans written as keys, as a schema of strings; None for what is neither."""
    kind = found.get("type")
    if kind == "boolean":
        return {"type": "string", "pattern": "^(?:true|false)$"}
    if kind not in ("integer", "number"):
        return None
    step = Fraction(repr(found.get("multipleOf", 0)))
    if kind == "integer" or (step and step.denominator == 1):
        return _whole_keys(found, step)
    names = {"minimum": "ge", "maximum": "le"}
    bounds = {names[name]: Fraction(found[name]) for name in names if name in found and abs(found[name]) < _HUGE}
    pattern = numeric.text_between(bounds, 6)
    if not pattern:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    names_found: Found = {"type": "string", "pattern": f"^{pattern}$"}
    if not step:
        return names_found
    multiples = numeric.multiples(Decimal(step.numerator) / step.denominator)
    if multiples is None:
        raise PydanticInvalidForJsonSchema(_NO_MULTIPLES.format(found["multipleOf"]))
    return {**names_found, "allOf": [{"pattern": f"^{multiples}$"}]}


_MOST_KEYS = 1000  # that are listed where no pattern tells multiples
_NO_MULTIPLES = (
    "keys that are multiples of {} are not told by their digits; bound them (up to 1000 are listed), use a step that "
    "divides 1000, or a list of pairs"
)


def _whole_keys(found: Found, step: Fraction) -> Found:
    """Whole numbers as keys; multiples by their last digits, or listed."""
    low, high = found.get("minimum"), found.get("maximum")
    if "exclusiveMinimum" in found:
        low = max(math.floor(found["exclusiveMinimum"]) + 1, -math.inf if low is None else low)
    if "exclusiveMaximum" in found:
        high = min(math.ceil(found["exclusiveMaximum"]) - 1, math.inf if high is None else high)
    low = None if low is None or abs(low) > _HUGE else math.ceil(low)
    high = None if high is None or abs(high) > _HUGE else math.floor(high)
    pattern = whole(low, high)
    if not pattern:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    names: Found = {"type": "string", "pattern": f"^{pattern}$"}
    if step in (0, 1):
        return names
    size = next((size for size in (1, 2, 3) if 10**size % step == 0), None)
    if size is not None:
        ends = [str(end).zfill(size) for end in range(0, 10**size, int(step))]
        short = [str(end) for end in range(0, 10**size, int(step))]
        return {**names, "allOf": [{"pattern": f"^-?(?:[0-9]*(?:{'|'.join(ends)})|{'|'.join(short)})$"}]}
    if low is None or high is None or (high - low) // step > _MOST_KEYS:
        raise PydanticInvalidForJsonSchema(_NO_MULTIPLES.format(step))
    first = math.ceil(low / step) * int(step)
    listed = [str(number) for number in range(first, high + 1, int(step))]
    if not listed:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    return {"type": "string", "enum": listed}
