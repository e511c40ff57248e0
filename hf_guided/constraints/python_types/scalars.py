"""Pydantic's types without children, as JSON Schema with all their checks."""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Iterable
from contextlib import suppress
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
JsonSchemaDict = dict[str, Any]

_STRING = ("type", "minLength", "maxLength", "pattern")
_HUGE = 10**300  # bounds that only keep infinity out


class Scalars(GenerateJsonSchema):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def str_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        without_pattern: Any = {name: value for name, value in schema.items() if name != "pattern"}
        strips = schema.get("strip_whitespace", self._config.str_strip_whitespace)
        json_schema = text.string(schema, super().str_schema(without_pattern), strips=bool(strips))
        return (
            shown(json_schema, **{name: value for name, value in json_schema.items() if name in _STRING})
            if "allOf" in json_schema
            else json_schema
        )

    def bytes_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        mode = self._config.val_json_bytes
        json_schema = text.raw_bytes(schema, mode)
        return json_schema if mode == "utf8" else shown(json_schema, type="string", format=mode)

    def float_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return _refusing(numeric.floating, schema, finite=not self._allows_infinity(schema, default=True))

    def _allows_infinity(self, schema: Core, *, default: bool) -> bool:
        allows = schema.get("allow_inf_nan")
        if allows is None:
            allows = self._config.config_dict.get("allow_inf_nan", default)
        return bool(allows)

    def decimal_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(numeric.decimal, schema), type="number", **_bounds(schema))

    def fraction_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(numeric.fraction, schema), type="string", format="fraction")

    def complex_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(numeric.complex_number(schema), type="string", format="complex")

    def date_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.date, schema), type="string", format="date")

    def time_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.time, schema), type="string", format="time")

    def datetime_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.datetime, schema), type="string", format="date-time")

    def timedelta_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(temporal.timedelta, schema), type="string", format="duration")

    def uuid_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(text.uuid(schema), type="string", format=f"uuid{schema.get('version') or ''}")

    def url_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(networks.url, schema), type="string", format=_schemes(schema))

    def multi_host_url_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return shown(_refusing(networks.multi_host_url, schema), type="string", format=_schemes(schema))

    def literal_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        json_schema = super().literal_schema(schema)
        return _listed(schema, json_schema, [*json_schema.get("enum", [json_schema.get("const")])])

    def enum_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        json_schema = super().enum_schema(schema)
        listed = _listed(
            schema, json_schema, [value for member in schema["members"] for value in _spellings(member.value)]
        )
        return narrower(listed, "Flag") if issubclass(schema["cls"], enum.Flag) else listed


def _schemes(schema: Core) -> str:
    """A name for the URLs of a type."""
    return "uri" if not schema.get("allowed_schemes") else f"{'|'.join(schema['allowed_schemes'])} uri"


def _bounds(schema: Core) -> JsonSchemaDict:
    """The bounds of a decimal as keywords."""
    names = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
    return {keyword: float(schema[name]) for name, keyword in names.items() if name in schema}


def _refusing(make: Any, schema: Core, **options: Any) -> JsonSchemaDict:
    """The result of ``make``; its ValueError becomes the error by which Pydantic leaves out a member of a union."""
    try:
        return make(schema, **options)  # type: ignore[no-any-return]
    except ValueError as error:
        raise PydanticInvalidForJsonSchema(f"{schema['type']}: {error}; widen the bounds, or leave them out") from None


def _spellings(value: Any) -> list[Any]:
    """JSON values that may give an Enum's value back."""
    json_schema = [to_jsonable_python(value, fallback=repr)]
    if not isinstance(value, (str, bytes, int, float)) and hasattr(value, "__float__"):
        json_schema.append(float(value))
    return json_schema


def _listed(schema: Core, json_schema: JsonSchemaDict, values: list[Any]) -> JsonSchemaDict:
    """The values that Pydantic itself takes back."""
    allowed = taken(schema, values)
    if not allowed:
        raise PydanticInvalidForJsonSchema(f"no JSON text gives any of the values {values} back; list strings or ints")
    json_schema = {name: value for name, value in json_schema.items() if name not in ("enum", "const", "type")}
    json_schema.update({"const": allowed[0]} if len(allowed) == 1 else {"enum": allowed})
    return json_schema if len(allowed) == len(values) else narrower(json_schema, "Enum")


def taken(schema: Core, values: Iterable[Any]) -> list[Any]:
    """The values whose JSON texts Pydantic validates against a core schema that refers to no other."""
    bare: Any = {name: value for name, value in schema.items() if name not in ("ref", "metadata", "serialization")}
    try:
        validator = SchemaValidator(bare)
    except SchemaError:
        return []
    found = []
    for value in values:
        with suppress(ValidationError, SchemaError, TypeError):  # the last: a check that the value has no operator for
            validator.validate_json(json.dumps(value))
            found.append(value)
    return found


def key_names(json_schema: JsonSchemaDict) -> JsonSchemaDict | None:
    """Numbers or booleans written as keys, as a schema of strings; None for other types."""
    kind = json_schema.get("type")
    if kind == "boolean":
        return {"type": "string", "pattern": "^(?:true|false)$"}
    if kind not in ("integer", "number"):
        return None
    step = Fraction(repr(json_schema.get("multipleOf", 0)))
    if kind == "integer" or (step and step.denominator == 1):
        return _whole_keys(json_schema, step)
    names = {"minimum": "ge", "maximum": "le"}
    bounds = {
        names[name]: Fraction(json_schema[name])
        for name in names
        if name in json_schema and abs(json_schema[name]) < _HUGE
    }
    pattern = numeric.text_between(bounds, 6)
    if not pattern:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    names_schema: JsonSchemaDict = {"type": "string", "pattern": f"^{pattern}$"}
    if not step:
        return names_schema
    multiples = numeric.multiples(Decimal(step.numerator) / step.denominator)
    if multiples is None:
        raise PydanticInvalidForJsonSchema(_NO_MULTIPLES.format(json_schema["multipleOf"]))
    return {**names_schema, "allOf": [{"pattern": f"^{multiples}$"}]}


_MOST_KEYS = 1000  # that are listed where no pattern describes the multiples
_NO_MULTIPLES = (
    "keys that are multiples of {} are not decided by their digits; bound them (up to 1000 are listed), use a step "
    "that divides 1000, or a list of pairs"
)


def _whole_keys(json_schema: JsonSchemaDict, step: Fraction) -> JsonSchemaDict:
    """Whole numbers as keys; multiples by their last digits, or listed."""
    low, high = json_schema.get("minimum"), json_schema.get("maximum")
    if "exclusiveMinimum" in json_schema:
        low = max(math.floor(json_schema["exclusiveMinimum"]) + 1, -math.inf if low is None else low)
    if "exclusiveMaximum" in json_schema:
        high = min(math.ceil(json_schema["exclusiveMaximum"]) - 1, math.inf if high is None else high)
    low = None if low is None or abs(low) > _HUGE else math.ceil(low)
    high = None if high is None or abs(high) > _HUGE else math.floor(high)
    pattern = whole(low, high)
    if not pattern:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    names: JsonSchemaDict = {"type": "string", "pattern": f"^{pattern}$"}
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
