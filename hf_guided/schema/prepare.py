"""From what the user wrote to what an engine is given: closed objects, formats and patterns in plain words."""

from __future__ import annotations

import re
from typing import Any

from ..constraints.json_schema_keywords import COUNTS
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss
from ..regex import ALL, CharSet, UnsupportedRegex, only, parse_search, to_pattern
from .additional_properties import close_objects
from .formats import spell_out
from .pointers import local_target
from .subschemas import walk


def prepare(constraint: JsonSchema, *, alphabet: CharSet = ALL) -> tuple[dict[str, Any] | bool, list[Loss]]:
    """A copy of the schema that says the same (or, by ``extra``, less) in words that engines agree on.

    Args:
        constraint: the schema and its options.
        alphabet: what strings with a pattern may be made of: for engines that write them without escapes.

    Returns:
        The schema; and what of it is not in plain words: the patterns for which there are none (they are still in
        the schema).

    Raises:
        InvalidConstraint: it is no valid JSON Schema, or no value satisfies it; a ``$ref`` inside the document leads
            nowhere, or only back to itself.
    """
    constraint.check()
    schema = constraint.schema
    if schema is False:
        raise InvalidConstraint("the JSON Schema is `false`: no value satisfies it")
    _check_references(schema)
    _plain_words(schema)
    if constraint.extra == "forbid":
        close_objects(schema)
    spell_out(schema)
    return schema, _plain_patterns(schema, alphabet)


def _plain_words(schema: dict[str, Any] | bool) -> None:
    """Take out what is no JSON Schema but an order to an engine, and write 2 for the 2.0 that engines refuse."""
    for place in walk(schema):
        if isinstance(place.schema, dict):
            place.schema.pop("x-guidance", None)  # llguidance: "lenient" would drop keywords in silence
            for keyword in COUNTS & place.schema.keys():
                count = place.schema[keyword]
                if isinstance(count, float) and count.is_integer():
                    place.schema[keyword] = int(count)


def _plain_patterns(schema: dict[str, Any] | bool, alphabet: CharSet) -> list[Loss]:
    losses: list[Loss] = []
    for place in list(walk(schema)):
        if isinstance(place.schema, dict) and isinstance(place.schema.get("pattern"), str):
            try:
                found = only(parse_search(place.schema["pattern"]), alphabet)
                place.schema["pattern"] = f"^(?:{to_pattern(found)})$"
            except UnsupportedRegex as error:
                losses.append(Loss(place.pointer, "pattern", str(error)))
            except re.error as error:
                losses.append(Loss(place.pointer, "pattern", f"the pattern does not compile: {error}"))
    return losses


def _check_references(schema: dict[str, Any] | bool) -> None:
    for place in walk(schema):
        here: Any = place.schema
        passed = []
        while isinstance(here, dict) and isinstance(ref := here.get("$ref"), str) and f"{ref}/".startswith("#/"):
            if ref in passed:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {place.pointer or '/'}, which only refers back to itself",
                    pointers=[place.pointer],
                )
            passed.append(ref)
            here = local_target(schema, ref)
            if here is None:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {place.pointer or '/'}, which does not exist",
                    pointers=[place.pointer],
                )
