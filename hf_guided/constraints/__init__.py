"""Constraints: frozen values, their plain forms, Python types, tool calls, response formats."""

from .values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag

__all__ = ["Choice", "Constraint", "Grammar", "JsonObject", "JsonSchema", "Regex", "StructuralTag"]
