"""Pydantic's generator of JSON Schemas, extended by the checks of its validation."""

from __future__ import annotations

from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from ..json_schema_keywords import ANNOTATIONS
from .functions import Functions, name_of
from .notes import TypeNote, code_notes, narrower, take_notes, take_shown
from .scalars import Core, JsonSchemaDict

# Set by Pydantic where it checks a finished value; said of its text by `function_after_schema`.
_CHECKS = frozenset("gt ge lt le multiple_of minLength maxLength minItems maxItems minProperties maxProperties".split())
# Their JSON Schemas say less than their core schemas.
_SAY_LESS = (
    "pydantic._internal._generate_schema.",
    "pydantic.networks.",
    "pydantic.types.",
    "pydantic.color.",
    "pydantic_extra_types.color.",
)
# Where a type's JSON Schema has a name, users add examples and the like to it, rather than redefine it.
_NAMED = frozenset("model dataclass typed-dict enum definitions definition-ref".split())
_OVERRIDES = ("pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra", "pydantic_js_updates")


class ExactJsonSchema(Functions):
    """For one type; see Pydantic's GenerateJsonSchema."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.notes: tuple[TypeNote, ...] = ()
        self.described: JsonSchemaDict = {}
        self._skipped = 0

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaDict:
        """See GenerateJsonSchema; ``notes`` and ``described`` are there afterwards."""
        json_schema = super().generate(schema, mode)
        self.require_tags(json_schema)
        self.described = take_shown(json_schema)
        self.notes = take_notes(json_schema)
        return json_schema

    def generate_inner(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema; what users declare for a type's JSON holds in addition to the type's checks."""
        schema = _without_shorthand(schema)
        json_schema = super().generate_inner(schema)
        bare = _without_overrides(schema)
        return json_schema if bare is schema else _joined(json_schema, super().generate_inner(bare))

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        raise PydanticInvalidForJsonSchema(
            f"{error_info} has no JSON; use a type that JSON can hold (str, int, a model ...), or give the field a "
            "default and keep it out of the JSON with SkipJsonSchema"
        )

    def nullable_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        try:
            return super().nullable_schema(schema)
        except PydanticInvalidForJsonSchema:
            return narrower({"type": "null"}, "union")

    def lax_or_strict_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        strict = schema.get("strict", self._config.strict)
        return self.generate_inner(schema["strict_schema" if strict else "lax_schema"])

    def is_subclass_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        raise PydanticInvalidForJsonSchema("a class is not made from JSON; list names of classes in a Literal")

    def union_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        before = self._skipped
        json_schema = super().union_schema(schema)
        if json_schema == {"anyOf": []}:
            raise PydanticInvalidForJsonSchema("no member of the union has JSON")
        return narrower(json_schema, "union") if self._skipped > before else json_schema

    def emit_warning(self, kind: Any, detail: str) -> None:
        """See GenerateJsonSchema; a member of a union that is left out is noted, and defaults constrain nothing."""
        self._skipped += kind == "skipped-choice"


def _without_overrides(schema: Core) -> Core:
    """The core schema without the JSON Schema that users declare, where the two can be separated."""
    metadata = schema.get("metadata") or {}
    if schema["type"] in _NAMED or "ref" in schema or not any(metadata.get(name) for name in _OVERRIDES):
        return schema
    return {**schema, "metadata": {name: value for name, value in metadata.items() if name not in _OVERRIDES}}


def _joined(said: JsonSchemaDict, checked: JsonSchemaDict) -> JsonSchemaDict:
    """Both; where code runs between the text and the checks, only the declared JSON Schema counts."""
    notes = code_notes(checked)
    if notes or "$ref" in checked:
        return {**said, **notes}
    differing = {name: value for name, value in said.items() if name not in ANNOTATIONS and checked.get(name) != value}
    if not differing:
        return {**checked, **said}
    return {**said, "allOf": [*said.get("allOf", ()), checked]}


def _without_shorthand(schema: Core) -> Core:
    """The core schema without the keys that would overwrite the JSON Schema of its parts."""
    metadata = schema.get("metadata")
    if not metadata:
        return schema
    reduced = dict(metadata)
    if updates := metadata.get("pydantic_js_updates"):
        reduced["pydantic_js_updates"] = {name: value for name, value in updates.items() if name not in _CHECKS}
    for name in ("pydantic_js_functions", "pydantic_js_annotation_functions"):
        if functions := metadata.get(name):
            reduced[name] = [hook for hook in functions if not name_of(hook).startswith(_SAY_LESS)]
    return {**schema, "metadata": reduced}
