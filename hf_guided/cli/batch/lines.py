"""One row's answer, as a line of JSON or of a table."""

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """The outcome of a row.

    Args:
        row: its number.
        done: whether it belongs to the output, not to the failures.
        line: the answer's line in the output.
    """

    row: int
    done: bool
    line: dict[str, Any]


def answer_in(line: bytes) -> Answer | None:
    """The answer that ``as_line`` has written as this line; None if it has not."""
    try:
        row, done, fields = json.loads(line)
    except (ValueError, TypeError, RecursionError):
        return None
    if type(row) is not int or row < 0 or type(done) is not bool or not isinstance(fields, dict):
        return None
    return Answer(row, done, fields)


def as_line(value: Any) -> bytes:
    """JSON in UTF-8, and a line break."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:  # a lone surrogate, which JSON may hold and UTF-8 may not
        text = json.dumps(value, allow_nan=False).encode()
    return text + b"\n"


def as_cells(line: dict[str, Any]) -> dict[str, Any]:
    """A line of a table: a value is JSON as text, and other types are written as in JSON."""
    return {
        name: value if isinstance(value, str) and name != "value" else json.dumps(value, ensure_ascii=False)
        for name, value in line.items()
        if value is not None or name == "value"
    }
