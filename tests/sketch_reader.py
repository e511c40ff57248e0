"""Reads the types that ``hg.describe`` writes back into JSON Schema, by their grammar alone."""

from __future__ import annotations

import json
import re
from typing import Any

_NAMES = {"string", "number", "integer", "boolean", "null"}
_RANGES = {
    "": ("minimum", "maximum"),
    "chars": ("minLength", "maxLength"),
    "items": ("minItems", "maxItems"),
    "keys": ("minProperties", "maxProperties"),
}
_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_BOUND = re.compile(
    rf"(?:(?P<low>{_NUMBER})\.\.(?P<high>{_NUMBER})|(?P<sign>>=|<=|>|<|=|multiple of) (?P<value>{_NUMBER})"
    r"|(?P<only>\d+))"
    r"(?: (?P<unit>chars|items|keys))?(?=, |\))"
)


def read(text: str) -> dict[str, Any]:
    """The schema that a type describes; objects are open, and a closed one has ``"x-closed": True``."""
    reader = _Reader(text)
    root = reader.union()
    definitions = {}
    while reader.at < len(text):
        name = reader.match(r"\n(\w+) = ")
        definitions[name[1]] = reader.union()
    return {**root, "$defs": definitions}


def closed(schema: Any) -> Any:
    """A schema that was read, whose objects have no other keys where their type names none."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {key: closed(value) for key, value in schema.items()}
    return {**copy, "additionalProperties": False} if copy.pop("x-closed", None) is True else copy


class _Reader:
    def __init__(self, text: str):
        self.text, self.at = text, 0

    def match(self, pattern: str) -> re.Match[str]:
        found = self.maybe(pattern)
        assert found is not None, f"expected {pattern} at {self.text[self.at : self.at + 60]!r}"
        return found

    def maybe(self, pattern: str) -> re.Match[str] | None:
        found = re.compile(pattern).match(self.text, self.at)
        self.at = found.end() if found else self.at
        return found

    def union(self) -> dict[str, Any]:
        branches = [self.intersection()]
        while self.maybe(r" \| "):
            branches.append(self.intersection())
        return branches[0] if len(branches) == 1 else {"anyOf": branches}

    def intersection(self) -> dict[str, Any]:
        parts = [self.one()]
        while self.maybe(" & "):
            parts.append(self.one())
        return parts[0] if len(parts) == 1 else {"allOf": parts}

    def one(self) -> dict[str, Any]:
        if self.maybe("not "):
            return {"not": self.one()}
        if self.maybe(r"exactly one of \("):
            branches = [self.intersection()]
            while self.maybe(r" \| "):
                branches.append(self.intersection())
            self.match(r"\)")
            return self.after({"oneOf": branches})
        if self.maybe(r"\(if "):
            schema = {"if": self.one()}
            for keyword in ("then", "else"):
                if self.maybe(f" {keyword} "):
                    schema[keyword] = self.one()
            self.match(r"\)")
            return schema
        return self.after(self.primary())

    def after(self, schema: dict[str, Any]) -> dict[str, Any]:
        while True:
            if self.maybe(r" /\*.*?\*/"):
                continue
            if self.maybe(r"\[\]"):
                schema = {"type": "array", "items": schema}
            elif self.maybe(r" \((?!if )"):
                self.bounds(schema)
            else:
                return schema

    def primary(self) -> dict[str, Any]:
        if self.maybe(r"\("):
            schema = self.union()
            self.match(r"\)")
            return schema
        if self.maybe(r"one of \["):
            values = [self.json()]
            while self.maybe(","):
                values.append(self.json())
            self.match(r"\]")
            return {"enum": values}
        if self.maybe(r"\{"):
            return self.object()
        if self.maybe(r"\["):
            return self.tuple()
        name = self.maybe(r"[A-Za-z_]\w*")
        if name is None or name[0] in ("true", "false"):
            self.at -= len(name[0]) if name else 0
            return {"enum": [self.json()]}
        if name[0] == "any":
            return {}
        if name[0] == "nothing":
            return {"not": {}}
        return {"type": name[0]} if name[0] in _NAMES else {"$ref": f"#/$defs/{name[0]}"}

    def json(self) -> Any:
        value, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
        return value

    def key(self) -> str:
        name = self.maybe(r"[A-Za-z_]\w*")
        return name[0] if name else self.json()

    def object(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "x-closed": True}
        while self.maybe(r"\s*\}") is None:
            self.match(r"\s*")
            if self.maybe(r"\[key\]: "):
                schema["additionalProperties"] = self.union()
                del schema["x-closed"]
            elif pattern := self.maybe(r"\[/(.*?)/\]: "):
                schema.setdefault("patternProperties", {})[pattern[1]] = self.union()
            else:
                name = self.key()
                if not self.maybe(r"\?"):
                    schema["required"].append(name)
                self.match(": ")
                schema["properties"][name] = self.union()
            self.maybe(",")
            self.maybe(" //[^\n]*")
        return schema

    def tuple(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "array", "prefixItems": [], "items": False}
        while not self.maybe(r"\]"):
            if self.maybe(r"\.\.\."):
                schema["items"] = self.union()["items"]
            else:
                schema["prefixItems"].append(self.union())
            self.maybe(", ")
        return schema

    def bounds(self, schema: dict[str, Any]) -> None:
        while True:
            if bound := self.maybe(_BOUND.pattern):
                self.bound(schema, bound)
            elif self.maybe("without duplicates"):
                schema["uniqueItems"] = True
            elif self.maybe("keys: "):
                schema["propertyNames"] = self.union()
            elif count := self.maybe(r"contains (?:at least (\d+)|(\d+)\.\.(\d+)) of "):
                low, high = count[1] or count[2], count[3]
                schema |= {"contains": self.one(), "minContains": int(low)}
                if high:
                    schema["maxContains"] = int(high)
            elif self.maybe("/"):
                schema["pattern"] = self.pattern()
            elif needs := re.compile(r'("[^"]*"|\w+) needs ').match(self.text, self.at):
                self.at = needs.end()
                name = json.loads(needs[1]) if needs[1][0] == '"' else needs[1]
                self.needs(schema, name)
            else:
                schema["format"] = self.match(r"[\w-]+")[0]
            if not self.maybe(", "):
                self.match(r"\)")
                return

    def needs(self, schema: dict[str, Any], name: str) -> None:
        if self.text[self.at] == "{" or self.text[self.at] == "(":
            schema.setdefault("dependentSchemas", {})[name] = self.union()
            return
        names = [self.key()]
        while re.compile(r', (?:"[^"]*"|\w+)(?=[,)])').match(self.text, self.at):
            self.match(", ")
            names.append(self.key())
        schema.setdefault("dependentRequired", {})[name] = names

    def pattern(self) -> str:
        for end in re.compile(r"/(?=\)|, )").finditer(self.text, self.at):
            try:
                re.compile(self.text[self.at : end.start()])
            except re.error:
                continue
            pattern, self.at = self.text[self.at : end.start()], end.end()
            return pattern
        raise AssertionError("a pattern without end")

    @staticmethod
    def bound(schema: dict[str, Any], bound: re.Match[str]) -> None:
        low, high = _RANGES[bound["unit"] or ""]
        number = json.loads
        if bound["low"]:
            schema |= {low: number(bound["low"]), high: number(bound["high"])}
        elif bound["only"] or bound["sign"] == "=":
            value = number(bound["only"] or bound["value"])
            schema |= {low: value, high: value}
        else:
            keyword = {
                ">=": low,
                "<=": high,
                ">": "exclusiveMinimum",
                "<": "exclusiveMaximum",
                "multiple of": "multipleOf",
            }[bound["sign"]]
            schema[keyword] = number(bound["value"])
