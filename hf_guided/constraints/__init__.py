"""What can be asked for: frozen values, the plain forms they are made of, tool calls, response formats."""

from .values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag

__all__ = ["Choice", "Constraint", "Grammar", "JsonObject", "JsonSchema", "Regex", "StructuralTag"]
