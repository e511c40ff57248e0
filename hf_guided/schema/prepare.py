"""From the user's schema to the engine's schema: closed objects, formats and patterns written out."""

from __future__ import annotations

import re
from typing import Any

from ..constraints.json_schema_keywords import COUNTS
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss
from ..regex import ALL, CharSet, UnsupportedRegex, only, parse_search, to_pattern
from .additional_properties import close_objects
from .documents import LATEST, check_dialect, dialect_of
from .formats import spell_out
from .pointers import local_target
from .subschemas import iter_subschemas


def prepare(constraint: JsonSchema, *, alphabet: CharSet = ALL) -> tuple[dict[str, Any] | bool, list[Loss]]:
    """A copy of the schema that allows the same values (or, by ``extra``, fewer) in keywords that engines agree on.

    Args:
        constraint: the schema and its options.
        alphabet: what strings with a pattern may be made of: for engines that write them without escapes.

    Returns:
        The schema; and what of it is not in plain words: the patterns for which there are none (they are still in
        the schema).

    Raises:
        InvalidConstraint: it is no valid JSON Schema, or no value satisfies it; a ``$ref`` inside the document leads
            nowhere, or only back to itself.
        UnsupportedConstraint: it is of a draft before 4.
    """
    constraint.check()
    schema = constraint.schema
    if schema is False:
        raise InvalidConstraint("the JSON Schema is `false`: no value satisfies it")
    for subschema in iter_subschemas(schema):
        if isinstance(subschema.schema, dict):
            check_dialect(dialect_of(subschema.schema, LATEST), subschema.pointer)
    _check_references(schema)
    _plain_words(schema)
    if constraint.extra == "forbid":
        close_objects(schema)
    spell_out(schema)
    return schema, _plain_patterns(schema, alphabet)


def _plain_words(schema: dict[str, Any] | bool) -> None:
    """Remove instructions to an engine that are not JSON Schema, and write 2 for the 2.0 that engines refuse."""
    for subschema in iter_subschemas(schema):
        if isinstance(subschema.schema, dict):
            subschema.schema.pop("x-guidance", None)  # llguidance: "lenient" would drop keywords in silence
            for keyword in COUNTS & subschema.schema.keys():
                count = subschema.schema[keyword]
                if isinstance(count, float) and count.is_integer():
                    subschema.schema[keyword] = int(count)


def _plain_patterns(schema: dict[str, Any] | bool, alphabet: CharSet) -> list[Loss]:
    losses: list[Loss] = []
    for subschema in list(iter_subschemas(schema)):
        if isinstance(subschema.schema, dict) and isinstance(subschema.schema.get("pattern"), str):
            try:
                node = only(parse_search(subschema.schema["pattern"]), alphabet)
                subschema.schema["pattern"] = f"^(?:{to_pattern(node)})$"
            except UnsupportedRegex as error:
                losses.append(Loss(subschema.pointer, "pattern", str(error)))
            except re.error as error:
                losses.append(Loss(subschema.pointer, "pattern", f"the pattern does not compile: {error}"))
    return losses


def _check_references(schema: dict[str, Any] | bool) -> None:
    """Follow each reference once: those that lead to one that was followed are good too."""
    good: set[str] = set()
    for subschema in iter_subschemas(schema):
        here: Any = subschema.schema
        passed: dict[str, None] = {}
        while isinstance(here, dict) and isinstance(ref := here.get("$ref"), str) and f"{ref}/".startswith("#/"):
            if ref in good:
                break
            if ref in passed:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {subschema.pointer or '/'}, which refers back to itself",
                    pointers=[subschema.pointer],
                )
            passed[ref] = None
            here = local_target(schema, ref)
            if here is None:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {subschema.pointer or '/'}, which does not exist",
                    pointers=[subschema.pointer],
                )
        good.update(passed)
