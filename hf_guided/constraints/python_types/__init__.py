"""Python types as JSON Schemas, and back: every type that Pydantic's TypeAdapter takes."""

from __future__ import annotations

import enum
import sys
import types
import typing
from typing import Any, NamedTuple

from ...errors import InvalidConstraint, shown
from .notes import NARROWER, TypeNote

__all__ = ["NARROWER", "TypeNote", "TypeSchema", "adapter_of", "is_type", "schema_of"]


class TypeSchema(NamedTuple):
    """The JSON Schema of a Python type.

    Args:
        enforced: says all that can be said of the type's texts.
        described: the same for people and models to read, with the names of formats for long patterns.
        notes: the values that the first leaves out, or leaves to code of the type.
    """

    enforced: Any
    described: Any
    notes: tuple[TypeNote, ...]


def schema_of(python_type: Any) -> TypeSchema:
    """The JSON Schema of a Python type.

    Args:
        python_type: a Pydantic model, dataclass, TypedDict, Enum, list[int], Literal, Annotated, TypeAdapter ...

    Raises:
        InvalidConstraint: not a type, or a type whose values have no JSON.
    """
    if not is_type(python_type):
        raise InvalidConstraint(_not_a_type(python_type))
    from .generator import ExactJsonSchema

    try:
        adapter = adapter_of(python_type)
    except Exception as error:  # any class: errors of Pydantic (RuntimeError among them), and of hooks of types
        advice = "; check its annotations, and that each option suits its type"
        raise _refused("validate", python_type, f"{type(error).__name__}: {_reason(error)}{advice}") from error
    generator = ExactJsonSchema()
    try:
        schema = generator.generate(adapter.core_schema)
    except Exception as error:  # as before, and of bounds that do not suit their type
        raise _refused("describe as JSON Schema", python_type, _reason(error)) from error
    return TypeSchema(schema, generator.described, generator.notes)


def _refused(purpose: str, python_type: Any, reason: Any) -> InvalidConstraint:
    return InvalidConstraint(f"expected a type that Pydantic can {purpose}, got {shown(python_type)}: {reason}")


def _reason(error: Exception) -> Any:
    return getattr(error, "message", error)  # without Pydantic's link to its page of errors


def is_type(value: Any) -> bool:
    """Whether the value is a class or a typing form, and not an instance, a function or plain data."""
    from pydantic import TypeAdapter

    return (
        isinstance(value, (type, types.UnionType, types.GenericAlias, TypeAdapter, typing.NewType))
        or typing.get_origin(value) is not None
        or value is Any
        or type(value).__name__ == "TypeAliasType"  # typing's from 3.12 on, typing_extensions' before
    )


def adapter_of(python_type: Any) -> Any:
    """Pydantic's TypeAdapter of a type."""
    from pydantic import TypeAdapter

    return python_type if isinstance(python_type, TypeAdapter) else TypeAdapter(_modern(python_type))


def _modern(tp: Any) -> Any:
    """Before Python 3.12 Pydantic refuses typing.TypedDict and requires the one of typing_extensions, so convert it."""
    import typing_extensions

    if sys.version_info >= (3, 12):
        return tp
    if typing.is_typeddict(tp):
        fields = {}
        for name, hint in typing_extensions.get_type_hints(tp, include_extras=True).items():
            if str(typing.get_origin(hint)).endswith("Required"):  # typing's or typing_extensions'; NotRequired too
                (hint,) = typing.get_args(hint)
            required = name in tp.__required_keys__
            fields[name] = _modern(hint) if required else typing_extensions.NotRequired[_modern(hint)]
        return typing_extensions.TypedDict(tp.__name__, fields)  # type: ignore[operator]
    if isinstance(tp, types.UnionType):
        return typing.Union[tuple(map(_modern, tp.__args__))]  # noqa: UP007 - there is no `|` over a tuple
    if typing.get_origin(tp) is not None and any(map(_holds_typed_dict, typing.get_args(tp))):
        if isinstance(tp, types.GenericAlias):
            return typing.get_origin(tp)[tuple(map(_modern, tp.__args__))]  # type: ignore[index]
        return tp.copy_with(tuple(map(_modern, tp.__args__)))
    return tp


def _holds_typed_dict(tp: Any) -> bool:
    return typing.is_typeddict(tp) or any(map(_holds_typed_dict, typing.get_args(tp)))


def _not_a_type(value: Any) -> str:
    expected = "expected a JSON Schema (dict, bool or JSON text) or a Python type"
    if isinstance(value, types.FunctionType):
        return f"{expected}, got the function {value.__name__}; for tool calls use hg.ToolCalls([{value.__name__}])"
    if hasattr(type(value), "__pydantic_fields__") or hasattr(type(value), "__dataclass_fields__"):
        name = type(value).__name__
        return f"{expected}, got an instance of {name}; pass the class {name}"
    if isinstance(value, enum.Enum):
        return f"{expected}, got {shown(value)}; for a choice of members use hg.Choice([{value}, ...])"
    return f"{expected}, got {shown(value)} of type {type(value).__name__}"
