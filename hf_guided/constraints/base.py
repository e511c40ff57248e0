"""The base class of all constraints, and the checks that their constructors share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from ..errors import InvalidConstraint, shown
from .json_text import digest

if TYPE_CHECKING:
    from .json_style import Spelling

ConstraintT = TypeVar("ConstraintT", bound="Constraint")
OnUnsupported = Literal["error", "warn", "validate"]


class Constraint:
    """A constraint on a row's text."""

    kind: ClassVar[str]
    spelling: Spelling | None = None  # spelling of JSON values; None where there are none
    on_unsupported: OnUnsupported = "error"

    @cached_property
    def key(self) -> str:
        """A digest that is the same for constraints with the same texts and the same demands on a backend."""
        return digest(self.kind, *self._identity())

    def _identity(self) -> Sequence[Any]:
        """The fields that distinguish it from other constraints of its kind, as JSON values."""
        raise NotImplementedError

    def check(self) -> None:
        """The checks that are too slow for the constructor; raises InvalidConstraint."""

    def for_tokenizer(self, tokenizer: Any) -> Constraint:
        """The same constraint, with the parts that depend on the tokenizer filled in."""
        return self

    def parse(self, text: str) -> Any:
        """The value of a finished text.

        Raises:
            ValueError: the text does not satisfy it (json.JSONDecodeError, pydantic.ValidationError ...).
        """
        return text


def set_fields(constraint: object, **values: Any) -> None:
    """Set fields in the constructor of a frozen constraint, or of a frozen part of one."""
    for name, value in values.items():
        object.__setattr__(constraint, name, value)  # a frozen dataclass is written only this way


def replaced(constraint: ConstraintT, **changes: Any) -> ConstraintT:
    """A copy of a frozen constraint with other values in some fields, and nothing of what was computed from them."""
    copy = object.__new__(type(constraint))
    names = (field.name for field in dataclasses.fields(constraint))  # type: ignore[arg-type] # each is a dataclass
    set_fields(copy, **{name: getattr(constraint, name) for name in names} | changes)
    return copy


def one_of(name: str, value: Any, allowed: Any) -> Any:
    """The value of an option; raises InvalidConstraint if it is none of a ``Literal``."""
    known = allowed.__args__  # ``typing.get_args`` takes ten times as long
    if value not in known:
        raise InvalidConstraint(f"{name}: expected one of {', '.join(map(repr, known))}, got {shown(value)}")
    return value


def with_flags(pattern: re.Pattern[str], flags: Mapping[str, int]) -> str:
    """A pattern with all of its flags at its beginning, of those that are named by their letters here."""
    letters = "".join(letter for letter, flag in flags.items() if pattern.flags & flag)
    body = re.sub(r"\A(\(\?[aiLmsux]+\))+", "", pattern.pattern)
    return f"(?{letters}){body}" if letters else body


def beginning(text: str) -> str:
    """The beginning of a text, for the ``repr`` of a constraint."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")[1:-1]


def expect_utf8(text: str, what: str) -> None:
    """Raise InvalidConstraint for a text that UTF-8 cannot write."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidConstraint(f"{what}: expected text that UTF-8 can write, got a lone surrogate: {error}") from None
