"""A schema whose patterns Python's `re` reads, for validators that use it; they match the same strings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ..errors import InvalidConstraint
from ..regex import UnsupportedRegex, parse_search, to_pattern, tree_cache
from .json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP

_CODE_POINT = re.compile(r"\\u\{([0-9a-f]+)\}")  # as plain patterns write one; Python wants eight digits


@tree_cache(maxsize=512)
def _python_pattern(pattern: str) -> str:
    try:
        re.compile(pattern)
        return pattern
    except re.error as error:
        try:
            plain = to_pattern(parse_search(pattern))
        except (re.error, UnsupportedRegex) as refused:
            raise InvalidConstraint(
                f"the pattern {pattern!r} cannot be checked in a finished text: Python does not read it ({error}), "
                f"and it cannot be spelled out ({refused}); write it so that Python reads it"
            ) from None
    spelled = _CODE_POINT.sub(lambda match: f"\\U{int(match[1], 16):08x}", plain)
    return rf"\A(?:{spelled})\Z"


def with_python_patterns(schema: Any) -> Any:
    r"""A copy in which patterns that only ECMA-262 reads (``\p{L}``, ``[\w-.]``) are spelled out.

    Args:
        schema: a JSON Schema as plain data.

    Raises:
        InvalidConstraint: Python reads a pattern in no spelling.
    """
    if not isinstance(schema, dict):
        return schema
    spelled: dict[str, Any] = {}
    for keyword, value in schema.items():
        apply = _APPLIED.get(keyword)
        spelled[keyword] = value if apply is None else apply(value)
    return spelled


def _each_item(value: Any) -> Any:
    return [*map(with_python_patterns, value)] if isinstance(value, list) else with_python_patterns(value)


def _each_member(value: Any) -> Any:
    return {name: _each_item(member) for name, member in value.items()} if isinstance(value, dict) else value


def _each_pattern(value: Any) -> Any:
    return (
        {_python_pattern(name): _each_item(member) for name, member in value.items()}
        if isinstance(value, dict)
        else value
    )


_APPLIED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(HOLDS_SCHEMA | HOLDS_SCHEMA_LIST, _each_item),
    **dict.fromkeys(HOLDS_SCHEMA_MAP, _each_member),
    "patternProperties": _each_pattern,
    "pattern": lambda value: _python_pattern(value) if isinstance(value, str) else value,
}
