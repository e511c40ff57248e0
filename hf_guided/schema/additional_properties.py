"""``extra="forbid"``: objects that name their properties get no others, where that is surely what was meant.

JSON Schema lets every object have more than its schema names. Closing one is safe only if nothing else describes the
same object: beside or inside ``allOf``, ``$ref``, ``if`` ... the other part may name the rest. Those stay open.
"""

from __future__ import annotations

from typing import Any

from .pointers import local_target
from .subschemas import Subschema, children, iter_subschemas

_SAYS_IT_ITSELF = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties"})
# Beside these another schema describes the same object.
_SHARED = frozenset("allOf anyOf oneOf $ref $dynamicRef $recursiveRef if dependentSchemas dependencies".split())
# Inside these a schema describes only a part of the object, or what it must not match.
_PARTS = frozenset("allOf not if then else dependentSchemas dependencies".split())
_BRANCHES = frozenset({"anyOf", "oneOf"})
_NAMES = frozenset({"properties", "required", "dependentRequired"})


def close_objects(schema: dict[str, Any] | bool) -> None:
    """Set ``additionalProperties: false`` on every object schema that may be closed, in place.

    Names that are required but not declared count as declared.
    """
    stay_open = _must_stay_open(schema)
    for subschema in list(iter_subschemas(schema)):
        here = subschema.schema
        if (
            isinstance(here, dict)
            and isinstance(here.get("properties"), dict)
            and id(here) not in stay_open
            and not (_SAYS_IT_ITSELF | _SHARED) & here.keys()
        ):
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
        if target is not None and (partial or len(_describing(here)) > 1):
            todo.append((Subschema("", "$ref", target), True))
    return partial_ids


def _describing(schema: dict[str, Any]) -> frozenset[str]:
    return (_SHARED | _NAMES) & schema.keys()
