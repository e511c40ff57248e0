"""What no request may hold, wherever it stands: numbers that are none, text that is none, endless nesting."""

from __future__ import annotations

import math
from typing import Any

from ...constraints.json_text import MAX_NESTING
from .refusals import path_in, refused

_MOST_BITS = 1024  # a double has no larger numbers

_Step = tuple[Any, Any]  # the value around it, and the last step


def check(body: object) -> dict[str, Any]:
    """Refuse what is no JSON object of real numbers and real text.

    Args:
        body: what ``json.loads`` made of a request's body; Python's reader takes NaN, and escapes of lone surrogates.

    Raises:
        RequestRefused: the path of the first value that cannot be.
    """
    if not isinstance(body, dict):
        raise refused(None, f"expected a JSON object as the request's body, got a {type(body).__name__}")
    todo: list[tuple[Any, _Step | None, int]] = [(body, None, 0)]
    while todo:
        value, path, depth = todo.pop()
        if isinstance(value, (dict, list)):
            if depth == MAX_NESTING:
                raise refused(_written(body, path), f"expected at most {MAX_NESTING} levels", "too_deep")
            for key in value if isinstance(value, dict) else ():
                if not isinstance(key, str) or not _is_text(key):
                    raise refused(_written(body, path), "expected keys that are text")
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            todo.extend((child, (path, step), depth + 1) for step, child in pairs)
        elif problem := _problem(value):
            raise refused(_written(body, path), problem)
    return body


def _problem(value: Any) -> str | None:
    if isinstance(value, str):
        return None if _is_text(value) else "expected text, got half of a surrogate pair"
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"expected a finite number, got {value}"
    if isinstance(value, int):
        return None if value.bit_length() <= _MOST_BITS else "expected a number below 1e308, got a larger one"
    return f"expected JSON, got a {type(value).__name__}"


def _is_text(text: str) -> bool:
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
    return path_in(body, reversed(steps[-3:])) or None  # the outermost steps: a path may have hundreds
