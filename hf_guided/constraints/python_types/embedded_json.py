"""JSON inside a string, as a pattern: the texts of a JSON Schema without white space between their tokens."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from ...regex import UnsupportedRegex, json_spelling, parse_search, to_pattern
from ..date_time_patterns import FULL_DATE
from ..host_patterns import IPV4, IPV6
from . import digits, numeric
from .digits import either

JsonSchemaDict = dict[str, Any]

_STRING = '"(?:[^\\u0000-\\u001f"\\\\]|\\\\["\\\\nt])*"'
_NUMBER = r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,16})?"
_SCALAR = f"(?:null|true|false|{_NUMBER}|{_STRING})"
_FORMATS = {"date": FULL_DATE, "ipv4": IPV4, "ipv6": IPV6}  # those of types; others have patterns already
_MAX_NESTING = 2  # of a type in itself
_MAX_LENGTH = 200_000  # of the pattern


class NotPlain(ValueError):
    """No plain pattern expresses it."""


class Endless(NotPlain):
    """A type that contains itself more deeply than patterns are written out."""


def pattern(schema: JsonSchemaDict | bool, resolve: Callable[[str], JsonSchemaDict]) -> str:
    """The JSON texts of a schema from Pydantic's generator.

    Args:
        schema: of the inner value.
        resolve: gives the schema that a ``$ref`` names.

    Raises:
        NotPlain: it holds itself, or something that no plain pattern says.
    """
    json_schema = _Writer(resolve).value(schema, ())
    if len(json_schema) > _MAX_LENGTH:
        raise NotPlain(f"its pattern has more than {_MAX_LENGTH} characters")
    return json_schema


class _Writer:
    def __init__(self, resolve: Callable[[str], JsonSchemaDict]):
        self._resolve = resolve

    def value(self, schema: JsonSchemaDict | bool, above: tuple[str, ...]) -> str:
        if schema is True or schema == {}:
            return _any(2)
        if schema is False:
            raise NotPlain("a value that cannot be")
        assert isinstance(schema, dict)
        if "$ref" in schema:
            if above.count(schema["$ref"]) >= _MAX_NESTING:
                raise Endless("a type that holds itself")
            return self.value(self._resolve(schema["$ref"]), (*above, schema["$ref"]))
        if "allOf" in schema:
            return self._met(schema, above)
        if "anyOf" in schema:
            alternatives = [
                alternative for part in schema["anyOf"] if (alternative := self._ending(part, above)) is not None
            ]
            if not alternatives:
                raise Endless("a type that holds itself")
            return either(*alternatives)
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return either(*(digits.literal(json.dumps(part, ensure_ascii=False)) for part in values))
        kind = schema.get("type")
        if isinstance(kind, list):
            return either(*(self.value({**schema, "type": part}, above) for part in kind))
        if kind == "array":
            return self._array(schema, above)
        if kind == "object":
            return self._object(schema, above)
        return _SCALARS[kind](schema) if kind in _SCALARS else _any(2)

    def _ending(self, schema: JsonSchemaDict | bool, above: tuple[str, ...]) -> str | None:
        """As ``value``; None where it would not end."""
        try:
            return self.value(schema, above)
        except Endless:
            return None

    def _met(self, schema: JsonSchemaDict, above: tuple[str, ...]) -> str:
        """Bounds and lengths beside others; two patterns for one string have no plain pattern."""
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        for part in schema["allOf"]:
            if merged.keys() & part.keys() - {"type"}:
                raise NotPlain("two conditions on one value")
            merged.update(part)
        return self.value(merged, above)

    def _array(self, schema: JsonSchemaDict, above: tuple[str, ...]) -> str:
        if schema.get("uniqueItems"):
            raise NotPlain("items that have to differ")
        first = [self.value(part, above) for part in schema.get("prefixItems", ())]
        low, high = schema.get("minItems", 0), schema.get("maxItems")
        if low < len(first):
            alternatives = [
                first[:count] for count in range(low, min(len(first), high if high is not None else len(first)))
            ]
            listed = [f"\\[{','.join(alternative)}\\]" for alternative in alternatives]
        else:
            listed = []
        if high is not None and high < len(first):
            return either(*listed, f"\\[{','.join(first[:high])}\\]")
        more = high is None or high > len(first)
        rest = self._ending(schema.get("items", True), above) if more else ""
        if rest is None:
            if low > len(first):
                raise Endless("a type that holds itself")
            rest = ""
        return either(
            *listed, f"\\[{_run(first, rest, max(0, low - len(first)), None if high is None else high - len(first))}\\]"
        )

    def _object(self, schema: JsonSchemaDict, above: tuple[str, ...]) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if properties:
            members = []
            for name, part in properties.items():
                value = None if part is False else self._ending(part, above)
                if value is not None:
                    written = digits.literal(json.dumps(name, ensure_ascii=False))
                    members.append((f"{written}:{value}", name in required))
                elif name in required:
                    raise Endless("a type that holds itself")
            return f"\\{{{_members(members)}\\}}"
        if schema.get("additionalProperties") is False:
            return r"\{\}"
        if schema.get("minProperties", 0) > 1:
            raise NotPlain("a number of keys that have to differ")
        names = self.value({"type": "string", **schema.get("propertyNames", {})}, above)
        value = self._ending(schema.get("additionalProperties", True), above)
        if value is None:
            return r"\{\}"
        member = f"{names}:{value}"
        return f"\\{{{_run([], member, schema.get('minProperties', 0), schema.get('maxProperties'))}\\}}"


def _any(depth: int) -> str:
    """Any value, with this number of levels."""
    if not depth:
        return _SCALAR
    inner = _any(depth - 1)
    return f"(?:{_SCALAR}|\\[{_run([], inner, 0, None)}\\]|\\{{{_run([], f'{_STRING}:{inner}', 0, None)}\\}})"


def _run(first: list[str], item: str, low: int, high: int | None) -> str:
    """These items, then ``low`` to ``high`` others, with commas between."""
    head = ",".join(first)
    if not item or high == 0:
        return head
    if head:
        return f"{head}(?:,{item}){{{low},{'' if high is None else high}}}"
    more = f"{item}(?:,{item}){{{max(low - 1, 0)},{'' if high is None else high - 1}}}"
    return more if low else f"(?:{more})?"


def _members(members: list[tuple[str, bool]]) -> str:
    """Members in order; those that are not required may be left out, with their commas."""
    required = next((index for index, (_, needed) in enumerate(members) if needed), None)
    if required is not None:
        before = "".join(f"(?:{member},)?" for member, _ in members[:required])
        after = "".join(f",{member}" if needed else f"(?:,{member})?" for member, needed in members[required + 1 :])
        return before + members[required][0] + after
    alternatives = []
    for index, (member, _) in enumerate(members):
        alternatives.append(member + "".join(f"(?:,{other})?" for other, _ in members[index + 1 :]))
    return f"(?:{'|'.join(alternatives)})?" if alternatives else ""


def _integer(schema: JsonSchemaDict) -> str:
    if "multipleOf" in schema:
        raise NotPlain("multiples of a number")
    low, high = schema.get("minimum"), schema.get("maximum")
    if "exclusiveMinimum" in schema:
        low = max(schema["exclusiveMinimum"] + 1, schema["exclusiveMinimum"] + 1 if low is None else low)
    if "exclusiveMaximum" in schema:
        high = min(schema["exclusiveMaximum"] - 1, schema["exclusiveMaximum"] - 1 if high is None else high)
    return digits.whole(low, high)


def _number(schema: JsonSchemaDict) -> str:
    step = schema.get("multipleOf", 1e-6)
    places = round(-_log10(step))
    names = {"minimum": "ge", "maximum": "le"}
    bounds = {names[name]: Fraction(schema[name]) for name in names if name in schema and abs(schema[name]) < 1e300}
    return numeric.text_between(bounds, places) if bounds or "multipleOf" in schema else _NUMBER


def _log10(step: float) -> float:
    written = repr(step)
    for places in range(16):
        if float(f"1e-{places}") == step:
            return float(-places)
    raise NotPlain(f"multiples of {written}")


def _string(schema: JsonSchemaDict) -> str:
    low, high = schema.get("minLength", 0), schema.get("maxLength")
    source, name = schema.get("pattern"), schema.get("format")
    if source is None and name in _FORMATS:
        source = f"^{_FORMATS[name]}$"
    if source is None and name is None:
        if not low and high is None:
            return _STRING
        return f'{_STRING[:-2]}{{{low},{"" if high is None else high}}}"'
    if source is None or low or high is not None:
        raise NotPlain(f"strings of the format {name!r}, or with a length and a pattern")
    try:
        return f'"(?:{to_pattern(json_spelling(parse_search(source)))})"'
    except UnsupportedRegex as error:
        raise NotPlain(f"the pattern {source!r}: {error}") from None


_SCALARS: dict[str, Callable[[JsonSchemaDict], str]] = {
    "null": lambda _: "null",
    "boolean": lambda _: "(?:true|false)",
    "integer": _integer,
    "number": _number,
    "string": _string,
}
