"""The base of all objects in a request: strict types, null for what is not given, no field without a meaning."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ...constraints.suggestions import did_you_mean
from ...errors import shown
from . import plain_json
from .refusals import of_validation

Values: TypeAlias = tuple[Any, ...]
ANY: Values = ("any",)  # the same object: every value is accepted
_MOST_PROBLEMS = 3
_LONGEST_NAME = 64  # a longer one is no typing mistake, and comparing it takes long

Item = TypeVar("Item")
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
# The first wrong item is the only problem that is reported: a body may have a million.
List = Annotated[list[Item], FailFast()]


class Part(BaseModel):
    """An object in a request; fields that are null count as not given.

    ``other_fields`` names the fields of the API that this server does not hold, with the values that change nothing:
    ``ANY`` accepts all, ``()`` none. A field that is neither there nor in the model is unknown.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    other_fields: ClassVar[Mapping[str, Values]] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_known_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        held, others = _fields_of(cls)
        values: dict[str, Any] = {}
        problems: list[InitErrorDetails] = []
        for name, value in given.items():
            if value is None:
                continue
            if name in held:
                values[name] = value
            elif (wrong := _problem(name, value, others, held)) is not None:
                problems.append({"type": wrong, "loc": (name,), "input": None})
                if len(problems) == _MOST_PROBLEMS:
                    break
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return values


Body = TypeVar("Body", bound=Part)


def read(model: type[Body], body: object) -> Body:
    """A body as its model.

    Args:
        model: of the route.
        body: any JSON.

    Raises:
        RequestRefused: the first problems, by name.
    """
    checked = plain_json.check(body)
    try:
        return model.model_validate(checked)
    except ValidationError as error:
        raise of_validation(error, checked) from None


def problem(message: str, **values: Any) -> PydanticCustomError:
    """An error of a validator, with our own words.

    Args:
        message: with ``{name}`` for each of the values.
        **values: from the request; each is shortened.
    """
    return PydanticCustomError("refused", message, {name: shown(value, 60) for name, value in values.items()})


def listed(what: str) -> BeforeValidator:
    """A field that may hold one text instead of a list of them."""

    def convert(value: Any) -> Any:
        if isinstance(value, str):
            return [value]
        if not isinstance(value, list):
            raise problem(f"expected {what}, got {{value}}", value=value)
        return value

    return BeforeValidator(convert)


@cache
def _fields_of(model: type[Part]) -> tuple[frozenset[str], Mapping[str, Values]]:
    """The names of the fields that a model holds, and the others that it and its bases know."""
    others: dict[str, Values] = {}
    for base in reversed(model.__mro__):
        others.update(vars(base).get("other_fields", {}))
    held = frozenset(field.alias or name for name, field in model.model_fields.items())
    return held, {name: values for name, values in others.items() if name not in held}


def _problem(name: str, value: Any, others: Mapping[str, Values], held: frozenset[str]) -> PydanticCustomError | None:
    if name in others:
        accepted = others[name]
        if accepted is ANY or any(type(value) is type(one) and value == one for one in accepted):
            return None
        instead = f"leave it out, or send {' or '.join(map(json.dumps, accepted))}" if accepted else "leave it out"
        return PydanticCustomError(
            "unsupported_field", "this server does not support it; {instead}", {"instead": instead}
        )
    near = did_you_mean(name, (*held, *others)) if len(name) <= _LONGEST_NAME else ""
    return PydanticCustomError("unknown_field", "unknown field{near}", {"near": near})
