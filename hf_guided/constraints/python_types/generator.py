"""Pydantic's generator of JSON Schemas, made to say what its validation checks."""

from __future__ import annotations

from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from ..json_schema_keywords import ANNOTATIONS
from .functions import Functions, name_of
from .notes import TypeNote, code_notes, narrower, take_notes, take_shown
from .scalars import Core, Found

# Set by Pydantic where it checks a finished value; said of its text by `function_after_schema`.
_CHECKS = frozenset("gt ge lt le multiple_of minLength maxLength minItems maxItems minProperties maxProperties".split())
# Their JSON Schemas say less than what they stand on.
_SAY_LESS = (
    "pydantic._internal._generate_schema.",
    "pydantic.networks.",
    "pydantic.types.",
    "pydantic.color.",
    "pydantic_extra_types.color.",
)
# Where a type's JSON Schema has a name, users add examples and the like to it, rather than say what it is.
_NAMED = frozenset("model dataclass typed-dict enum definitions definition-ref".split())
_OVERRIDES = ("pydantic_js_functions", "pydantic_js_annotation_functions", "pydantic_js_extra", "pydantic_js_updates")


class ExactJsonSchema(Functions):
    """For one type; see Pydantic's GenerateJsonSchema."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.notes: tuple[TypeNote, ...] = ()
        self.described: Found = {}
        self._skipped = 0

    def generate(self, schema: Any, mode: Any = "validation") -> Found:
        """See GenerateJsonSchema; ``notes`` and ``described`` are there afterwards."""
        found = super().generate(schema, mode)
        self.require_tags(found)
        self.described = take_shown(found)
        self.notes = take_notes(found)
        return found

    def generate_inner(self, schema: Any) -> Found:
        """See GenerateJsonSchema; what users say of a type's JSON holds beside what the type checks."""
        schema = _without_shorthand(schema)
        found = super().generate_inner(schema)
        bare = _without_overrides(schema)
        return found if bare is schema else _joined(found, super().generate_inner(bare))

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Found:
        """See GenerateJsonSchema."""
        raise PydanticInvalidForJsonSchema(
            f"{error_info} has no JSON; use a type that JSON can hold (str, int, a model ...), or give the field a "
            "default and keep it out of the JSON with SkipJsonSchema"
        )

    def nullable_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        try:
            return super().nullable_schema(schema)
        except PydanticInvalidForJsonSchema:
            return narrower({"type": "null"}, "union")

    def lax_or_strict_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        strict = schema.get("strict", self._config.strict)
        return self.generate_inner(schema["strict_schema" if strict else "lax_schema"])

    def is_subclass_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        raise PydanticInvalidForJsonSchema("a class is not made from JSON; list names of classes in a Literal")

    def union_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        before = self._skipped
        found = super().union_schema(schema)
        if found == {"anyOf": []}:
            raise PydanticInvalidForJsonSchema("no member of the union has JSON")
        return narrower(found, "union") if self._skipped > before else found

    def emit_warning(self, kind: Any, detail: str) -> None:
        """See GenerateJsonSchema; a member of a union that is left out is noted, and defaults constrain nothing."""
        self._skipped += kind == "skipped-choice"


def _without_overrides(schema: Core) -> Core:
    """The core schema without what users say of its JSON, where that can be told from what it checks."""
    metadata = schema.get("metadata") or {}
    if schema["type"] in _NAMED or "ref" in schema or not any(metadata.get(name) for name in _OVERRIDES):
        return schema
    return {**schema, "metadata": {name: value for name, value in metadata.items() if name not in _OVERRIDES}}


def _joined(said: Found, checked: Found) -> Found:
    """Both; where code stands between the text and what is checked, it is left to what is said."""
    notes = code_notes(checked)
    if notes or "$ref" in checked:
        return {**said, **notes}
    differing = {name: value for name, value in said.items() if name not in ANNOTATIONS and checked.get(name) != value}
    if not differing:
        return {**checked, **said}
    return {**said, "allOf": [*said.get("allOf", ()), checked]}


def _without_shorthand(schema: Core) -> Core:
    """The core schema without what Pydantic would write over the JSON Schema of its parts."""
    metadata = schema.get("metadata")
    if not metadata:
        return schema
    kept = dict(metadata)
    if updates := metadata.get("pydantic_js_updates"):
        kept["pydantic_js_updates"] = {name: value for name, value in updates.items() if name not in _CHECKS}
    for name in ("pydantic_js_functions", "pydantic_js_annotation_functions"):
        if functions := metadata.get(name):
            kept[name] = [one for one in functions if not name_of(one).startswith(_SAY_LESS)]
    return {**schema, "metadata": kept}
