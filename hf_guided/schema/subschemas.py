"""The subschemas of a JSON Schema: every position that holds a schema, and none that merely looks like one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP


def iter_keywords(schema: dict[str, Any] | bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pointer and keywords of all schemas of a document but true and false, the outer before the inner, each once.

    Targets of references follow at the end, also where no keyword holds them (``#/components/schemas/x``).
    """
    todo: list[tuple[str, Any]] = [("", schema)]
    refs: deque[str] = deque()
    seen: set[str] = set()
    while todo:
        pointer, keywords = todo.pop()
        if isinstance(keywords, dict) and pointer not in seen:
            seen.add(pointer)
            yield pointer, keywords
            todo += reversed(_inside(pointer, keywords))
            if isinstance(ref := keywords.get("$ref"), str) and (ref == "#" or ref.startswith("#/")):
                refs.append(unquote(ref[1:]))
        while refs and not todo:
            target = refs.popleft()
            todo.append((target, lookup(schema, target)))


def _inside(pointer: str, schema: dict[str, Any]) -> list[tuple[str, Any]]:
    """The values where a schema has schemas directly inside, with their pointers."""
    held: list[tuple[str, Any]] = []
    for keyword, value in schema.items():
        at = f"{pointer}/{keyword}"
        if keyword in HOLDS_SCHEMA and isinstance(value, dict):
            held.append((at, value))
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            held += [(f"{at}/{index}", item) for index, item in enumerate(value)]
        elif keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            held += [(f"{at}/{escape(name)}", item) for name, item in value.items()]
    return held


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def lookup(root: Any, pointer: str) -> Any:
    """The value at a JSON pointer; None if there is none."""
    here = root
    for token in pointer.split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(here, dict) and token in here:
            here = here[token]
        elif isinstance(here, list) and token.isdecimal() and int(token) < len(here):
            here = here[int(token)]
        else:
            return None
    return here
