"""The plain forms people already have, and the formats of server requests, as constraints.

In both, one dict stands for one constraint; an error names the path inside the request. A schema is enforced whether or
not ``strict`` is said: ``"strict": false`` opens the objects that say nothing about additional properties, and allows
any object where the schema cannot be enforced. The same holds for the arguments of a tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InvalidConstraint, reading, shown
from . import json_text
from .base import replaced
from .json_schema_keywords import ASSERTIONS, KNOWN
from .suggestions import did_you_mean, expect_keys, got
from .values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag

EXPECTED = (
    "a constraint (hg.JsonSchema, hg.JsonObject, hg.Regex, hg.Choice, hg.Grammar, hg.StructuralTag, hg.ToolCalls), "
    "a Pydantic model, dataclass, TypedDict or other type, a JSON Schema as dict or JSON text, "
    "a response_format dict, a compiled re.Pattern, a list of strings, or None for a free row"
)
_SCHEMA_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_UNSET = (None, False)  # options of other libraries that are written out but unused
TEXT_FORMAT = "text.format"
"""The path of a format in /v1/responses."""


def _any_object(value: Any) -> JsonObject:
    if value not in (True, {}):
        raise InvalidConstraint(f"expected True, got {shown(value)}; for options use hg.JsonObject(whitespace=...)")
    return JsonObject()


KINDS: dict[str, Callable[[Any], Constraint]] = {
    "json": JsonSchema,
    "regex": Regex,
    "choice": Choice,
    "grammar": Grammar,
    "json_object": _any_object,
    "structural_tag": StructuralTag,
}
"""The keys of a dict that holds one constraint, with what makes it of their value."""


@reading("constraint", InvalidConstraint)
def coerce(value: Any) -> Constraint | None:
    """One row's constraint from any form.

    Args:
        value: a constraint, a Python type, a JSON Schema (dict or JSON text), a response_format dict, one of
            ``{"json" | "regex" | "choice" | "grammar" | "json_object" | "structural_tag": ...}``, an `re.Pattern`,
            a list of strings (always one Choice), or None. An Enum or Literal is a type, so it gives JSON text with
            quotes; for the bare words use Choice.

    Returns:
        None for a free row.

    Raises:
        InvalidConstraint: none of these, malformed, or two kinds at once.
    """
    if value is None or isinstance(value, Constraint):
        return value
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Mapping):
        return _from_dict(dict(value))
    if isinstance(value, re.Pattern):
        return Regex(value)
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return Choice(value)
        raise InvalidConstraint(
            "expected the constraint of one row, got a list that holds more than strings; "
            "for a Choice all its options must be strings, and a list of constraints (one per prompt) cannot be nested"
        )
    if type(value).__module__.partition(".")[0] == "xgrammar":
        return StructuralTag(value)
    if isinstance(value, (bool, int, float, bytes, set, frozenset)):
        raise InvalidConstraint(f"expected {EXPECTED}; got {shown(value)} of type {type(value).__name__}")
    return JsonSchema(value)  # a type; its error tells instances and functions from types


@reading("constraint", InvalidConstraint)
def coerce_batch(value: Any) -> Constraint | None | list[Constraint | None]:
    """One constraint for all rows, or one per prompt.

    Args:
        value: anything ``coerce`` takes, for all rows; or a list or tuple of such, one per prompt. A list of strings
            is one Choice for all rows, so a list per prompt holds no bare strings.

    Returns:
        One constraint (None: all rows are free), or a list with one entry per prompt.

    Raises:
        InvalidConstraint: as ``coerce``, naming the prompt; or an empty list.
    """
    if not isinstance(value, (list, tuple)) or (value and all(isinstance(item, str) for item in value)):
        return coerce(value)
    if not value:
        raise InvalidConstraint("expected the options of a Choice or one constraint per prompt, got an empty list")
    for index, item in enumerate(value):
        if isinstance(item, str):
            raise InvalidConstraint(
                f"a list of constraints, one per prompt, holds the bare string {shown(item)} for prompt {index}; "
                "wrap it: hg.Choice([...]) for options, hg.JsonSchema(...) for JSON Schema text"
            )
    constraints = []
    for index, item in enumerate(value):
        try:
            constraints.append(coerce(item))
        except InvalidConstraint as error:
            raise InvalidConstraint(f"constraint of prompt {index}: {error}") from error
    return constraints


def _from_text(text: str) -> Constraint | None:
    try:
        value = json_text.loads(text, "JSON Schema")
    except InvalidConstraint as error:
        if text.lstrip()[:1] == "{":
            raise
        raise InvalidConstraint(
            f"expected JSON Schema text, got the string {shown(text)}, which is not JSON; "
            "say what it is: hg.Regex(...), hg.Choice([...]) or hg.Grammar(...); a prompt comes before the constraint"
        ) from error
    if not isinstance(value, dict):
        raise InvalidConstraint(
            f"expected the text of a JSON Schema object, got {shown(text)}; "
            "use hg.Choice([...]) for options, hg.JsonSchema(...) for a bool schema"
        )
    return _from_dict(value)


def _from_dict(value: dict[Any, Any]) -> Constraint | None:
    type_ = value.get("type")
    if isinstance(type_, str) and type_ not in _SCHEMA_TYPES:
        if type_ not in _TYPES:
            raise InvalidConstraint(
                f"type: expected a type of JSON Schema ({', '.join(_SCHEMA_TYPES)}) "
                f"or of response_format ({', '.join(_TYPES)}), got {type_!r}"
            )
        # A response_format may hold the key it is named after: {"type": "regex", "regex": "a+"}.
        _expect_one([f'"type": {type_!r}', *(kind for kind in _kinds(value) if kind != type_)])
        return from_response_format(value)
    kinds = _kinds(value)
    keywords = [key for key in value if key in KNOWN]
    if kinds:
        _expect_one([*kinds, *keywords[:1]])
        return _from_kind(kinds[0], value)
    if value and not keywords:
        raise InvalidConstraint(
            f"unknown kind {', '.join(map(repr, value))}; expected a JSON Schema, a response_format, "
            f"or one of {', '.join(KINDS)}; wrap a JSON Schema with only unknown keywords: hg.JsonSchema({{...}})"
            + did_you_mean(str(next(iter(value))), ("type", *KINDS, *ASSERTIONS))
        )
    return JsonSchema(value)


def _kinds(value: dict[Any, Any]) -> list[str]:
    return [kind for kind in KINDS if value.get(kind) not in _UNSET]


def _expect_one(kinds: list[str]) -> None:
    if len(kinds) > 1:
        raise InvalidConstraint(
            f"expected one kind of constraint, got {' and '.join(kinds)}; "
            "leave one out, or wrap a JSON Schema that really has such keys: hg.JsonSchema({...})"
        )


def _from_kind(kind: str, value: dict[Any, Any]) -> Constraint:
    beside = [key for key, content in value.items() if key != kind and content not in _UNSET]
    if beside:
        raise InvalidConstraint(
            f"unknown option {beside[0]!r} beside {kind!r}; for options use the classes, e.g. hg.JsonSchema"
        )
    return made(KINDS[kind], value[kind], kind)


def from_response_format(response_format: Mapping[str, Any], path: str = "response_format") -> Constraint | None:
    """The constraint of a response_format, or of a ``text.format`` of /v1/responses.

    Args:
        response_format: ``{"type": "json_schema", "json_schema": {"name": ..., "schema": ...}}``, the same flat as
            /v1/responses has it, ``json_object``, ``text``; and what open servers added: ``regex``, ``choice``,
            ``grammar``, ``structural_tag``, ``json`` (TGI), and ``json_object`` with a ``schema`` (llama.cpp).
        path: how errors name it.

    Returns:
        None for ``{"type": "text"}``: no constraint.

    Raises:
        InvalidConstraint: an unknown type or key, or something missing.
    """
    if not isinstance(response_format, Mapping):
        raise InvalidConstraint(f"{path}: expected an object, got {shown(response_format)}")
    kind = response_format.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise InvalidConstraint(f"{path}.type: expected one of {', '.join(_TYPES)}, {got(kind)}")
    return _TYPES[kind](response_format, path)


def _json_schema(fmt: Mapping[str, Any], path: str) -> Constraint:
    inner: Any = fmt
    known = ["name", "description", "schema", "strict"]
    given = {key for key in fmt if fmt[key] is not None}
    # Flat, as /v1/responses has it. Where neither form is there, the path tells which one is expected.
    is_flat = "json_schema" not in given and ("schema" in given or path == TEXT_FORMAT)
    if not is_flat:
        inner = fmt.get("json_schema")
        if not isinstance(inner, Mapping):
            raise InvalidConstraint(f'{path}.json_schema: expected {{"name": ..., "schema": {{...}}}}, {got(inner)}')
        expect_keys(fmt, ("type", "json_schema"), path)
        path += ".json_schema"
    expect_keys(inner, ["type", *known] if is_flat else known, path)
    name, strict = inner.get("name"), inner.get("strict")
    if inner.get("schema") is None:
        raise InvalidConstraint(f"{path}.schema: expected a JSON Schema object, but it is missing")
    if not isinstance(name, str) or not name:
        raise InvalidConstraint(f"{path}.name: expected a name for the schema, {got(name)}")
    if strict not in (None, True, False):
        raise InvalidConstraint(f"{path}.strict: expected true or false, got {shown(strict)}")
    return made(_lenient if strict is False else _schema, inner.get("schema"), f"{path}.schema")


def _json_object(fmt: Mapping[str, Any], path: str) -> Constraint:
    if fmt.get("schema") is not None or fmt.get("value") is not None:
        return _json(fmt, path)
    expect_keys(fmt, ("type", "schema", "value"), path)
    return JsonObject()


def _schema(value: Any) -> JsonSchema:
    if not isinstance(value, (Mapping, bool)):
        raise InvalidConstraint(f"expected a JSON Schema object, got {value!r}")
    return JsonSchema(value)


def _lenient(value: Any) -> Constraint:
    return replaced(_schema(value), extra="allow", lenient=True)


def made(make: Callable[[Any], Constraint], value: Any, path: str) -> Constraint:
    """Make a constraint; errors begin with the path to its value."""
    try:
        return make(value)
    except InvalidConstraint as error:
        raise InvalidConstraint(f"{path}: {error}", pointers=error.pointers) from None


def _field(make: Callable[[Any], Constraint], *keys: str) -> Callable[[Mapping[str, Any], str], Constraint]:
    """A type that holds its whole content under one of some keys."""

    def convert(fmt: Mapping[str, Any], path: str) -> Constraint:
        expect_keys(fmt, ("type", *keys), path)
        key = next((key for key in keys if fmt.get(key) is not None), None)
        if key is None:
            raise InvalidConstraint(f"{path}.{keys[0]}: expected a value, but it is missing")
        return made(make, fmt[key], f"{path}.{key}")

    return convert


_json = _field(_schema, "schema", "value")
_TYPES: dict[str, Callable[[Mapping[str, Any], str], Constraint | None]] = {
    "json_schema": _json_schema,
    "json_object": _json_object,
    "text": lambda fmt, path: expect_keys(fmt, ("type",), path),
    "regex": _field(Regex, "regex", "pattern", "value"),
    "choice": _field(Choice, "choice", "options", "value"),
    "grammar": _field(Grammar, "grammar", "value"),
    "json": _json,
    "structural_tag": lambda fmt, path: made(StructuralTag, fmt, path),
}
"""The values of ``type``; none of these is a type of JSON Schema, so the two kinds of dict cannot be confused."""
