"""Pydantic's arrays and dictionaries: what JSON Schema does not say of their items and keys."""

from __future__ import annotations

import json
from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic_core import SchemaError, SchemaValidator, ValidationError, core_schema

from . import embedded_json
from .notes import narrower, shown
from .scalars import Core, Found, Scalars, key_names

_SCALAR_TYPES = ["boolean", "null", "number", "string"]
_MAX_VARIADIC = 8  # items where items of any number stand before others
_UNHASHABLE = frozenset("list dict typed-dict set deque generator ordered-dict counter default-dict".split())


class Containers(Scalars):
    """Methods of Pydantic's generator, by the type of a core schema."""

    def _common_set_schema(self, schema: Any) -> Found:
        """A set; Pydantic folds equal items, so that they matter only where a number of them is asked for."""
        items, least = schema.get("items_schema"), schema.get("min_length") or 0
        found: Found = {"type": "array", "items": {} if items is None else self.generate_inner(items)}
        hashable = True if items is None else self._is_hashable(items)
        if not hashable:
            raise PydanticInvalidForJsonSchema(
                "the items of a set must be hashable, and lists, dicts, sets and models that are not frozen are not; "
                "use list[...], tuples, frozenset[...], or model_config = ConfigDict(frozen=True)"
            )
        if items is None or items["type"] == "any":
            found = narrower({**found, "items": {"type": _SCALAR_TYPES}}, "set")
        self.update_with_validations(found, schema, self.ValidationsMapping.array)
        if least > 1:
            if not _stays_different(found["items"]):
                raise PydanticInvalidForJsonSchema(
                    f"a set of at least {least} items is enforced only where the items are listed (a Literal of "
                    "strings or an Enum of them): equal items count once, and no engine can compare any others; "
                    f"use list[...], or min_length=1, or a Literal"
                )
            found["uniqueItems"] = True
        return shown(found, uniqueItems=True)

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

    def any_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        return {}

    def tuple_schema(self, schema: Any) -> Found:
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
        ways = [
            {
                "type": "array",
                "prefixItems": [*before, *([middle] * count), *after],
                "minItems": fixed + count,
                "maxItems": fixed + count,
            }
            for count in range(least, most + 1)
        ]
        if not ways:
            raise PydanticInvalidForJsonSchema("no tuple has a length inside the bounds; widen them")
        return narrower({"anyOf": ways}, "tuple")

    def _common_dict_schema(self, schema: Any) -> Found:
        """A dictionary: its keys are strings in JSON, whatever they become."""
        values = schema.get("values_schema")
        found: Found = {"type": "object"}
        inner = {} if values is None else dict(self.generate_inner(values))
        inner.pop("title", None)
        found["additionalProperties"] = inner or True
        keys = schema.get("keys_schema")
        if keys is not None and keys["type"] != "any":
            names = self._key_names(keys, self.generate_inner(keys))
            if names is None:
                raise PydanticInvalidForJsonSchema(
                    "keys in JSON are strings, and no string becomes a key of this type; "
                    "use keys of str, int, float, bool, an Enum, a date ..., or a list of pairs"
                )
            if names != {"type": "string"}:
                found["propertyNames"] = names
        self.update_with_validations(found, schema, self.ValidationsMapping.object)
        listed = found.get("propertyNames", {}).get("enum")
        if listed and (found.get("minProperties") or 0) > 1:
            # Names that are declared come once each, so that they can be counted.
            found["properties"] = dict.fromkeys(listed, found["additionalProperties"])
            found["additionalProperties"] = False
            del found["propertyNames"]
        return found

    def _key_names(self, keys: Core, found: Found) -> Found | None:
        """The names of members as a schema of strings; None if there are none."""
        found = {name: value for name, value in found.items() if name not in ("title", "description")}
        if "$ref" in found:
            target = self.get_schema_from_definitions(found["$ref"])
            return None if target is None else self._key_names(keys, target)
        if "enum" in found or "const" in found:
            values = found.get("enum", [found.get("const")])
            listed = [name for name in map(_as_key, values) if name is not None and _takes_key(keys, name)]
            return {"enum": listed} if listed else None
        if "anyOf" in found:
            return self._key_of_any(keys, found)
        if found.get("type") == "string":
            return found
        names = key_names(found)
        return None if names is None else shown(narrower(names, "keys"), type="string", format=found["type"])

    def _key_of_any(self, keys: Core, found: Found) -> Found | None:
        """As ``_key_names``, of alternatives; those that no pattern tells are left out where there are others."""
        ways: list[Found] = []
        refused = None
        for way in found["anyOf"]:
            try:
                names = self._key_names(keys, way)
            except PydanticInvalidForJsonSchema as error:
                refused = error
                continue
            if names is not None and names not in ways:
                ways.append(names)
        if not ways:
            if refused is not None:
                raise refused
            return None
        rest = {name: value for name, value in found.items() if name != "anyOf"}
        names = {**ways[0], **rest} if len(ways) == 1 else {**rest, "anyOf": ways}
        return names if refused is None else narrower(names, "keys")

    def json_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema: a string that holds JSON."""
        inner = schema.get("schema")
        content = {} if inner is None else self.generate_inner(inner)
        try:
            pattern = embedded_json.pattern(content, self._resolved)
        except embedded_json.NotPlain as error:
            raise PydanticInvalidForJsonSchema(f"JSON inside a string: {error}; use the type itself") from None
        found = {"type": "string", "contentMediaType": "application/json", "pattern": f"^{pattern}$"}
        return shown(narrower(found, "Json"), type="string", contentMediaType="application/json", contentSchema=content)

    def _resolved(self, ref: str) -> Found:
        target = self.get_schema_from_definitions(ref)  # type: ignore[arg-type]
        if target is None:
            raise embedded_json.Endless("a type that holds itself")
        return target

    def chain_schema(self, schema: Any) -> Found:
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

    def definitions_schema(self, schema: Any) -> Found:
        """See GenerateJsonSchema."""
        self._definitions.update((one["ref"], one) for one in schema["definitions"])
        return super().definitions_schema(schema)


def _stays_different(items: Found) -> bool:
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
