"""Strict JSON in and out: the value read is exactly the value written, or an error names the position that is not JSON.

Python's `json` lets through what would make two different documents look alike: repeated keys, NaN, keys that are
not strings, lone surrogates. A constraint is identified by its text, so all of these are refused.
"""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NoReturn

from ..errors import InvalidConstraint, shown

MAX_NESTING = 256
"""Deeper JSON is refused: engines and Python's own json fail on it at depths that vary."""

MAX_POINTERS = 100_000_000
"""Characters of the JSON pointers to all values together: a megabyte of ordinary JSON has some millions. A name of a
megabyte around 10,000 values makes 10 gigabytes, and every walk through the document writes them."""


def loads(text: str, what: str) -> Any:
    """Parse JSON text, which errors name ``what``, e.g. "JSON Schema".

    Raises:
        InvalidConstraint: not JSON, a repeated key, NaN or Infinity, or nested too deeply.
    """
    try:
        return json.loads(text, object_pairs_hook=_unique_keys, parse_constant=no_constant)
    except RecursionError:
        raise InvalidConstraint(
            f"{what} is nested deeper than {MAX_NESTING} levels; flatten it with $defs and $ref"
        ) from None
    except ValueError as error:
        raise InvalidConstraint(f"{what} is not JSON: {error}; got {shown(text)}") from None


def dumps(value: Any, what: str) -> str:
    """Compact JSON text of plain data, in the order it has.

    Args:
        value: dicts with string keys, lists, tuples, strings, finite numbers, bools, None.
        what: its name in errors.

    Raises:
        InvalidConstraint: the value has no exact JSON text.
    """
    text = _text_of_plain(value)
    if text is not None:
        return text
    try:
        _check(value, what)
        text = _encode(value)
        text.encode()  # a lone surrogate has no UTF-8, so no text could ever match it
    except RecursionError:
        raise InvalidConstraint(
            f"{what} refers to itself, or is nested deeper than {MAX_NESTING} levels; use $defs and $ref"
        ) from None
    except InvalidConstraint:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidConstraint(f"{what} has no exact JSON text: {error}; use plain JSON values only") from None
    return text


def read_only(text: str) -> Any:
    """The value of a text that ``dumps`` has written. Never change it: callers share the values of short texts."""
    return _read(text) if len(text) <= _SHORT else _decode(text)[0]


def digest(*parts: Any) -> str:
    """Blake2b of JSON values; 1, 1.0, True and "1" differ, as do ["ab"] and ["a", "b"]."""
    return hashlib.blake2b(_encode(parts).encode(), digest_size=32).hexdigest()


def is_json(value: Any) -> bool:
    """Whether a value can be a part of a line of JSON, and be read there by every parser."""
    try:
        json.dumps([[value]], allow_nan=False)  # at its depth in the output
    except (TypeError, ValueError, RecursionError):  # types of Python alone, infinity, or too deep for `json`
        return False
    return True


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        repeated = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {repeated!r} appears twice in one object")
    return result


def no_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, as ``parse_constant`` of Python's decoders."""
    raise ValueError(f"{name} is not a JSON number")


_Path = tuple[Any, Any]  # path of the value around it, and the last step
_AROUND_OTHERS = (dict, list, tuple)
_AROUND_NONE = frozenset({str, int, float, bool, type(None)})  # the types of most values
_decode = json.JSONDecoder().raw_decode  # ``decode`` also looks for white space around the value
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_SHORT = 8_000
"""Characters of a text whose values are kept, and whose pointers cannot have ``MAX_POINTERS`` characters: there are no
more values than characters, and no pointer is much longer than the text."""


@lru_cache(maxsize=4)
def _read(text: str) -> Any:
    return _decode(text)[0]


def _text_of_plain(value: Any) -> str | None:
    """The text, if it is short, cannot nest too deeply, and reads as the same value; so it is nearly always.

    Faster than ``_check``, with the same result.
    """
    try:
        text = _encode(value)
        if len(text) > _SHORT or text.count("{") + text.count("[") > MAX_NESTING:
            return None
        text.encode()  # raises for a lone surrogate
        # Python's own types alone, with equal values: others may say of anything that it is equal.
        return text if marshal.dumps(value, 0) == marshal.dumps(_read(text), 0) else None
    except (TypeError, ValueError, RecursionError):
        return None  # ``dumps`` finds out where it is


def _check(value: Any, what: str) -> None:
    """Refuse keys that are not strings, what nests too deeply, and what has too long pointers."""
    total = 0
    todo: list[tuple[Any, _Path | None, int, int]] = [(value, None, 0, MAX_NESTING)]
    while todo:
        here, path, length, levels_left = todo.pop()
        if not isinstance(here, _AROUND_OTHERS):
            continue
        if not levels_left:
            raise RecursionError
        named = here if isinstance(here, dict) else None
        # The length of a pointer without its last name; it is written only for an error.
        own = length + (9 if named is None else 1)
        total += len(here) * own + (0 if named is None else _length_of_names(named, path))
        steps: Iterable[tuple[Any, Any]] = enumerate(here) if named is None else named.items()
        for step, child in steps:
            if type(child) not in _AROUND_NONE and isinstance(child, _AROUND_OTHERS):
                todo.append((child, (path, step), own + (0 if named is None else len(step)), levels_left - 1))
        if total > MAX_POINTERS:
            raise InvalidConstraint(
                f"{what}: the names around its values are too long: the paths to all values have more than "
                f"{MAX_POINTERS} characters; shorten them"
            )


def _length_of_names(value: dict[Any, Any], path: _Path | None) -> int:
    """Count the characters of all keys together; raises TypeError for one that is no string."""
    try:
        return len("".join(value if type(value) is dict else [name for name, _ in value.items()]))
    except TypeError:  # json.dumps converts the keys 1, 1.0, True and None to strings
        key = next(name for name, _ in value.items() if not isinstance(name, str))
        raise TypeError(f"the key {key!r} at {_pointer(path) or '/'} is a {type(key).__name__}, not a string") from None


def _pointer(path: _Path | None) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(f"/{step}")
    return "".join(reversed(steps))
