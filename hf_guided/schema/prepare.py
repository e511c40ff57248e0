"""From the user's schema to the engine's schema: closed objects, formats and patterns written out.

``extra="forbid"``: objects that name their properties get no others, where that is surely what was meant.
JSON Schema lets every object have more than its schema names. Closing one is safe only if nothing else describes the
same object: beside or inside ``allOf``, ``$ref``, ``if`` ... the other part may name the rest. Those stay open.
"""

from __future__ import annotations

import re
from typing import Any

from ..constraints.json_schema_keywords import COUNTS
from ..constraints.values import JsonSchema
from ..errors import InvalidConstraint, Loss
from ..regex import ALL, CharSet, UnsupportedRegex, only, parse_search, to_pattern
from .documents import LATEST, check_dialect, dialect_of
from .formats import FORMATS
from .subschemas import Subschema, children, iter_keywords, iter_subschemas, local_target

_SAYS_IT_ITSELF = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties"})
# Beside these another schema describes the same object.
_SHARED = frozenset("allOf anyOf oneOf $ref $dynamicRef $recursiveRef if dependentSchemas dependencies".split())
# Inside these a schema describes only a part of the object, or what it must not match.
_PARTS = frozenset("allOf not if then else dependentSchemas dependencies".split())
_BRANCHES = frozenset({"anyOf", "oneOf"})
_NAMES = frozenset({"properties", "required", "dependentRequired"})


def prepare(constraint: JsonSchema, *, alphabet: CharSet = ALL) -> tuple[dict[str, Any] | bool, list[Loss]]:
    """A copy of the schema that allows the same values (or, by ``extra``, fewer) in keywords that engines agree on.

    With it come the patterns for which there are no plain words; they are still in the schema. ``alphabet`` is what
    strings with a pattern may be made of, for engines that write them without escapes. InvalidConstraint: no valid JSON
    Schema, no value satisfies it, or a ``$ref`` inside the document leads nowhere or only back to itself.
    UnsupportedConstraint: it is of a draft before 4.
    """
    constraint.check()
    schema = constraint.schema
    if schema is False:
        raise InvalidConstraint("the JSON Schema is `false`: no value satisfies it")
    for pointer, here in iter_keywords(schema):
        check_dialect(dialect_of(here, LATEST), pointer)
    _check_references(schema)
    _plain_words(schema)
    if constraint.extra == "forbid":
        close_objects(schema)
    spell_out(schema)
    return schema, _plain_patterns(schema, alphabet)


def _plain_words(schema: dict[str, Any] | bool) -> None:
    """Remove instructions to an engine that are not JSON Schema, and write 2 for the 2.0 that engines refuse."""
    for _, here in iter_keywords(schema):
        here.pop("x-guidance", None)  # llguidance: "lenient" would drop keywords in silence
        for keyword in COUNTS & here.keys():
            count = here[keyword]
            if isinstance(count, float) and count.is_integer():
                here[keyword] = int(count)


def _plain_patterns(schema: dict[str, Any] | bool, alphabet: CharSet) -> list[Loss]:
    losses: list[Loss] = []
    for pointer, here in iter_keywords(schema):
        if isinstance(here.get("pattern"), str):
            try:
                node = only(parse_search(here["pattern"]), alphabet)
                here["pattern"] = f"^(?:{to_pattern(node)})$"
            except UnsupportedRegex as error:
                losses.append(Loss(pointer, "pattern", str(error)))
            except re.error as error:
                losses.append(Loss(pointer, "pattern", f"the pattern does not compile: {error}"))
    return losses


def _check_references(schema: dict[str, Any] | bool) -> None:
    """Follow each reference once: those that lead to one that was followed are good too."""
    good: set[str] = set()
    for pointer, keywords in iter_keywords(schema):
        here: Any = keywords
        passed: dict[str, None] = {}
        while isinstance(here, dict) and isinstance(ref := here.get("$ref"), str) and f"{ref}/".startswith("#/"):
            if ref in good:
                break
            if ref in passed:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {pointer or '/'}, which refers back to itself",
                    pointers=[pointer],
                )
            passed[ref] = None
            here = local_target(schema, ref)
            if here is None:
                raise InvalidConstraint(
                    f"the JSON Schema refers to {ref!r} at {pointer or '/'}, which does not exist", pointers=[pointer]
                )
        good.update(passed)


def close_objects(schema: dict[str, Any] | bool) -> None:
    """Set ``additionalProperties: false`` on every object schema that may be closed, in place.

    Names that are required but not declared count as declared.
    """
    stay_open = _must_stay_open(schema)
    for _, here in list(iter_keywords(schema)):
        is_open = id(here) in stay_open or (_SAYS_IT_ITSELF | _SHARED) & here.keys()
        if isinstance(here.get("properties"), dict) and not is_open:
            for name in here.get("required", ()):
                here["properties"].setdefault(name, True)
            here["additionalProperties"] = False


def _must_stay_open(root: dict[str, Any] | bool) -> set[int]:
    """The ids of the schema objects that describe only a part of an object, wherever the references to them are."""
    partial_ids: set[int] = set()
    todo = [(subschema, False) for subschema in iter_subschemas(root) if subschema.keyword in ("", "$ref")]
    while todo:
        subschema, partial = todo.pop()
        here = subschema.schema
        if not isinstance(here, dict) or (partial and id(here) in partial_ids):
            continue
        if partial:
            partial_ids.add(id(here))
        shared = partial or bool((_SHARED - _BRANCHES) & here.keys())
        for child in children(subschema):
            if child.keyword in _BRANCHES:
                # Branches are whole objects, unless their parent adds something to each.
                todo.append((child, shared or bool(_NAMES & here.keys())))
            elif child.keyword in ("$defs", "definitions"):
                todo.append((child, False))
            else:
                todo.append((child, partial or child.keyword in _PARTS))
        target = local_target(root, here.get("$ref"))
        if target is not None and (partial or len((_SHARED | _NAMES) & here.keys()) > 1):
            todo.append((Subschema("", "$ref", target), True))
    return partial_ids


def spell_out(schema: dict[str, Any] | bool) -> None:
    """Replace every ``format`` of the table by its pattern, in place, for strings; other formats stay.

    Keywords already there stay: conflicting ones go into an ``allOf``.
    """
    for _, here in list(iter_keywords(schema)):
        name = here.get("format")
        if not isinstance(name, str) or name not in FORMATS:
            continue
        del here["format"]
        if FORMATS[name].keys() & here.keys():
            here["allOf"] = [*here.get("allOf", ()), dict(FORMATS[name])]
        else:
            here.update(FORMATS[name])
