"""The base of all objects in a request: plain JSON, strict types, null for what is not given, no unknown fields.

Every problem is a ``RequestRefused`` that names its field, and repeats a few characters of the request.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from functools import cache
from os.path import commonprefix
from typing import Annotated, Any, ClassVar, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from ...constraints.json_text import MAX_NESTING, loads
from ...constraints.suggestions import did_you_mean
from ...errors import InvalidConstraint, shown
from ..error_responses import MOST_ECHOED, RequestRefused, refused, shorten

Values: TypeAlias = tuple[Any, ...]
ANY: Values = ("any",)  # the same object: every value is accepted
_MOST_PROBLEMS = 3
_LONGEST_NAME = 64  # a longer one is no typing mistake, and comparing it takes long
_MOST_BITS = 1024  # a double has no larger numbers
_NAME = 32  # characters of a name in a path
_PATH = 90  # characters of a path: the names of fields that are known, and at most one that is not
# The names by which messages of other APIs hold more for the model: media and files, calls in another form, text that
# the answer is to continue, and content under another name.
_FOR_THE_MODEL = re.compile(
    r"(?:\w+_)?(?:(?:audio|image|video|media|file|document|attachment)s?(?:_(?:url|id|data)s?)?|(?:call|invocation)s?)"
    "|prefix|partial|parts|text"
)

Item = TypeVar("Item")
Number = Annotated[float, Field(allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
TokenId = Annotated[int, Field(ge=0, lt=2**31)]
# The first wrong item is the only problem that is reported: a body may have a million.
List = Annotated[list[Item], FailFast()]


class Part(BaseModel):
    """An object in a request; fields that are null count as not given.

    ``other_fields`` names the fields of the API that this server does not hold, with the values that change nothing:
    ``ANY`` accepts all, ``()`` none. A field that is neither there nor in the model is unknown, and refused; but see
    ``HistoryPart``.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
    other_fields: ClassVar[Mapping[str, Values]] = {}

    @model_validator(mode="before")
    @classmethod
    def _of_known_fields(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        values: dict[str, Any] = {}
        problems: list[InitErrorDetails] = []
        for name, value in given.items():
            if value is None:
                continue
            if name in _fields_of(cls)[0]:
                values[name] = value
            elif (wrong := _problem_of_field(cls, name, value)) is not None:
                problems.append({"type": wrong, "loc": (name,), "input": None})
                if len(problems) == _MOST_PROBLEMS:
                    break
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems)
        return values


class HistoryPart(Part):
    """A message of a conversation, or an object in one.

    Clients send back what they got from any server, with notes of their own: ids, costs, thinking as other APIs write
    it. A field that is not known changes no prompt, so it is ignored. It is refused if it has a value, and a name by
    which other APIs give a model more to see; or if its name is one typing mistake away from a field that is held.
    """


Body = TypeVar("Body", bound=Part)


def read(model: type[Body], body: object) -> Body:
    """A body, any JSON, as the model of its route.

    Raises:
        RequestRefused: the first problems, by name.
    """
    checked = _plain(body)
    try:
        return model.model_validate(checked)
    except ValidationError as error:
        raise _of_validation(error, checked) from None


def problem(message: str, value: Any) -> PydanticCustomError:
    """An error of a validator, with our own words: "{value}" stands for the shortened value of the request."""
    return PydanticCustomError("refused", message, {"value": shown(value, 60)})


def as_list(value: Any, what: str, convert: Any = lambda text: text) -> Any:
    """The value of a field that may hold one text instead of a list."""
    if isinstance(value, str):
        return [convert(value)]
    if not isinstance(value, list):
        raise problem(f"expected {what}, got {{value}}", value)
    return value


def json_object(value: Any, what: str) -> Any:
    """The value of a field that may hold the JSON text of an object instead of the object."""
    if isinstance(value, str):
        try:
            value = loads(value, "it")
        except InvalidConstraint:
            raise problem(f"expected {what}, got {{value}}", value) from None
    return value


@cache
def _fields_of(model: type[Part]) -> tuple[frozenset[str], Mapping[str, Values]]:
    """The names of the fields that a model holds, and the others that it and its bases know."""
    others: dict[str, Values] = {}
    for base in reversed(model.__mro__):
        others.update(vars(base).get("other_fields", {}))
    held = frozenset(field.alias or name for name, field in model.model_fields.items())
    return held, {name: values for name, values in others.items() if name not in held}


def _problem_of_field(model: type[Part], name: str, value: Any) -> PydanticCustomError | None:
    held, others = _fields_of(model)
    has_notes = issubclass(model, HistoryPart)
    if has_notes and not value:  # false, or nothing
        return None
    if name in others or (has_notes and _is_for_the_model(name)):
        accepted = others.get(name, ())
        if accepted is ANY or any(type(value) is type(one) and value == one for one in accepted):
            return None
        instead = f"leave it out, or send {' or '.join(map(json.dumps, accepted))}" if accepted else "leave it out"
        return PydanticCustomError(
            "unsupported_field", "this server does not support it; {instead}", {"instead": instead}
        )
    if has_notes and not any(_is_misspelt(name, known) for known in held):
        return None
    near = did_you_mean(name, (*held, *others)) if len(name) <= _LONGEST_NAME else ""
    return PydanticCustomError("unknown_field", "unknown field{near}", {"near": near})


def _is_for_the_model(name: str) -> bool:
    snake_case = re.sub("(?<=[a-z])(?=[A-Z])", "_", name[:_LONGEST_NAME]).lower()
    return _FOR_THE_MODEL.fullmatch(snake_case) is not None


def _is_misspelt(name: str, known: str) -> bool:
    """Whether a letter is missing, added or replaced, or two are exchanged; in a name that is long enough to tell."""
    if len(known) < 4 or abs(len(name) - len(known)) > 1:
        return False
    same = len(commonprefix([name, known]))
    left, right = name[same:], known[same:]
    exchanged = left[:2] == right[1::-1] and left[2:] == right[2:]
    return exchanged or left[1:] in (right, right[1:]) or left == right[1:]


# What no request may hold, wherever it stands: numbers that are none, text that is none, endless nesting.


def _plain(body: object) -> dict[str, Any]:
    """The body; Python's reader of JSON takes NaN, and escapes of lone surrogates.

    Raises:
        RequestRefused: the path of the first value that cannot be.
    """
    if not isinstance(body, dict):
        raise refused(None, f"expected a JSON object as the request's body, got a {type(body).__name__}")
    # A path is the path of the value around it, and the last step.
    todo: list[tuple[Any, tuple[Any, Any] | None, int]] = [(body, None, 0)]
    while todo:
        value, path, depth = todo.pop()
        if isinstance(value, (dict, list)):
            if depth == MAX_NESTING:
                raise refused(_written(body, path), f"expected at most {MAX_NESTING} levels", "too_deep")
            for key in value if isinstance(value, dict) else ():
                if not isinstance(key, str) or not is_text(key):
                    raise refused(_written(body, path), "expected keys that are text")
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            todo.extend((child, (path, step), depth + 1) for step, child in pairs)
        elif wrong := _problem_of_value(value):
            raise refused(_written(body, path), wrong)
    return body


def _problem_of_value(value: str | float | bool | None) -> str | None:
    if isinstance(value, str):
        return None if is_text(value) else "expected text, got half of a surrogate pair"
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"expected a finite number, got {value}"
    return None if value.bit_length() <= _MOST_BITS else "expected a number below 1e308, got a larger one"


def is_text(text: str) -> bool:
    """Whether a text has no half of a surrogate pair."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _written(body: object, path: Any) -> str | None:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return _path_in(body, reversed(steps[-3:])) or None  # the outermost steps: a path may have hundreds


# pydantic's problems in our words.


def _of_validation(error: ValidationError, body: object) -> RequestRefused:
    problems = error.errors(include_url=False)[:_MOST_PROBLEMS]
    room = MOST_ECHOED // len(problems) // 2  # for a name, and for a value
    paths = [shorten(_path_in(body, *_steps_of(found)), _PATH) for found in problems]
    texts = [
        f"{path}: {_text(found, room)}" if path else _text(found, room)
        for path, found in zip(paths, problems, strict=True)
    ]
    code = problems[0]["type"]
    return RequestRefused(
        "; ".join(texts),
        code={"missing": "missing_field", "unknown_field": code, "unsupported_field": code}.get(code, "invalid_value"),
        param=paths[0] or None,
    )


def _steps_of(found: Mapping[str, Any]) -> tuple[tuple[int | str, ...], bool]:
    """The steps to the field of a problem; and whether the last one is the name of a field that may not be there."""
    if found["type"].startswith("union_tag") and isinstance(found["input"], dict):
        return (*found["loc"], _tag_of(found)), True
    return found["loc"], found["type"] == "missing"


def _tag_of(found: Mapping[str, Any]) -> str:
    """The field that names the kind of an object: role, or type."""
    field = str(found["ctx"]["discriminator"]).strip("'")
    return "type" if field.endswith("()") else field  # a function of ours, which reads the type


def _path_in(body: object, steps: Iterable[int | str], missing: bool = False) -> str:
    """The path of a field, perhaps a missing one, without the kinds of messages and parts between pydantic's steps."""
    steps, path = [*steps], []
    last = [str(steps.pop())] if missing else []
    for step, following in zip(steps, [*steps[1:], *last, None], strict=False):
        if isinstance(body, dict):
            if step not in body or (step in (body.get("type"), body.get("role")) and following in body):
                continue  # the kind of this message or part
            body = body[step]
        elif isinstance(body, list):
            if not isinstance(step, int) or step >= len(body):
                continue
            body = body[step]
        elif not isinstance(body, str):  # a text may be the JSON of an object
            continue
        path.append(shorten(str(step), _NAME))
    return ".".join([*path, *last])


def _text(found: Mapping[str, Any], room: int) -> str:
    kind, context, value = found["type"], found.get("ctx", {}), found["input"]
    if kind in ("unknown_field", "unsupported_field", "refused"):
        return str(found["msg"])
    if kind == "missing":
        return "expected a value, but it is missing"
    if kind.startswith("union_tag"):
        field = _tag_of(found)
        if not isinstance(value, dict):
            return f"expected an object with {field}, got {shown(value, room)}"
        if value.get(field) is None:
            return "expected a value, but it is missing"
        known = context.get("expected_tags", "the known ones")
        return f"expected one of {known}, got {shown(value[field], room)}"
    if kind in ("too_short", "too_long"):
        most = kind == "too_long"
        number = context["max_length" if most else "min_length"]
        return f"expected at {'most' if most else 'least'} {number} items, got {context['actual_length']}"
    what = re.sub("^(Input should be|Input should|String should have) ", "", str(found["msg"]))
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        what = "an object"
    return f"expected {what}, got {shown(value, room)}"
