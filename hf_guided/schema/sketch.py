"""A JSON Schema as a model reads it best: a compact type, much shorter than the schema's JSON.

    {
     name: string (1..40 chars), // the full name
     age?: integer (>= 0),
     tags: ("a" | "b")[] (without duplicates)
    }

A key with "?" may be left out. The type keeps what the model has to know: every key, which of them are required, every
value of an enumeration, every bound, pattern and format, and descriptions. It leaves out what changes no answer:
titles, defaults, examples, identifiers, comments. A definition that is used once is written where it is used; the
others follow the type, each with its name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from ..constraints.json_schema_keywords import OF_ONE_TYPE
from . import readers
from .documents import Documents, Subschema, UnknownReference

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHORT = 24  # characters; a shorter definition is cheaper to repeat than to name
_FEW = 4  # more values than these are cheaper as a list
_WIDE = 100  # characters; a longer object is written in lines
_WHOLE = {"object": "{[key]: any}", "array": "any[]"}  # a type without more
_TYPES_OF = {kind: set(keywords) for kind, keywords in OF_ONE_TYPE.items()}
_TYPES_OF["object"] |= {"dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"}
_TYPES_OF["array"] |= {"unevaluatedItems"}
_TYPES_OF["string"] |= {"format", "contentEncoding"}


def sketch_of(schema_json: str, registry: Mapping[str, Any], *, open_objects: bool = False) -> str:
    """The type that a schema describes, as text; raises InvalidConstraint where the schema is malformed.

    ``registry`` has other documents by URI; with ``open_objects``, objects may have more keys where their schema is
    silent.
    """
    try:
        return _Sketch(Documents(schema_json, registry), open_objects).text()
    except RecursionError:  # a chain of hundreds of definitions
        return schema_json


class _Sketch:
    """Writes one schema twice: the first time to count how often each definition is used."""

    def __init__(self, documents: Documents, open_objects: bool):
        self._documents = documents
        self._open = open_objects
        self._uses: dict[int, int] = {}
        self._recursive: set[int] = set()
        self._inside: list[int] = []  # the definitions that are being written
        self._counting = True
        self._definitions: dict[int, str | None] = {}  # text of each definition; None while it is being written
        self._names: dict[int, str] = {}

    def text(self) -> str:
        root = self._documents.root
        key = id(root.schema)
        self._inside = [key]
        self._type(root)
        self._counting = False
        if key in self._recursive:
            self._names[key] = "Answer"
        whole = self._type(root)
        # A definition that other definitions use may have been written before them: the text's order is free.
        named = [f"{self._names[key]} = {text}" for key, text in self._definitions.items() if text is not None]
        if key in self._recursive:
            return "\n".join(["Answer", f"Answer = {whole}", *named])
        return "\n".join([whole, *named])

    def _reference(self, source: Subschema, keyword: str) -> str:
        ref = readers.string(source, keyword) or ""
        try:
            target = self._documents.target(source, ref, keyword)
        except UnknownReference:
            return f"any (defined at {ref})"
        key = id(target.schema)
        if not isinstance(target.schema, dict):
            return self._type(target)
        if self._counting:
            self._uses[key] = self._uses.get(key, 0) + 1
            if key in self._inside:
                self._recursive.add(key)
            elif self._uses[key] == 1:
                self._written(target)
            return "T"
        if self._uses[key] == 1 and key not in self._recursive:
            return self._written(target)
        if key == id(self._documents.root.schema):
            return self._name(target, "Answer")
        if key not in self._definitions:
            self._definitions[key] = None
            self._name(target, ref)  # before those of the definitions in it
            self._definitions[key] = self._written(target)
        text = self._definitions[key]
        if text is None or key in self._recursive or len(text) > _SHORT:
            return self._name(target, ref)
        del self._definitions[key]  # a definition that is used once needs no name
        return text

    def _written(self, target: Subschema) -> str:
        self._inside.append(id(target.schema))
        text = self._type(target)
        self._inside.pop()
        return text

    def _name(self, target: Subschema, ref: str) -> str:
        key = id(target.schema)
        if key not in self._names:
            last = re.sub(r"\W+", "_", re.split(r"[/#]", ref)[-1], flags=re.ASCII).strip("_") or "Type"
            name, number = last, 2
            while name in self._names.values():
                name, number = f"{last}{number}", number + 1
            self._names[key] = name
        return self._names[key]

    def _type(self, sub: Subschema, *, described: bool = True) -> str:
        """A schema's type, and as a comment its description if it is to be ``described``."""
        schema = sub.schema
        if isinstance(schema, bool):
            return "any" if schema else "nothing"
        if "$ref" in schema and sub.dialect <= 7:  # keywords beside "$ref" count for nothing there
            parts = [self._reference(sub, "$ref")]
        else:
            references = ("$ref", "$dynamicRef", "$recursiveRef")
            parts = [self._reference(sub, keyword) for keyword in references if keyword in schema]
            parts += self._own(sub, schema)
        text = " & ".join(map(_grouped, parts)) if len(parts) > 1 else "".join(parts) or "any"
        comment = _comment(schema)
        return f"{text} /* {comment} */" if described and comment else text

    def _inner(self, sub: Subschema, *steps: str | int, grouped: bool = False) -> str:
        value: Any = sub.schema
        for step in steps:
            value = value[step]
        text = self._type(self._documents.child(sub, value, *steps))
        return _grouped(text) if grouped else text

    def _own(self, sub: Subschema, schema: dict[str, Any]) -> list[str]:
        parts: list[str] = []
        if "const" in schema:
            parts.append(_enumeration([_json(schema["const"])]))
        if isinstance(schema.get("enum"), list):
            parts.append(_enumeration([_json(value) for value in schema["enum"]]))
        types = self._types(schema, bare=not parts)
        if types:
            parts.append(" | ".join(self._if_needed(schema, kind, self._of_type(sub, schema, kind)) for kind in types))
        for keyword, sign in ("anyOf", " | "), ("oneOf", " | "), ("allOf", " & "):
            branches = schema.get(keyword)
            if isinstance(branches, list) and branches:
                texts = [self._inner(sub, keyword, i) for i in range(len(branches))]
                if len(texts) > 1:
                    texts = list(dict.fromkeys(_grouped(text) if sign == " & " else text for text in texts))
                text = sign.join(texts)
                parts.append(f"exactly one of ({text})" if keyword == "oneOf" and len(texts) > 1 else text)
        if "not" in schema:
            parts.append(f"not {self._inner(sub, 'not', grouped=True)}")
        if "if" in schema:
            branches = [
                f"{word} {self._inner(sub, word, grouped=True)}" for word in ("if", "then", "else") if word in schema
            ]
            parts += [f"({' '.join(branches)})"] * (len(branches) > 1)
        return parts

    def _if_needed(self, schema: dict[str, Any], kind: str, text: str) -> str:
        """A type that is not named, but has keywords, beside branches that are of other types."""
        if "type" in schema:
            return text
        branches = [branch for keyword in ("anyOf", "oneOf") for branch in schema.get(keyword) or ()]
        named = [branch["type"] for branch in branches if isinstance(branch, dict) and "type" in branch]
        if all(kind == types or (isinstance(types, list) and kind in types) for types in named):
            return text
        return f"(if {_WHOLE.get(kind, kind)} then {_grouped(text)})"

    def _types(self, schema: dict[str, Any], *, bare: bool) -> list[str]:
        """The JSON types to write: those that are named, or those whose keywords the schema has.

        A type alone says something new only where the type is ``bare``: nothing else says so far what the value is.
        """
        keyed = [kind for kind, words in _TYPES_OF.items() if schema.keys() & words]
        named = schema.get("type")
        if named is None:
            return keyed
        types = [named] if isinstance(named, str) else [str(name) for name in named]
        if bare:
            return types
        return [kind for kind in types if kind in keyed or (kind == "integer" and "number" in keyed)]

    def _of_type(self, sub: Subschema, schema: dict[str, Any], kind: str) -> str:
        if kind == "object":
            text, more = self._object(sub, schema)
        elif kind == "array":
            text, more = self._array(sub, schema)
        else:
            text, more = kind, []
        bounds = [*_bounds(schema, kind), *more]
        return f"{text} ({', '.join(bounds)})" if bounds else text

    def _object(self, sub: Subschema, schema: dict[str, Any]) -> tuple[str, list[str]]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        listed = schema.get("required")
        required = list(dict.fromkeys(listed)) if isinstance(listed, list) else []  # a bool before draft 4
        entries: list[tuple[str, str]] = []  # an entry, and its comment
        for key, value in properties.items():
            text = self._type(self._documents.child(sub, value, "properties", key), described=False)
            entries.append((f"{_key(key)}{':' if key in required else '?:'} {text}", _comment(value)))
        entries += [(f"{_key(key)}: any", "") for key in required if key not in properties]
        for pattern in schema.get("patternProperties") or {}:
            entries.append((f"[/{pattern}/]: {self._inner(sub, 'patternProperties', pattern)}", ""))
        others = next((word for word in ("additionalProperties", "unevaluatedProperties") if word in schema), None)
        if others is not None and schema[others] is not False:
            entries.append((f"[key]: {self._inner(sub, others)}", ""))
        elif others is None and (self._open or not properties):  # the schema says nothing about other keys
            entries.append(("[key]: any", ""))
        notes = []
        if "propertyNames" in schema:
            notes.append(f"keys: {self._inner(sub, 'propertyNames')}")
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for key, needs in (schema.get(keyword) or {}).items():
                needed = isinstance(needs, list)
                text = ", ".join(map(_key, needs)) if needed else self._inner(sub, keyword, key, grouped=True)
                notes.append(f"{_key(key)} needs {text}")
        return _braces(entries), notes

    def _array(self, sub: Subschema, schema: dict[str, Any]) -> tuple[str, list[str]]:
        notes = []
        if "contains" in schema:
            low, high = schema.get("minContains", 1), schema.get("maxContains")
            count = f"at least {_json(low)}" if high is None else f"{_json(low)}..{_json(high)}"
            notes.append(f"contains {count} of {self._inner(sub, 'contains', grouped=True)}")
        keyword, more = (
            ("prefixItems", "items") if isinstance(schema.get("prefixItems"), list) else ("items", "additionalItems")
        )
        first = schema.get(keyword)
        if not isinstance(first, list):
            return f"{'any' if first is None else self._inner(sub, 'items', grouped=True)}[]", notes
        texts = [self._inner(sub, keyword, i) for i in range(len(first))]
        rest = next((word for word in (more, "unevaluatedItems") if word in schema), None)
        if isinstance(most := schema.get("maxItems"), int) and most <= len(first):
            del texts[most:]
        elif rest is None:
            texts.append("...any[]")
        elif schema[rest] is not False:
            texts.append(f"...{self._inner(sub, rest, grouped=True)}[]")
        return f"[{', '.join(texts)}]", notes


def _enumeration(values: list[str]) -> str:
    # A JSON object or array alone would read like a type.
    listed = len(values) > _FEW or any(value[0] in "{[" for value in values)
    return f"one of [{','.join(values)}]" if listed else " | ".join(values) or "nothing"


def _key(key: Any) -> str:
    return str(key) if isinstance(key, str) and _IDENTIFIER.fullmatch(key) else _json(key)


def _comment(schema: Any) -> str:
    text = schema.get("description") if isinstance(schema, dict) else None
    return " ".join(text.split()).replace("*/", "* /") if isinstance(text, str) else ""


def _grouped(text: str) -> str:
    """A type as a part of another: in parentheses where it would be read apart without them."""
    return text if re.fullmatch(r"[\w.]+|\{[^{}]*\}|\"[^\"]*\"", text) else f"({text})"


def _braces(entries: list[tuple[str, str]]) -> str:
    texts = [entry for entry, _ in entries]
    short = "{" + ", ".join(texts) + "}"
    if len(short) <= _WIDE and "\n" not in short and not any(comment for _, comment in entries):
        return short
    last = len(entries) - 1
    lines = [
        f"{entry}{',' if i < last else ''}{f' // {comment}' if comment else ''}"
        for i, (entry, comment) in enumerate(entries)
    ]
    return "\n".join(["{", *(line.replace("\n", "\n ") for line in (f" {line}" for line in lines)), "}"])


def _json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _bounds(schema: dict[str, Any], kind: str) -> list[str]:
    if kind in ("number", "integer"):
        return _number_bounds(schema)
    if kind == "string":
        words = _between(schema.get("minLength"), schema.get("maxLength"), "chars")
        if "pattern" in schema:
            words.append(f"/{schema['pattern']}/")
        return words + [
            schema[keyword] for keyword in ("format", "contentEncoding") if isinstance(schema.get(keyword), str)
        ]
    if kind == "array":
        distinct = ["without duplicates"] * (schema.get("uniqueItems") is True)
        return _between(schema.get("minItems"), schema.get("maxItems"), "items") + distinct
    if kind == "object":
        return _between(schema.get("minProperties"), schema.get("maxProperties"), "keys")
    return []


def _number_bounds(schema: dict[str, Any]) -> list[str]:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    if isinstance(above, bool):  # draft 4: it says how `minimum` is meant
        low, above = (None, low) if above else (low, None)
    if isinstance(below, bool):
        high, below = (None, high) if below else (high, None)
    words = _between(low, high, "")
    signs = (">", above), ("<", below), ("multiple of", schema.get("multipleOf"))
    return words + [f"{sign} {_json(value)}" for sign, value in signs if value is not None]


def _between(low: Any, high: Any, what: str) -> list[str]:
    unit = f" {what}" if what else ""
    if low is None and high is None:
        return []
    if low is None:
        return [f"<= {_json(high)}{unit}"]
    if high is None:
        return [f">= {_json(low)}{unit}"]
    if low == high:
        return [f"{_json(low)}{unit}" if what else f"= {_json(low)}"]
    return [f"{_json(low)}..{_json(high)}{unit}"]
