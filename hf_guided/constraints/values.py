"""Constraints on a row's text: frozen, hashable values.

A constraint copies what it is given, so changing a schema dict afterwards changes nothing. Two constraints with the
same ``key`` allow the same texts and share one compiled grammar; they may still differ in how they parse the text
back, so parse with the constraint the caller gave, not with the one that was compiled.

Constructors refuse what is malformed. Two checks need more time than a constructor should take and are done when a
constraint is compiled or audited: a schema against its metaschema (``check()``, about a millisecond), and the rules
of a grammar (its engine).
"""

from __future__ import annotations

from .base import Constraint, set_fields
from .json_constraints import JsonObject, JsonSchema, json_style, laid_out
from .structural_tag import StructuralTag
from .text_constraints import DEFAULT_ROOT, Choice, Grammar, Regex

__all__ = [
    "DEFAULT_ROOT",
    "Choice",
    "Constraint",
    "Grammar",
    "JsonObject",
    "JsonSchema",
    "Regex",
    "StructuralTag",
    "json_style",
    "laid_out",
    "set_fields",
]
