"""The formats of server requests, as constraints: OpenAI's response_format and text.format.

Pure dict work. An error names the path inside the request. A schema is enforced whether or not ``strict`` is said:
``"strict": false`` opens the objects that say nothing about additional properties, and allows any object where the
schema cannot be enforced. The same holds for the arguments of a tool.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InvalidConstraint, shown
from .base import replaced
from .suggestions import expect_keys, got
from .values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag

TEXT_FORMAT = "text.format"
"""The path of a format in /v1/responses."""


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
    if not isinstance(kind, str) or kind not in TYPES:
        raise InvalidConstraint(f"{path}.type: expected one of {', '.join(TYPES)}, {got(kind)}")
    return TYPES[kind](response_format, path)


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
TYPES: dict[str, Callable[[Mapping[str, Any], str], Constraint | None]] = {
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
