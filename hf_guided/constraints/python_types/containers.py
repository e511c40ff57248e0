"""Pydantic's arrays and dictionaries: rules for items and keys that its JSON Schemas omit."""

from __future__ import annotations

import json
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from . import embedded_json
from .notes import narrower, shown
from .scalars import Core, JsonSchemaDict, Scalars, key_names

_SCALAR_TYPES = ["boolean", "null", "number", "string"]
_MAX_VARIADIC = 8  # items where any number of items comes before others
_UNHASHABLE = frozenset("list dict typed-dict set deque generator ordered-dict counter default-dict".split())


class Containers(Scalars):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def _common_set_schema(self, schema: Any) -> JsonSchemaDict:
        """A set; Pydantic folds equal items, so that they matter only where their number is constrained."""
        items, least = schema.get("items_schema"), schema.get("min_length") or 0
        json_schema: JsonSchemaDict = {"type": "array", "items": {} if items is None else self.generate_inner(items)}
        hashable = True if items is None else self._is_hashable(items)
        if not hashable:
            raise PydanticInvalidForJsonSchema(
                "the items of a set must be hashable, and lists, dicts, sets and models that are not frozen are not; "
                "use list[...], tuples, frozenset[...], or model_config = ConfigDict(frozen=True)"
            )
        if items is None or items["type"] == "any":
            json_schema = narrower({**json_schema, "items": {"type": _SCALAR_TYPES}}, "set")
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
        if kind in _UNHASHABLE:
            return False
        if kind in ("model", "dataclass"):
            return schema["cls"].__hash__ is not None
        if kind == "definition-ref":
            return self._is_hashable(self._definitions[schema["schema_ref"]])
        if kind == "union":
            return all(self._is_hashable(choice) for choice in core_schema.iter_union_choices(schema))  # type: ignore[arg-type]
        if kind == "tagged-union":
            return all(map(self._is_hashable, schema["choices"].values()))
        if kind == "tuple":
            return all(map(self._is_hashable, schema["items_schema"]))
        if kind == "json-or-python":
            return self._is_hashable(schema["json_schema"])
        if kind == "lax-or-strict":
            return self._is_hashable(schema["lax_schema"])
        if kind == "any":
            return True  # narrowed to scalars where it is the item itself
        inner = schema.get("schema")
        return inner is None or kind == "json" or not isinstance(inner, dict) or self._is_hashable(inner)

    def any_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        return {}

    def tuple_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        index = schema.get("variadic_item_index")
        items = schema["items_schema"]
        if index is None or index + 1 == len(items):
            return super().tuple_schema(schema)
        before = [self.generate_inner(item) for item in items[:index]]
        middle = self.generate_inner(items[index])
        after = [self.generate_inner(item) for item in items[index + 1 :]]
        fixed = len(before) + len(after)
        least = max(0, (schema.get("min_length") or 0) - fixed)
        most = least + _MAX_VARIADIC
        if schema.get("max_length") is not None:
            most = min(most, schema["max_length"] - fixed)
        alternatives = [
            {
                "type": "array",
                "prefixItems": [*before, *([middle] * count), *after],
                "minItems": fixed + count,
                "maxItems": fixed + count,
            }
            for count in range(least, most + 1)
        ]
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
            names = self._key_names(keys, self.generate_inner(keys))
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

    def _key_names(self, keys: Core, json_schema: JsonSchemaDict) -> JsonSchemaDict | None:
        """The names of members as a schema of strings; None if there are none."""
        json_schema = {name: value for name, value in json_schema.items() if name not in ("title", "description")}
        if "$ref" in json_schema:
            target = self.get_schema_from_definitions(json_schema["$ref"])
            return None if target is None else self._key_names(keys, target)
        if "enum" in json_schema or "const" in json_schema:
            values = json_schema.get("enum", [json_schema.get("const")])
            listed = [name for name in map(_as_key, values) if name is not None and _takes_key(keys, name)]
            return {"enum": listed} if listed else None
        if "anyOf" in json_schema:
            return self._key_of_any(keys, json_schema)
        if json_schema.get("type") == "string":
            return json_schema
        names = key_names(json_schema)
        return None if names is None else shown(narrower(names, "keys"), type="string", format=json_schema["type"])

    def _key_of_any(self, keys: Core, json_schema: JsonSchemaDict) -> JsonSchemaDict | None:
        """As ``_key_names``, of alternatives; those that no pattern describes are left out where there are others."""
        alternatives: list[JsonSchemaDict] = []
        refused = None
        for alternative in json_schema["anyOf"]:
            try:
                names = self._key_names(keys, alternative)
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

    def json_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema: a string that holds JSON."""
        inner = schema.get("schema")
        content = {} if inner is None else self.generate_inner(inner)
        try:
            pattern = embedded_json.pattern(content, self._resolved)
        except embedded_json.NotPlain as error:
            raise PydanticInvalidForJsonSchema(f"JSON inside a string: {error}; use the type itself") from None
        json_schema = {"type": "string", "contentMediaType": "application/json", "pattern": f"^{pattern}$"}
        return shown(
            narrower(json_schema, "Json"), type="string", contentMediaType="application/json", contentSchema=content
        )

    def _resolved(self, ref: str) -> JsonSchemaDict:
        target = self.get_schema_from_definitions(ref)  # type: ignore[arg-type]
        if target is None:
            raise embedded_json.Endless("a type that holds itself")
        return target

    def chain_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema: what the first step takes, and what later ones check of it."""
        steps = schema["steps"]
        if steps[0]["type"] == "any" and any(step["type"] == "is-instance" for step in steps):
            return narrower({"type": _SCALAR_TYPES}, "set")  # Hashable
        first, *others = [self.generate_inner(step) for step in steps]
        others = [other for other in others if other and other != first]
        return {**first, "allOf": [*first.get("allOf", ()), *others]} if others else first

    @property
    def _definitions(self) -> dict[str, Core]:
        """Core schemas by the names that others refer to them by."""
        return self.__dict__.setdefault("_core_definitions", {})  # type: ignore[no-any-return]

    def definitions_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
        self._definitions.update((definition["ref"], definition) for definition in schema["definitions"])
        return super().definitions_schema(schema)


def _stays_different(items: JsonSchemaDict) -> bool:
    """Whether items that differ in JSON differ in Python too: 1 and true do not."""
    values = items.get("enum", [items["const"]] if "const" in items else None)
    if items.get("type") == "boolean":
        return True
    return values is not None and len({type(value) for value in values}) == 1


def _as_key(value: Any) -> str | None:
    return value if isinstance(value, str) else json.dumps(value) if isinstance(value, (bool, int, float)) else None


def _takes_key(keys: Core, name: str) -> bool:
    bare: Any = {name: value for name, value in keys.items() if name not in ("ref", "metadata", "serialization")}
    try:
        SchemaValidator(core_schema.dict_schema(bare)).validate_json(json.dumps({name: None}))
    except ValidationError:
        return False
    except SchemaError:  # it refers to others
        return True
    return True
