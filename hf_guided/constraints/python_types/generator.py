"""The JSON Schema of a Python type: Pydantic's generator, extended by the checks of its validation.

A core schema is Pydantic's internal form of a type. Each kind of core schema has a method here or in `functions.py`, or
a row in a table of types whose texts are patterns or bounds.
"""

# ruff: noqa: D102 - public methods are those of GenerateJsonSchema
from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import core_schema, to_jsonable_python

from ..json_schema_keywords import ANNOTATIONS
from . import numeric, strings, temporal
from .functions import Functions, name_of, taken
from .json_in_strings import NotPlain, json_pattern, key_names
from .notes import Core, JsonSchemaDict, TypeNote, code_notes, narrower, parts, shown, take_notes, take_shown, validator

# Set by Pydantic where it checks a finished value; said of its text by `function_after_schema`.
_CHECKS = frozenset("gt ge lt le multiple_of minLength maxLength minItems maxItems minProperties maxProperties".split())
# Modules of types whose JSON Schemas say less than their core schemas.
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
_UNHASHABLE = frozenset("list dict typed-dict set deque generator ordered-dict counter default-dict".split())
_MAX_VARIADIC = 8  # items where any number of items comes before others
_STRING = ("type", "minLength", "maxLength", "pattern")
_TAG = "x-hf-guided-tag"


def _uri(schema: Core) -> JsonSchemaDict:
    """A name for the URLs of a type."""
    return {"format": f"{'|'.join(schema.get('allowed_schemes') or ())} uri".strip()}


def _bounds(schema: Core) -> JsonSchemaDict:
    """The bounds of a decimal as keywords."""
    names = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
    bounds = {keyword: float(schema[name]) for name, keyword in names.items() if name in schema}
    return {"type": "number", **{keyword: bound for keyword, bound in bounds.items() if math.isfinite(bound)}}


# Type of a core schema -> schema of its texts, and the schema that people and models read instead.
_TEXTS: dict[Any, tuple[Callable[[Core], JsonSchemaDict], JsonSchemaDict | Callable[[Core], JsonSchemaDict]]] = {
    "complex": (numeric.complex_number, {"format": "complex"}),
    "date": (temporal.date, {"format": "date"}),
    "datetime": (temporal.datetime, {"format": "date-time"}),
    "decimal": (numeric.decimal, _bounds),
    "fraction": (numeric.fraction, {"format": "fraction"}),
    "multi-host-url": (strings.multi_host_url, _uri),
    "time": (temporal.time, {"format": "time"}),
    "timedelta": (temporal.timedelta, {"format": "duration"}),
    "url": (strings.url, _uri),
    "uuid": (strings.uuid, lambda schema: {"format": f"uuid{schema.get('version') or ''}"}),
}


def _made(make: Callable[[Core], JsonSchemaDict], schema: Core) -> JsonSchemaDict:
    """The result of ``make``; its ValueError becomes the error by which Pydantic leaves out a member of a union."""
    try:
        return make(schema)
    except ValueError as error:
        raise PydanticInvalidForJsonSchema(f"{schema['type']}: {error}; widen the bounds, or leave them out") from None


def _text(schema: Core) -> JsonSchemaDict:
    make, described = _TEXTS[schema["type"]]
    return shown(_made(make, schema), **{"type": "string", **(described(schema) if callable(described) else described)})


class ExactJsonSchema(Functions):
    """Generator for one type; see Pydantic's GenerateJsonSchema."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.notes: tuple[TypeNote, ...] = ()
        self.described: JsonSchemaDict = {}
        self._skipped = 0

    def build_schema_type_to_method(self) -> dict[Any, Callable[[Any], JsonSchemaDict]]:
        return {**super().build_schema_type_to_method(), **dict.fromkeys(_TEXTS, _text)}

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaDict:
        """See GenerateJsonSchema; ``notes`` and ``described`` are there afterwards."""
        json_schema = super().generate(schema, mode)
        _require_tags(json_schema)
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
        raise PydanticInvalidForJsonSchema(
            f"{error_info} has no JSON; use a type that JSON can hold (str, int, a model ...), or give the field a "
            "default and keep it out of the JSON with SkipJsonSchema"
        )

    def nullable_schema(self, schema: Any) -> JsonSchemaDict:
        try:
            return super().nullable_schema(schema)
        except PydanticInvalidForJsonSchema:
            return narrower({"type": "null"}, "union")

    def lax_or_strict_schema(self, schema: Any) -> JsonSchemaDict:
        strict = schema.get("strict", self._config.strict)
        return self.generate_inner(schema["strict_schema" if strict else "lax_schema"])

    def is_subclass_schema(self, schema: Any) -> JsonSchemaDict:
        raise PydanticInvalidForJsonSchema("a class is not made from JSON; list names of classes in a Literal")

    def union_schema(self, schema: Any) -> JsonSchemaDict:
        before = self._skipped
        json_schema = super().union_schema(schema)
        if json_schema == {"anyOf": []}:
            raise PydanticInvalidForJsonSchema("no member of the union has JSON")
        return narrower(json_schema, "union") if self._skipped > before else json_schema

    def emit_warning(self, kind: Any, detail: str) -> None:
        """See GenerateJsonSchema; a member of a union that is left out is noted, and defaults constrain nothing."""
        self._skipped += kind == "skipped-choice"

    def str_schema(self, schema: Any) -> JsonSchemaDict:
        without_pattern: Any = {name: value for name, value in schema.items() if name != "pattern"}
        strips = schema.get("strip_whitespace", self._config.str_strip_whitespace)
        engine = self._config.regex_engine
        json_schema = strings.text(schema, super().str_schema(without_pattern), strips=bool(strips), engine=engine)
        parts = {name: value for name, value in json_schema.items() if name in _STRING}
        if "pattern" in parts:
            parts["pattern"] = strings.displayed(parts["pattern"])
        is_as_shown = "allOf" not in json_schema and parts.get("pattern") == json_schema.get("pattern")
        return json_schema if is_as_shown else shown(json_schema, **parts)

    def bytes_schema(self, schema: Any) -> JsonSchemaDict:
        mode = self._config.val_json_bytes
        json_schema = strings.raw_bytes(schema, mode)
        return json_schema if mode == "utf8" else shown(json_schema, type="string", format=mode)

    def float_schema(self, schema: Any) -> JsonSchemaDict:
        allows = schema.get("allow_inf_nan")
        if allows is None:
            allows = self._config.config_dict.get("allow_inf_nan", True)
        return _made(numeric.floating, {**schema, "allow_inf_nan": allows})

    def literal_schema(self, schema: Any) -> JsonSchemaDict:
        json_schema = super().literal_schema(schema)
        return _listed(schema, json_schema, [*json_schema.get("enum", [json_schema.get("const")])])

    def enum_schema(self, schema: Any) -> JsonSchemaDict:
        json_schema = super().enum_schema(schema)
        values = [value for member in schema["members"] for value in _spellings(member.value)]
        listed = _listed(schema, json_schema, values)
        return narrower(listed, "Flag") if issubclass(schema["cls"], enum.Flag) else listed

    def _common_set_schema(self, schema: Any) -> JsonSchemaDict:
        """A set; Pydantic folds equal items, so that they matter only where their number is constrained."""
        items, least = schema.get("items_schema"), schema.get("min_length") or 0
        json_schema: JsonSchemaDict = {"type": "array", "items": {} if items is None else self.generate_inner(items)}
        if items is not None and not self._is_hashable(items):
            raise PydanticInvalidForJsonSchema(
                "the items of a set must be hashable, and lists, dicts, sets and models that are not frozen are not; "
                "use list[...], tuples, frozenset[...], or model_config = ConfigDict(frozen=True)"
            )
        if items is None or items["type"] == "any":
            json_schema = narrower({**json_schema, "items": {"type": ["boolean", "null", "number", "string"]}}, "set")
        self.update_with_validations(json_schema, schema, self.ValidationsMapping.array)
        if least > 1:
            if not _stays_different(json_schema["items"]):
                raise PydanticInvalidForJsonSchema(
                    f"a set of at least {least} items is enforced only where the items are listed (a Literal of "
                    "strings or an Enum of them): equal items count once, and no engine can compare any others; "
                    f"use list[...], or min_length=1, or a Literal"
                )
            json_schema["uniqueItems"] = True
        return shown(json_schema, uniqueItems=True)

    def _is_hashable(self, schema: Core) -> bool:
        kind = schema["type"]
        if kind in ("model", "dataclass"):
            return schema["cls"].__hash__ is not None
        if kind == "definition-ref":
            return self._is_hashable(self.core_definitions[schema["schema_ref"]])
        inner: Iterable[Any] = ()  # of `any` too, which is narrowed to scalars where it is the item itself
        if kind == "union":
            inner = core_schema.iter_union_choices(schema)  # type: ignore[arg-type]
        elif kind == "tagged-union":
            inner = schema["choices"].values()
        elif kind == "tuple":
            inner = schema["items_schema"]
        elif kind != "json":
            inner = [schema[part] for part in ("schema", "json_schema", "lax_schema") if type(schema.get(part)) is dict]
        return kind not in _UNHASHABLE and all(map(self._is_hashable, inner))

    def any_schema(self, schema: Any) -> JsonSchemaDict:
        return {}

    def tuple_schema(self, schema: Any) -> JsonSchemaDict:
        index = schema.get("variadic_item_index")
        items = schema["items_schema"]
        if index is None or index + 1 == len(items):
            return super().tuple_schema(schema)
        inner = [*map(self.generate_inner, items)]
        fixed = len(items) - 1
        least = max(0, (schema.get("min_length") or 0) - fixed)
        most = least + _MAX_VARIADIC
        if schema.get("max_length") is not None:
            most = min(most, schema["max_length"] - fixed)
        alternatives: list[JsonSchemaDict] = []
        for count in range(least, most + 1):
            items = [*inner[:index], *([inner[index]] * count), *inner[index + 1 :]]
            alternatives.append({"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)})
        if not alternatives:
            raise PydanticInvalidForJsonSchema("no tuple has a length inside the bounds; widen them")
        return narrower({"anyOf": alternatives}, "tuple")

    def _common_dict_schema(self, schema: Any) -> JsonSchemaDict:
        """A dictionary: its keys are strings in JSON, whatever their Python type."""
        values = schema.get("values_schema")
        json_schema: JsonSchemaDict = {"type": "object"}
        inner = {} if values is None else dict(self.generate_inner(values))
        inner.pop("title", None)
        json_schema["additionalProperties"] = inner or True
        keys = schema.get("keys_schema")
        if keys is not None and keys["type"] != "any":
            names = key_names(keys, self.generate_inner(keys), self._resolved)
            if names is None:
                raise PydanticInvalidForJsonSchema(
                    "keys in JSON are strings, and no string becomes a key of this type; "
                    "use keys of str, int, float, bool, an Enum, a date ..., or a list of pairs"
                )
            if names != {"type": "string"}:
                json_schema["propertyNames"] = names
        self.update_with_validations(json_schema, schema, self.ValidationsMapping.object)
        listed = json_schema.get("propertyNames", {}).get("enum")
        if listed and (json_schema.get("minProperties") or 0) > 1:
            # Names that are declared come once each, so that they can be counted.
            json_schema["properties"] = dict.fromkeys(listed, json_schema["additionalProperties"])
            json_schema["additionalProperties"] = False
            del json_schema["propertyNames"]
        return json_schema

    def json_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema: a string that holds JSON."""
        content = self.generate_inner(schema["schema"]) if "schema" in schema else {}
        try:
            pattern = json_pattern(content, self._resolved)
        except NotPlain as error:
            raise PydanticInvalidForJsonSchema(f"JSON inside a string: {error}; use the type itself") from None
        described = {"type": "string", "contentMediaType": "application/json"}
        json_schema = narrower({**described, "pattern": f"^{pattern}$"}, "Json")
        return shown(json_schema, **described, contentSchema=content)

    def _resolved(self, ref: str) -> JsonSchemaDict | None:
        return self.get_schema_from_definitions(ref)  # type: ignore[arg-type] # a NewType of str

    def _named_required_fields_schema(self, named_required_fields: Any) -> JsonSchemaDict:
        """Properties as validation looks for them."""
        fields = [entry for entry in named_required_fields if entry[2].get("init") is not False]
        json_schema = super()._named_required_fields_schema(fields)
        properties = json_schema["properties"]
        for name, is_required, field in fields:
            shown = self._get_alias_name(field, name) if self.by_alias else name
            if shown not in properties:
                if is_required:
                    raise PydanticInvalidForJsonSchema(
                        f"the field {name!r} is required, and its type is left out of JSON Schemas (SkipJsonSchema); "
                        "give it a default"
                    )
                continue
            path, others = self._names_of(field, name, shown)
            if path:
                _move(json_schema, shown, path, is_required)
            for other in others:
                properties.setdefault(other, False)  # otherwise it might be read instead of the one that is written
        if not json_schema.get("required"):
            json_schema.pop("required", None)
        return json_schema

    def _names_of(self, field: Core, name: str, shown: str) -> tuple[list[str | int], list[str]]:
        """The path to a field, if it has no name of its own; and other names that it is read from."""
        alias = field.get("validation_alias") if self.by_alias else None
        by_name = self._config.config_dict.get("validate_by_name") or self._config.config_dict.get("populate_by_name")
        others = [name] if by_name and shown != name else []
        if not isinstance(alias, list):
            return [], others
        listed: list[Any] = alias if isinstance(alias[0], list) else [alias]
        paths: list[list[Any]] = [[alias] if isinstance(alias, str) else alias for alias in listed]
        single = [path[0] for path in paths if len(path) == 1]
        roots = [path[0] for path in paths if len(path) > 1 and path[0] != shown]
        if single or by_name:
            return [], [*others, *(alias for alias in single if alias != shown), *roots]
        return paths[0], [path[0] for path in paths[1:] if path[0] != paths[0][0]]

    def model_schema(self, schema: Any) -> JsonSchemaDict:
        return _noting_code(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaDict:
        return _noting_code(super().dataclass_schema(schema), schema)

    def tagged_union_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema; Pydantic looks at the tag, so that no more than one member can match."""
        json_schema = super().tagged_union_schema(schema)
        if not json_schema["oneOf"]:
            raise PydanticInvalidForJsonSchema("no member of the union has JSON")
        json_schema["anyOf"] = json_schema.pop("oneOf")
        json_schema.pop("discriminator", None)
        discriminator = schema["discriminator"]
        if callable(discriminator):
            name = getattr(discriminator, "__qualname__", None) or repr(discriminator)
            return validator(json_schema, "Discriminator", f"{name} chooses the member of the union")
        paths = [[discriminator]] if isinstance(discriminator, str) else discriminator
        names = [path[0] if isinstance(path, list) else path for path in paths]
        return narrower({**json_schema, _TAG: names}, "discriminator")


def _stays_different(items: JsonSchemaDict) -> bool:
    """Whether items that differ in JSON differ in Python too: 1 and true do not."""
    values = items.get("enum", [items["const"]] if "const" in items else None)
    return items.get("type") == "boolean" or (values is not None and len({type(value) for value in values}) == 1)


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


def _require_tags(schema: JsonSchemaDict) -> None:
    """Require the fields that distinguish members of unions: Pydantic does not use their defaults to choose."""
    for _, here in parts(schema, _TAG):
        names = here.pop(_TAG)
        for choice in here["anyOf"]:
            _require(choice, names, schema.get("$defs", {}))


def _require(schema: JsonSchemaDict, names: list[str], definitions: dict[str, JsonSchemaDict]) -> None:
    seen = []
    while "$ref" in schema and schema not in seen:
        seen.append(schema)
        schema = definitions.get(schema["$ref"].rpartition("/")[2], {})
    for choice in schema.get("anyOf", ()):
        _require(choice, names, definitions)
    present = [name for name in names if name in schema.get("properties", {})]
    if present and present[0] not in schema.get("required", ()):
        schema["required"] = [*schema.get("required", ()), present[0]]


def _move(json_schema: JsonSchemaDict, name: str, path: list[str | int], is_required: bool) -> None:
    """Move a property to its path."""
    inner = json_schema["properties"].pop(name)
    if name in json_schema.get("required", ()):
        json_schema["required"].remove(name)
    here: JsonSchemaDict = json_schema
    for step, following in zip(path, [*path[1:], None], strict=True):
        if isinstance(step, str):
            here.setdefault("type", "object")
            properties = here.setdefault("properties", {})
            child = properties.setdefault(step, {}) if following is not None else inner
            properties[step] = child
            if is_required and step not in here.setdefault("required", []):
                here["required"].append(step)
        else:
            child = inner if following is None else {}
            child = _item(here, step, child, is_required)
        here = child


def _item(here: JsonSchemaDict, index: int, child: JsonSchemaDict, is_required: bool) -> JsonSchemaDict:
    """Put an item at its index; the items before it may be anything."""
    here.setdefault("type", "array")
    items = here.setdefault("prefixItems", [])
    if index < 0:
        here["minItems"] = here["maxItems"] = -index
        index = 0
    items += [True] * (index + 1 - len(items))
    if items[index] is True or child != {}:
        items[index] = child
    if is_required:
        here["minItems"] = max(here.get("minItems", 0), index + 1)
    return items[index]  # type: ignore[no-any-return]


def _noting_code(json_schema: JsonSchemaDict, schema: Core) -> JsonSchemaDict:
    """Notes for code that runs when an instance is made."""
    cls = schema["cls"]
    if schema.get("custom_init"):
        return validator(json_schema, "__init__", f"{cls.__qualname__}.__init__ may refuse a value")
    hook = schema.get("post_init")
    if hook:
        hook = hook if isinstance(hook, str) else "__post_init__"
        if not getattr(getattr(cls, hook, None), "__module__", "pydantic").startswith("pydantic"):
            return validator(json_schema, hook, f"{cls.__qualname__}.{hook} may refuse a value")
    return json_schema


def _without_overrides(schema: Core) -> Core:
    """The core schema without the JSON Schema that users declare, where the two can be separated."""
    metadata = schema.get("metadata") or {}
    if schema["type"] in _NAMED or "ref" in schema or not any(metadata.get(name) for name in _OVERRIDES):
        return schema
    return {**schema, "metadata": {name: value for name, value in metadata.items() if name not in _OVERRIDES}}


def _joined(said: JsonSchemaDict, checked: JsonSchemaDict) -> JsonSchemaDict:
    """Demand both; where code runs between the text and the checks, only the declared JSON Schema counts."""
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
