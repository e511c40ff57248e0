"""Where the schemas stand in a JSON Schema: every position that holds one, and none that merely looks like one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from ..constraints.json_schema_keywords import HOLDS_SCHEMA, HOLDS_SCHEMA_LIST, HOLDS_SCHEMA_MAP
from .pointers import local_target


class Place(NamedTuple):
    """A schema inside a schema.

    Args:
        pointer: JSON pointer from the root; "" is the root itself.
        keyword: the keyword that holds it; "" for the root, "$ref" for one found only by following a reference.
        schema: the schema there, the very object of the document.
    """

    pointer: str
    keyword: str
    schema: dict[str, Any] | bool


def walk(schema: dict[str, Any] | bool) -> Iterator[Place]:
    """All schemas of a document, the outer before the inner, each once.

    What a reference names is a schema even where no keyword holds it (``#/components/schemas/x``): such ones follow
    at the end.
    """
    todo = [Place("", "", schema)]
    refs: list[str] = []
    seen: set[str] = set()
    while todo:
        place = todo.pop()
        if place.pointer not in seen:
            seen.add(place.pointer)
            yield place
            todo.extend(reversed(list(children(place))))
            ref = place.schema.get("$ref") if isinstance(place.schema, dict) else None
            if isinstance(ref, str):
                refs.append(ref)
        while refs and not todo:
            ref = refs.pop(0)
            target = local_target(schema, ref)
            if isinstance(target, (dict, bool)):
                todo.append(Place(unquote(ref[1:]), "$ref", target))


def children(place: Place) -> Iterator[Place]:
    """The schemas directly inside one."""
    if not isinstance(place.schema, dict):
        return
    for keyword, value in place.schema.items():
        pointer = f"{place.pointer}/{escape(keyword)}"
        held: list[tuple[str, Any]] = []
        if keyword in HOLDS_SCHEMA and not isinstance(value, list):
            held = [(pointer, value)]
        elif keyword in HOLDS_SCHEMA_LIST and isinstance(value, list):
            held = [(f"{pointer}/{index}", item) for index, item in enumerate(value)]
        elif keyword in HOLDS_SCHEMA_MAP and isinstance(value, dict):
            held = [(f"{pointer}/{escape(name)}", item) for name, item in value.items()]
        # The old `dependencies` may hold lists of names beside schemas.
        yield from (Place(at, keyword, item) for at, item in held if isinstance(item, (dict, bool)))


def escape(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")


def leaves(value: Any) -> Iterator[Any]:
    """The strings, numbers ... in a JSON value, the names in its objects among them."""
    todo = [value]
    while todo:
        here = todo.pop()
        if isinstance(here, dict):
            todo += [*here.keys(), *here.values()]
        elif isinstance(here, list):
            todo += here
        else:
            yield here
