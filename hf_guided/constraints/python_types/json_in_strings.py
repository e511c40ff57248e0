"""Values that JSON holds in strings: the keys of objects, and JSON inside a string, without white space between tokens.

A key is a number, a boolean, a date ... in Python, but always a string in JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from ...regex import UnsupportedRegex, json_spelling, parse_search, to_pattern
from ..format_patterns import FULL_DATE, IPV4, IPV6
from .digits import either, literal, whole
from .notes import Core, JsonSchemaDict, anchored, narrower, shown
from .numeric import multiples, text_between

Resolve = Callable[[str], JsonSchemaDict | None]  # gives the schema that a ``$ref`` names
_MOST_KEYS = 1000  # number of keys that are listed where no pattern describes the multiples
_NO_MULTIPLES = (
    "keys that are multiples of {} are not decided by their digits; bound them (up to 1000 are listed), use a step "
    "that divides 1000, or a list of pairs"
)
_HUGE = 10**300  # bounds that only keep infinity out


def key_names(keys: Core, json_schema: JsonSchemaDict, resolve: Resolve) -> JsonSchemaDict | None:
    """The names of members, by both schemas of their keys, as a schema of strings; None if there are none."""
    json_schema = {name: value for name, value in json_schema.items() if name not in ("title", "description")}
    if "$ref" in json_schema:
        target = resolve(json_schema["$ref"])
        return None if target is None else key_names(keys, target, resolve)
    if "enum" in json_schema or "const" in json_schema:
        values = json_schema.get("enum", [json_schema.get("const")])
        plain = [value for value in values if isinstance(value, (str, int, float))]
        names = [value if isinstance(value, str) else json.dumps(value) for value in plain]
        listed = [name for name in names if _takes_key(keys, name)]
        return {"enum": listed} if listed else None
    if "anyOf" in json_schema:
        return _key_of_any(keys, json_schema, resolve)
    kind = json_schema.get("type")
    if kind == "string":
        return json_schema
    if kind == "boolean":
        described = anchored("(?:true|false)")
    elif kind in ("integer", "number"):
        described = _number_keys(json_schema)
    else:
        return None
    return shown(narrower(described, "keys"), type="string", format=kind)


def _takes_key(keys: Core, name: str) -> bool:
    bare: Any = {name: value for name, value in keys.items() if name not in ("ref", "metadata", "serialization")}
    try:
        SchemaValidator(core_schema.dict_schema(bare)).validate_json(json.dumps({name: None}))
    except ValidationError:
        return False
    except SchemaError:  # the schema refers to others
        return True
    return True


def _key_of_any(keys: Core, json_schema: JsonSchemaDict, resolve: Resolve) -> JsonSchemaDict | None:
    """See ``key_names``: with alternatives; those that no pattern describes are left out where there are others."""
    alternatives: list[JsonSchemaDict] = []
    refused = None
    for alternative in json_schema["anyOf"]:
        try:
            names = key_names(keys, alternative, resolve)
        except PydanticInvalidForJsonSchema as error:
            refused = error
            continue
        if names is not None and names not in alternatives:
            alternatives.append(names)
    if not alternatives:
        if refused is not None:
            raise refused
        return None
    rest = {name: value for name, value in json_schema.items() if name != "anyOf"}
    names = {**alternatives[0], **rest} if len(alternatives) == 1 else {**rest, "anyOf": alternatives}
    return names if refused is None else narrower(names, "keys")


def _number_keys(json_schema: JsonSchemaDict) -> JsonSchemaDict:
    """Numbers as keys; multiples by their last digits or their fractions, or listed."""
    step = Fraction(repr(json_schema.get("multipleOf", 0)))
    is_whole = json_schema["type"] == "integer" or (step and step.denominator == 1)
    low, high = _whole_bounds(json_schema)
    pattern = whole(low, high) if is_whole else text_between(_bounds(json_schema), 6)
    if not pattern:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    names = anchored(pattern)
    if not step or (is_whole and step == 1):
        return names
    if not is_whole:
        by_fraction = multiples(Decimal(step.numerator) / step.denominator)
        if by_fraction is None:
            raise PydanticInvalidForJsonSchema(_NO_MULTIPLES.format(json_schema["multipleOf"]))
        return {**names, "allOf": [{"pattern": f"^{by_fraction}$"}]}
    size = next((size for size in (1, 2, 3) if 10**size % step == 0), None)
    if size is not None:
        short = [str(end) for end in range(0, 10**size, int(step))]
        ends = [end.zfill(size) for end in short]
        return {**names, "allOf": [{"pattern": f"^-?(?:[0-9]*(?:{'|'.join(ends)})|{'|'.join(short)})$"}]}
    if low is None or high is None or (high - low) // step > _MOST_KEYS:
        raise PydanticInvalidForJsonSchema(_NO_MULTIPLES.format(step))
    listed = [str(number) for number in range(math.ceil(low / step) * int(step), high + 1, int(step))]
    if not listed:
        raise PydanticInvalidForJsonSchema("no key is inside the bounds; widen them")
    return {"type": "string", "enum": listed}


def _whole_bounds(json_schema: JsonSchemaDict) -> tuple[int | None, int | None]:
    """The least and the greatest integer inside the bounds of a schema; None is no bound."""
    low, high = json_schema.get("minimum", -math.inf), json_schema.get("maximum", math.inf)
    if "exclusiveMinimum" in json_schema:
        low = max(math.floor(json_schema["exclusiveMinimum"]) + 1, low)
    if "exclusiveMaximum" in json_schema:
        high = min(math.ceil(json_schema["exclusiveMaximum"]) - 1, high)
    return None if abs(low) > _HUGE else math.ceil(low), None if abs(high) > _HUGE else math.floor(high)


def _bounds(json_schema: JsonSchemaDict) -> Core:
    names = {"minimum": "ge", "maximum": "le"}
    given = {name: json_schema[name] for name in names if name in json_schema}
    return {names[name]: Fraction(bound) for name, bound in given.items() if abs(bound) < _HUGE}


_STRING = '"(?:[^\\u0000-\\u001f"\\\\]|\\\\["\\\\nt])*"'
_NUMBER = r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,16})?"
_SCALAR = f"(?:null|true|false|{_NUMBER}|{_STRING})"
_FORMATS = {"date": FULL_DATE, "ipv4": IPV4, "ipv6": IPV6}  # formats of types; others have patterns already
_MAX_NESTING = 2  # maximum nesting of a type in itself
_MAX_LENGTH = 200_000  # maximum number of characters of the pattern


class NotPlain(ValueError):
    """No plain pattern expresses it."""


class _Endless(NotPlain):
    """A type that contains itself more deeply than patterns are written out."""

    def __init__(self) -> None:
        super().__init__("a type that holds itself")


def json_pattern(schema: JsonSchemaDict | bool, resolve: Resolve) -> str:
    """The JSON texts of a schema from Pydantic's generator.

    Raises:
        NotPlain: it holds itself, or something that no plain pattern says.
    """
    pattern = _Writer(resolve).value(schema, ())
    if len(pattern) > _MAX_LENGTH:
        raise NotPlain(f"its pattern has more than {_MAX_LENGTH} characters")
    return pattern


class _Writer:
    def __init__(self, resolve: Resolve):
        self._resolve = resolve

    def value(self, schema: JsonSchemaDict | bool, above: tuple[str, ...]) -> str:
        if schema is True or schema == {}:
            return _any(2)
        if schema is False:
            raise NotPlain("a value that cannot be")
        assert isinstance(schema, dict)
        if "$ref" in schema:
            target = self._resolve(schema["$ref"])
            if target is None or above.count(schema["$ref"]) >= _MAX_NESTING:
                raise _Endless
            return self.value(target, (*above, schema["$ref"]))
        if "allOf" in schema:
            return self._met(schema, above)
        if "anyOf" in schema:
            ending = [self._ending(part, above) for part in schema["anyOf"]]
            if ending.count(None) == len(ending):
                raise _Endless
            return either(*(alternative for alternative in ending if alternative is not None))
        if "enum" in schema or "const" in schema:
            values = schema.get("enum", [schema.get("const")])
            return either(*(literal(json.dumps(part, ensure_ascii=False)) for part in values))
        kind = schema.get("type")
        if isinstance(kind, list):
            return either(*(self.value({**schema, "type": part}, above) for part in kind))
        if kind == "array":
            return self._array(schema, above)
        if kind == "object":
            return self._object(schema, above)
        return _SCALARS[kind](schema) if kind in _SCALARS else _any(2)

    def _ending(self, schema: JsonSchemaDict | bool, above: tuple[str, ...]) -> str | None:
        """See ``value``; None where it would not end."""
        try:
            return self.value(schema, above)
        except _Endless:
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
        most = len(first) if high is None else min(len(first), high)
        listed = [f"\\[{','.join(first[:count])}\\]" for count in range(low, most)]
        if high is not None and high < len(first):
            return either(*listed, f"\\[{','.join(first[:high])}\\]")
        rest = "" if high == len(first) else self._ending(schema.get("items", True), above)
        if rest is None and low > len(first):
            raise _Endless
        more = _run(first, rest or "", max(0, low - len(first)), None if high is None else high - len(first))
        return either(*listed, f"\\[{more}\\]")

    def _object(self, schema: JsonSchemaDict, above: tuple[str, ...]) -> str:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if properties:
            members = []
            for name, part in properties.items():
                value = None if part is False else self._ending(part, above)
                if value is not None:
                    written = literal(json.dumps(name, ensure_ascii=False))
                    members.append((f"{written}:{value}", name in required))
                elif name in required:
                    raise _Endless
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
    """Write a pattern of any value, with this number of levels."""
    if not depth:
        return _SCALAR
    inner = _any(depth - 1)
    return f"(?:{_SCALAR}|\\[{_run([], inner, 0, None)}\\]|\\{{{_run([], f'{_STRING}:{inner}', 0, None)}\\}})"


def _run(first: list[str], item: str, low: int, high: int | None) -> str:
    """Write some items, then ``low`` to ``high`` others, with commas between."""
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
    return whole(*_whole_bounds(schema))


def _number(schema: JsonSchemaDict) -> str:
    step = schema.get("multipleOf", 1e-6)
    places = next((places for places in range(16) if float(f"1e-{places}") == step), None)
    if places is None:
        raise NotPlain(f"multiples of {step!r}")
    bounds = _bounds(schema)
    return text_between(bounds, places) if bounds or "multipleOf" in schema else _NUMBER


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


_SCALARS: dict[Any, Callable[[JsonSchemaDict], str]] = {
    "null": lambda _: "null",
    "boolean": lambda _: "(?:true|false)",
    "integer": _integer,
    "number": _number,
    "string": _string,
}
