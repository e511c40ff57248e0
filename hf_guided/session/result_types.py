"""The type of a result's value for each form of constraint; read only by type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from typing_extensions import TypeVar

from ..constraints.values import Grammar, StructuralTag

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T", default=Any)
PartialT = TypeVar("PartialT", default=Any)  # type of an answer that is being generated
ValueT = TypeVar("ValueT", default=str)  # the default is the type of forms that have none, such as a list of strings
_Value = TypeVar("_Value", covariant=True)


class Parses(Protocol[_Value]):
    """A constraint: what ``parse`` returns is the type of the value."""

    def parse(self, text: str) -> _Value:
        """The value of a finished text."""
        ...


class _Matches(Protocol[_Value]):
    """A pattern of ``re``: the value is its match."""

    def fullmatch(self, string: str, /) -> _Value | None: ...


class _ReadsJson(Protocol[_Value]):
    """A Pydantic model: the value is an instance of it."""

    def model_validate_json(self, json_data: str) -> _Value: ...


_Texts: TypeAlias = list[str] | tuple[str, ...] | Grammar | StructuralTag | None
PythonType: TypeAlias = Union["type[ValueT]", "TypeAdapter[ValueT]"]
# All forms whose value has a known type: types mean themselves, constraints mean the result of their ``parse``.
Typed: TypeAlias = Union["type[ValueT]", "TypeAdapter[ValueT]", Parses[ValueT], _Matches[ValueT], _Texts]
# Forms of ``Typed`` whose value has this type also while it is being generated.
TypedParts: TypeAlias = _ReadsJson[ValueT] | Parses[ValueT] | _Matches[ValueT] | _Texts
