"""Unfinished JSON as Pydantic models: closed values are validated, and open models have None for the rest.

An open model is an instance of a class derived from the model, in which every field is optional. It is built
without validation, so no validator of the model sees half a value. Once its object has closed, it is a real instance.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias, Union

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, TypeAdapter, create_model

# Keys and indices from a value to the innermost open container in it; None: the value has closed.
OpenPath: TypeAlias = tuple[str | int, ...] | None
# The settings of a model's config that decide how one of its fields is read.
_FIELD_CONFIG = (
    "allow_inf_nan",
    "arbitrary_types_allowed",
    "coerce_numbers_to_str",
    "regex_engine",
    "str_max_length",
    "str_min_length",
    "str_strip_whitespace",
    "str_to_lower",
    "str_to_upper",
    "strict",
    "use_enum_values",
    "val_json_bytes",
    "val_temporal_unit",
)


def model_in(python_type: Any) -> Any:
    """The type, if it is a Pydantic model, or a container or union of models; None for others.

    Args:
        python_type: any form that ``JsonSchema`` takes.
    """
    if isinstance(python_type, TypeAdapter):
        python_type = getattr(python_type, "_type", None)
    python_type = _bare(python_type)
    if _is_model(python_type):
        return python_type
    inner = typing.get_args(python_type) if typing.get_origin(python_type) is not Literal else ()
    return python_type if any(model_in(argument) is not None for argument in inner) else None


def not_begun(python_type: Any) -> BaseModel | None:
    """A model before anything is written; None for other types."""
    return _open_model(python_type, None, ()) if _is_model(python_type) else None


def typed(python_type: Any, value: Any, path: OpenPath) -> Any:
    """An unfinished JSON value, with models for objects.

    Args:
        python_type: the type of the finished value.
        value: dicts and lists with the closed values.
        path: to the open container.
    """
    python_type = _bare(python_type)
    if path is None:
        try:
            return _adapter(python_type).validate_json(json.dumps(value))
        except Exception:  # a validator of the user may raise anything; the result reports it
            path = ()
    kind = _kind(python_type, value)
    if kind is None:
        return value
    if _is_model(kind):
        return _open_model(kind, value, path)
    inner = typing.get_args(kind)
    if isinstance(value, dict):
        item_type = inner[1] if len(inner) == 2 else Any
        return {key: typed(item_type, item, _below(path, key)) for key, item in value.items()}
    if isinstance(value, list):
        same_type = len(inner) == 1 or inner[1:] == (...,)
        kinds = inner[:1] * len(value) if same_type else (*inner, *[Any] * len(value))
        return [typed(kinds[i], item, _below(path, i)) for i, item in enumerate(value)]
    return value


def _open_model(model: type[BaseModel], value: Any, path: tuple[str | int, ...]) -> BaseModel:
    partial = _partial_class(model)
    if issubclass(model, RootModel):
        return partial.model_construct(typed(model.model_fields["root"].annotation, value, path))
    fields: dict[str, Any] = {}
    names = _names(model)
    for key, item in value.items() if isinstance(value, dict) else ():
        below = _below(path, key)
        name = names.get(key)
        if name is None:
            fields[key] = item
        elif below is None:
            fields[name] = _field(model, name, item)
        else:
            fields[name] = typed(model.model_fields[name].annotation, item, below)
    return partial.model_construct(**fields)


def _below(path: tuple[str | int, ...], key: str | int) -> OpenPath:
    return path[1:] if path and path[0] == key else None


class _NoHooks:
    def model_post_init(self, context: Any) -> None:
        """Replaces the hook of the model, which would see half a value."""


@lru_cache(maxsize=256)
def _partial_class(model: type[BaseModel]) -> type[BaseModel]:
    """The model with optional fields that accept any value."""
    name = f"Partial{model.__name__}"
    fields: dict[str, Any] = {
        field: (
            Any,
            Field(
                default=None,
                serialization_alias=info.serialization_alias,
                title=info.title,
                description=info.description,
                exclude=info.exclude,
                repr=info.repr,
            ),
        )
        for field, info in model.model_fields.items()
    }
    try:
        return create_model(name, __base__=(_NoHooks, model), __module__=model.__module__, **fields)  # type: ignore[arg-type]
    except Exception:  # a class may refuse to be derived from, with any error
        return create_model(name, __module__=model.__module__, **fields)


@lru_cache(maxsize=256)
def _names(model: type[BaseModel]) -> dict[str, str]:
    """The field of each member of the model's JSON."""
    names = {}
    for name, info in model.model_fields.items():
        alias = info.validation_alias
        for choice in alias.choices if isinstance(alias, AliasChoices) else [alias]:
            if isinstance(choice, str):
                names[choice] = name
        names.setdefault(name, name)
    return names


def _field(model: type[BaseModel], name: str, value: Any) -> Any:
    """A closed field, read by its type and the model's config; validators of the model run when its object closes."""
    try:
        return _field_reader(model, name).model_validate_json(json.dumps({"value": value})).__dict__["value"]
    except Exception:  # as in ``typed``
        return typed(model.model_fields[name].annotation, value, ())


@lru_cache(maxsize=1024)
def _field_reader(model: type[BaseModel], name: str) -> type[BaseModel]:
    info = model.model_fields[name]
    parts = (info.annotation, *info.metadata)
    kind: Any = Annotated[parts] if info.metadata else info.annotation
    config = {key: value for key, value in model.model_config.items() if key in _FIELD_CONFIG}
    return create_model(f"{model.__name__}_{name}", __config__=ConfigDict(**config), value=(kind, ...))  # type: ignore


@lru_cache(maxsize=256)
def _cached_adapter(python_type: Any) -> TypeAdapter[Any]:
    return TypeAdapter(python_type)


def _adapter(python_type: Any) -> TypeAdapter[Any]:
    try:
        return _cached_adapter(python_type)
    except TypeError:  # Annotated may hold values without a hash
        return TypeAdapter(python_type)


# -- types ---------------------------------------------------------------------------------------------------------


def _bare(python_type: Any) -> Any:
    """The type without its names: Annotated, NewType, type aliases."""
    while True:
        if typing.get_origin(python_type) is Annotated:
            python_type = typing.get_args(python_type)[0]
        elif isinstance(python_type, typing.NewType):
            python_type = python_type.__supertype__
        elif type(python_type).__name__ == "TypeAliasType":
            python_type = python_type.__value__
        else:
            return python_type


def _is_model(python_type: Any) -> bool:
    return isinstance(python_type, type) and issubclass(python_type, BaseModel)


def _kind(python_type: Any, value: Any) -> Any:
    """The type of an open value: of a union, the only member that fits; None while several fit."""
    if typing.get_origin(python_type) not in (Union, types.UnionType):
        return python_type if _fits(python_type, value) else None
    members = [kind for argument in typing.get_args(python_type) if (kind := _kind(_bare(argument), value)) is not None]
    return members[0] if len(members) == 1 else None


def _fits(python_type: Any, value: Any) -> bool:
    """Whether an open value may become a value of this type."""
    if _is_model(python_type):
        return issubclass(python_type, RootModel) or (isinstance(value, dict) and _may_be(python_type, value))
    origin = typing.get_origin(python_type) or python_type
    if not isinstance(origin, type):
        return False
    if isinstance(value, dict):
        return issubclass(origin, Mapping)
    return isinstance(value, list) and issubclass(origin, Iterable) and not issubclass(origin, (str, bytes, Mapping))


def _may_be(model: type[BaseModel], value: dict[str, Any]) -> bool:
    """Whether the members so far are the model's, and those with a Literal type have one of its values."""
    names = _names(model)
    if model.model_config.get("extra") != "allow" and not names.keys() >= value.keys():
        return False
    for key, item in value.items():
        annotation = _bare(model.model_fields[names[key]].annotation) if key in names else None
        if typing.get_origin(annotation) is Literal and item not in typing.get_args(annotation):
            return False
    return True
