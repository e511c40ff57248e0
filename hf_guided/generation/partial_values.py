"""The values of unfinished JSON: plain data, and Pydantic models.

A text is only split here, in one pass, to find out which of its parts have closed: a string closes at its quote, a
number at the character after it, a container at its bracket. The text up to the last of these, with brackets for the
containers that are open there, is JSON again, which `json` reads. So every caller gets objects of its own.

Values that have closed are validated. An open model is an instance of a class derived from the model, in which every
field is optional. It is built without validation, so no validator of the model sees half a value. Once its object has
closed, it is a real instance.
"""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, Union

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, TypeAdapter, create_model

# Keys and indices from a value to the innermost open container in it; None: the value has closed.
OpenPath: TypeAlias = tuple[str | int, ...] | None
_SPACE = re.compile(r"[ \t\n\r]*")
_IN_STRING = re.compile(r'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
_AFTER_SCALAR = re.compile(r"[ \t\n\r,\]}]")
_WORDS = ("true", "false", "null")
_DEEPEST = 500  # open containers; `json` reads more, but not from the end of every stack


class Written(NamedTuple):
    """The certain part of a JSON text at one moment."""

    text: str  # all of it
    certain: int  # index after the last value that has closed, or container that has opened
    closing: str  # brackets for the containers that are open there
    path: OpenPath  # to the innermost of them

    def value(self) -> Any:
        """A new value; None before anything is written."""
        return json.loads(self.text[: self.certain] + self.closing) if self.certain else None


@dataclass
class _Container:
    """An open container."""

    pointer: str  # its JSON pointer
    is_object: bool  # whether it is an object, not an array
    items: int = 0  # the number of members or items that have begun
    key: str | None = None  # the name of the member that is being written


class _Next(Enum):
    """The kind of token that comes next."""

    FIRST = auto()  # the first member or item of a container, or its end
    VALUE = auto()
    KEY = auto()
    COLON = auto()
    AFTER_VALUE = auto()  # a comma, or the end of the container


class PartialJson:
    """Reads a JSON text that grows. Text that is not JSON ends the reading: nothing more closes.

    A duplicate name in an object has the last value, as in `json`, and its pointer is reported again.
    """

    def __init__(self) -> None:
        self._inside: list[_Container] = []
        self._next = _Next.VALUE
        self._at = 0  # index of the next token
        self._searched = 0  # index up to which the end of that token has been searched for
        self._certain = 0  # see ``Written``
        self._over = False

    def feed(self, text: str) -> list[str]:
        """Take all of the text so far; returns JSON pointers to the values that have closed since the last call."""
        closed = []
        try:
            while not self._over and (token := self._token(text)):
                closed += self._take(token)
        except (ValueError, RecursionError):  # not JSON, or too much for `json` (an integer of 5,000 digits)
            self._over = True
        return closed

    def end(self, text: str) -> list[str]:
        """Close a number at the end of the whole text; arguments and result as for ``feed``."""
        return self.feed(f"{text} ") if not self._inside else []

    def written(self, text: str) -> Written:
        """The part of the text that was certain at the last ``feed`` of it."""
        closing = "".join("}" if container.is_object else "]" for container in reversed(self._inside))
        path = tuple(outer.key if outer.key is not None else outer.items - 1 for outer in self._inside[:-1])
        return Written(text, self._certain, closing, path if self._inside else None)

    def _token(self, text: str) -> str | None:
        """The next mark, string, number or word, if it has ended."""
        space = _SPACE.match(text, self._at)
        self._at = start = self._at if space is None else space.end()
        first = text[start : start + 1]
        searched = max(self._searched, start + 1)
        if first == '"':
            inside = _IN_STRING.match(text, searched)
            self._searched = searched if inside is None else inside.end()
            if text[self._searched : self._searched + 1] != '"':
                return None
            self._at = self._searched + 1
        elif not first:
            return None
        elif first in "{}[],:":
            self._at += 1
        else:
            after = _AFTER_SCALAR.search(text, searched)
            self._searched = len(text) if after is None else after.start()
            if after is None and text[start:] not in _WORDS:
                return None
            self._at = self._searched
        return text[start : self._at]

    def _take(self, token: str) -> list[str]:
        """Take the next token; returns the pointer of the value that it closes."""
        inside = self._inside[-1] if self._inside else None
        if token in "}]":
            if inside is None or inside.is_object != (token == "}"):
                raise ValueError("no JSON: another bracket")
            if self._next not in (_Next.FIRST, _Next.AFTER_VALUE):
                raise ValueError("no JSON: a value is missing")
            self._inside.pop()
            return self._closed(inside.pointer)
        if self._next in (_Next.AFTER_VALUE, _Next.COLON):
            if token != ("," if self._next is _Next.AFTER_VALUE else ":"):
                raise ValueError(f"no JSON: {token}")
            is_key = self._next is _Next.AFTER_VALUE and inside is not None and inside.is_object
            self._next = _Next.KEY if is_key else _Next.VALUE
            return []
        if inside is not None and inside.is_object and self._next is not _Next.VALUE:
            if token[0] != '"':
                raise ValueError("no JSON: a name is missing")
            inside.key, self._next = json.loads(token), _Next.COLON
            return []
        if token not in "{[":
            json.loads(token)  # raises for other marks, too
            return self._closed(self._begun())
        if len(self._inside) == _DEEPEST:
            raise ValueError("too deep")
        self._inside.append(_Container(self._begun(), token == "{"))
        self._certain, self._next = self._at, _Next.FIRST
        return []

    def _begun(self) -> str:
        """The pointer of a value that begins in the innermost container."""
        if not self._inside:
            return ""
        container = self._inside[-1]
        container.items += 1
        name = str(container.items - 1) if container.key is None else container.key
        return f"{container.pointer}/{name.replace('~', '~0').replace('/', '~1')}"

    def _closed(self, pointer: str) -> list[str]:
        self._certain, self._next = self._at, _Next.AFTER_VALUE
        self._over = not self._inside
        return [pointer]


# The settings of a model's config that decide how one of its fields is read.
_FIELD_CONFIG = (
    "allow_inf_nan arbitrary_types_allowed coerce_numbers_to_str regex_engine str_max_length str_min_length "
    "str_strip_whitespace str_to_lower str_to_upper strict use_enum_values val_json_bytes val_temporal_unit"
).split()


def model_in(python_type: Any) -> Any:
    """The type, in any form that ``JsonSchema`` takes, if it is or contains a Pydantic model; None for others."""
    if isinstance(python_type, TypeAdapter):
        python_type = getattr(python_type, "_type", None)
    python_type = _bare(python_type)
    if _is_model(python_type):
        return python_type
    inner = typing.get_args(python_type) if typing.get_origin(python_type) is not Literal else ()
    return python_type if any(model_in(argument) is not None for argument in inner) else None


def typed_part(python_type: Any, written: Written) -> Any:
    """The value of an unfinished text, with models for objects; models exist before anything is written."""
    if written.certain:
        return typed(python_type, written.value(), written.path)
    return _open_model(python_type, None, ()) if _is_model(python_type) else None


def typed(python_type: Any, value: Any, path: OpenPath) -> Any:
    """An unfinished JSON value of dicts and lists, with models for objects; ``python_type`` is that of the whole."""
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
    kept = ("serialization_alias", "title", "description", "exclude", "repr")
    fields: dict[str, Any] = {
        field_name: (Any, Field(default=None, **{setting: getattr(info, setting) for setting in kept}))
        for field_name, info in model.model_fields.items()
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


_cached_adapter = lru_cache(maxsize=256)(TypeAdapter)


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
