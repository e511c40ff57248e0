"""The subschemas of a JSON Schema: every position that holds a schema, and none that merely looks like one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP

_HOLDING = HOLDS_SCHEMA | HOLDS_SCHEMA_LIST | HOLDS_SCHEMA_MAP


class Subschema(NamedTuple):
    """A schema inside a schema."""

    pointer: str  # JSON pointer from the root; "" is the root itself
    keyword: str  # the holder's keyword; "" for the root, "$ref" for one found only by following a reference
    schema: dict[str, Any] | bool  # the very object of the document


def iter_subschemas(schema: dict[str, Any] | bool) -> Iterator[Subschema]:
    """All schemas of a document, the outer before the inner, each once.

    Targets of references follow at the end, also where no keyword holds them (``#/components/schemas/x``).
    """
    todo = [Subschema("", "", schema)]
    refs: deque[str] = deque()
    seen: set[str] = set()
    while todo:
        subschema = todo.pop()
        if subschema.pointer not in seen:
            seen.add(subschema.pointer)
            yield subschema
            todo += reversed(children(subschema))
            ref = subschema.schema.get("$ref") if isinstance(subschema.schema, dict) else None
            if isinstance(ref, str):
                refs.append(ref)
        while refs and not todo:
            ref = refs.popleft()
            target = local_target(schema, ref)
            if isinstance(target, (dict, bool)):
                todo.append(Subschema(unquote(ref[1:]), "$ref", target))


def iter_keywords(schema: dict[str, Any] | bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Pointer and keywords of the schemas that ``iter_subschemas`` yields, without those that are true or false."""
    return ((each.pointer, each.schema) for each in iter_subschemas(schema) if isinstance(each.schema, dict))


def children(subschema: Subschema) -> list[Subschema]:
    """The schemas directly inside one."""
    if not isinstance(subschema.schema, dict):
        return []
    found: list[Subschema] = []
    for keyword, value in subschema.schema.items():
        if keyword not in _HOLDING:
            continue
        pointer = f"{subschema.pointer}/{keyword}"
        held: list[tuple[str, Any]] = []
        if keyword in HOLDS_SCHEMA and not isinstance(value, list):
            held = [(pointer, value)]
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            held = [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        elif keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            held = [(f"{pointer}/{escape(name)}", item) for name, item in value.items()]
        # The old `dependencies` may hold lists of names beside schemas.
        found += [Subschema(at, keyword, item) for at, item in held if isinstance(item, (dict, bool))]
    return found


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def local_target(root: Any, ref: Any) -> Any:
    """The target of a reference inside the document (``#``, ``#/$defs/a``); None if there is none."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    return lookup(root, unquote(ref[1:]))


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
