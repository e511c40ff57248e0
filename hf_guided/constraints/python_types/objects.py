"""Pydantic's models, dataclasses and typed dicts: aliases that are paths, and unions distinguished by a field."""

from __future__ import annotations

from typing import Any

from pydantic.errors import PydanticInvalidForJsonSchema

from .containers import Containers
from .notes import narrower, validator
from .scalars import Core, JsonSchemaDict

_TAG = "x-hf-guided-tag"


class Objects(Containers):
    """Methods of Pydantic's generator, by the type of a core schema."""

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
        """See GenerateJsonSchema."""
        return _noting_code(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: Any) -> JsonSchemaDict:
        """See GenerateJsonSchema."""
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
            return validator(json_schema, "Discriminator", f"{_name(discriminator)} chooses the member of the union")
        paths = [[discriminator]] if isinstance(discriminator, str) else discriminator
        names = [path[0] if isinstance(path, list) else path for path in paths]
        return narrower({**json_schema, _TAG: names}, "discriminator")

    def require_tags(self, schema: JsonSchemaDict) -> None:
        """Require the fields that distinguish members of unions: Pydantic does not use their defaults to choose."""
        definitions = schema.get("$defs", {})
        todo: list[Any] = [schema]
        while todo:
            here = todo.pop()
            if isinstance(here, list):
                todo += here
            elif isinstance(here, dict):
                todo += here.values()
                if isinstance(names := here.pop(_TAG, None) if isinstance(here.get(_TAG), list) else None, list):
                    for choice in here["anyOf"]:
                        _require(choice, names, definitions)


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


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", None) or repr(function)
