"""The type of a result's value for each form of constraint; read only by type checkers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from typing_extensions import TypeVar

from ..constraints.values import Grammar, StructuralTag

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter

T = TypeVar("T", default=Any)
PartialT = TypeVar("PartialT", default=Any)  # of an answer that is being generated
ModelT = TypeVar("ModelT", bound="BaseModel")
ValueT = TypeVar("ValueT")
_Parsed = TypeVar("_Parsed", covariant=True)


class Parses(Protocol[_Parsed]):
    """A constraint: what ``parse`` returns is the type of the value."""

    def parse(self, text: str) -> _Parsed:
        """The value of a finished text."""
        ...


# Types mean themselves, constraints mean the result of their ``parse``.
PythonType: TypeAlias = Union["type[ValueT]", "TypeAdapter[ValueT]"]
Typed: TypeAlias = Union["type[ValueT]", "TypeAdapter[ValueT]", Parses[ValueT]]
Pattern: TypeAlias = re.Pattern[str]
# Constraints whose value is text: a choice, free text, a grammar.
Texts: TypeAlias = list[str] | tuple[str, ...] | Grammar | StructuralTag | None
