"""Refusals that name the field, and repeat at most 200 characters of the request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError

from ...errors import HFGuidedError, shown
from ..error_responses import MOST_ECHOED, RequestRefused, refusal, shorten

_MOST_PROBLEMS = 3
_NAME = 32  # of a name in a path
_PATH = 90  # of a path: the names of fields that are known, and at most one that is not


def refused(param: str | None, message: str, code: str = "invalid_value", status: int = 400) -> RequestRefused:
    """A refusal that names the field.

    Args:
        param: the field's path, such as ``messages.3.content``; None is the whole body.
        message: what was expected, and what came.
        code: a short name for the reason.
        status: of the HTTP answer.
    """
    text = message if param is None else f"{param}: {message}"
    return RequestRefused(text, status=status, code=code, param=param)


def expected(param: str, what: str, value: object) -> RequestRefused:
    """A refusal of a value."""
    return refused(param, f"expected {what}, got {shown(value)}")


@contextmanager
def naming(param: str | None) -> Iterator[None]:
    """Errors of a constraint become refusals that name its field."""
    try:
        yield
    except HFGuidedError as error:
        raise refusal(error, param) from error


def of_validation(error: ValidationError, body: object) -> RequestRefused:
    """The first problems that pydantic found, as one refusal.

    Args:
        error: what it raised.
        body: what it read.
    """
    problems = error.errors(include_url=False)[:_MOST_PROBLEMS]
    room = MOST_ECHOED // len(problems) // 2  # for a name, and for a value
    paths = [
        shorten(path_in(body, problem["loc"], missing=problem["type"] == "missing"), _PATH) for problem in problems
    ]
    texts = [
        f"{path}: {_text(problem, room)}" if path else _text(problem, room)
        for path, problem in zip(paths, problems, strict=True)
    ]
    code = problems[0]["type"]
    return RequestRefused(
        "; ".join(texts),
        code={"missing": "missing_field", "unknown_field": code, "unsupported_field": code}.get(code, "invalid_value"),
        param=paths[0] or None,
    )


def path_in(body: object, steps: Iterable[int | str], *, missing: bool = False) -> str:
    """The path of a field, without what pydantic puts between its steps: the kinds of messages and parts.

    Args:
        body: what was read.
        steps: names and indices.
        missing: the last step is the name of a field that is not there.
    """
    steps, path = [*steps], []
    last = [str(steps.pop())] if missing else []
    for step, following in zip(steps, [*steps[1:], None], strict=False):
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


def _text(problem: Mapping[str, Any], room: int) -> str:
    kind, context, value = problem["type"], problem.get("ctx", {}), problem["input"]
    if kind in ("unknown_field", "unsupported_field", "refused"):
        return str(problem["msg"])
    if kind == "missing":
        return "expected a value, got none"
    if kind.startswith("union_tag"):
        field = context["discriminator"].strip("'")
        field = "type" if field.endswith("()") else field  # a function of ours, which reads the type
        if not isinstance(value, dict) or field not in value:
            return f"expected an object with {field}, got {shown(value, room)}"
        return f"expected one of {context['expected_tags']} as its {field}, got {shown(value[field], room)}"
    what = "an object" if kind in ("model_type", "model_attributes_type", "dict_type") else None
    if kind in ("too_short", "too_long"):
        most = kind == "too_long"
        number = context["max_length" if most else "min_length"]
        return f"expected at {'most' if most else 'least'} {number} items, got {context['actual_length']}"
    what = what or str(problem["msg"]).removeprefix("Input should be ").removeprefix("Input should ")
    return f"expected {what}, got {shown(value, room)}"
