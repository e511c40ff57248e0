"""The JSON Schema that xgrammar is proven to enforce."""

from __future__ import annotations

import re
from typing import Any

from ..constraints.json_schema_keywords import COUNTS
from ..regex import CharSet, Node, UnsupportedRegex, chars, parse_search, repeat
from ..schema.subschemas import leaves
from .json_subset import JsonSubset, Schema
from .xgrammar_patterns import Patterns

UNESCAPED = ~(CharSet([(0, 0x1F)]) | CharSet.of('"\\'))
_INT64 = 2**63 - 1
_MAX_COUNT = 10**15


class XGrammarSubset(JsonSubset):
    """What xgrammar enforces of a schema.

    Args:
        root: the prepared schema; its patterns hold no character that JSON escapes.
        patterns: takes the patterns, which the reduced schema replaces by others.
    """

    engine = "xgrammar"
    enforced = {
        "string": frozenset({"minLength", "maxLength", "pattern"}),
        "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}),
        "number": frozenset(),
        "boolean": frozenset(),
        "null": frozenset(),
        "array": frozenset({"items", "minItems", "maxItems"}),
        "object": frozenset({"properties", "required", "additionalProperties"}),
    }

    def __init__(self, root: Schema | bool, patterns: Patterns):
        super().__init__(root)
        self._patterns = patterns

    def writes(self, value: Any) -> bool:
        """See ``JsonSubset.writes``."""
        return all(not isinstance(leaf, int) or abs(leaf) <= _INT64 for leaf in leaves(value))

    def of_type(self, kind: str, schema: Schema, pointer: str) -> Schema:
        """See ``JsonSubset.of_type``."""
        for keyword in sorted(COUNTS & schema.keys()):
            if schema[keyword] > _MAX_COUNT:
                self.lose(pointer, keyword, f"counts to {_MAX_COUNT} only")
                del schema[keyword]
        if kind == "string":
            return self._string(schema, pointer)
        if kind == "array":
            reduced = {"type": "array", **schema}
            if "items" in schema:
                reduced["items"] = self.inner(schema["items"], pointer, "items")
            return reduced
        if kind == "object":
            return self._object(schema, pointer)
        if kind == "integer":
            for keyword, bound in list(schema.items()):
                if abs(bound) > _INT64:
                    self.lose(pointer, keyword, "takes bounds of 64 bits only")
                    del schema[keyword]
                elif int(bound) != bound:
                    self.lose(pointer, keyword, "takes whole numbers only as bounds of integers")
                    del schema[keyword]
                else:
                    schema[keyword] = int(bound)
        return {"type": kind, **schema}

    def _string(self, schema: Schema, pointer: str) -> Schema:
        low, high = schema.get("minLength", 0), schema.get("maxLength")
        if "pattern" in schema:
            for keyword in {"minLength", "maxLength"} & schema.keys():
                self.lose(pointer, keyword, "ignores it beside pattern")
            try:
                return self._of_pattern(parse_search(schema["pattern"]))
            except (UnsupportedRegex, re.error):
                return {"type": "string"}  # lost already, when the schema was prepared
        if low or high is not None:
            if high is not None and low > high:
                return self.nothing(pointer, "minLength")
            return self._of_pattern(repeat(chars(UNESCAPED), int(low), None if high is None else int(high)))
        return {"type": "string"}

    def _of_pattern(self, node: Node) -> Schema:
        return {"type": "string", "pattern": self._patterns.add(node)}

    def _object(self, schema: Schema, pointer: str) -> Schema:
        properties = schema.get("properties", {})
        extra = schema.get("additionalProperties", True)
        reduced: Schema = {"type": "object"}
        if properties and extra is not False:
            self.lose(pointer, "additionalProperties", "may repeat a declared name as an additional one")
        if properties or extra is False:
            reduced["properties"] = {
                name: self.inner(value, pointer, "properties", name) for name, value in properties.items()
            }
        if undeclared := [name for name in schema.get("required", ()) if name not in properties]:
            self.lose(pointer, "required", f"does not enforce names that are not declared: {', '.join(undeclared)}")
        reduced["required"] = [name for name in schema.get("required", ()) if name in properties]
        if extra is False or extra is True:
            reduced["additionalProperties"] = extra
        else:
            reduced["additionalProperties"] = self.inner(extra, pointer, "additionalProperties")
        return reduced
