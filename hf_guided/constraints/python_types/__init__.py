"""Python types as JSON Schemas, and back: every type that Pydantic's TypeAdapter takes."""

from .adapters import TypeSchema, adapter_of, is_type, schema_of
from .notes import NARROWER, TypeNote

__all__ = ["NARROWER", "TypeNote", "TypeSchema", "adapter_of", "is_type", "schema_of"]
