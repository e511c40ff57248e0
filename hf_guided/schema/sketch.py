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
from typing import Any, NamedTuple

from ..errors import InvalidConstraint
from .documents import Documents, Subschema, UnknownReference

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_SHORT = 24  # characters; a shorter definition is cheaper to repeat than to name
_FEW = 4  # more values than these are cheaper as a list
_WIDE = 100  # characters; a longer object is written in lines
_WHOLE = {"object": "{[key]: any}", "array": "any[]"}  # a type without more
_TYPES_OF = {
    "object": "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
    "dependentRequired dependentSchemas dependencies unevaluatedProperties",
    "array": "items prefixItems additionalItems contains minItems maxItems uniqueItems unevaluatedItems",
    "string": "minLength maxLength pattern format contentEncoding",
    "number": "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf",
}


class _Definition(NamedTuple):
    name: str
    text: str


def sketch_of(schema_json: str, registry: Mapping[str, Any], *, open_objects: bool = False) -> str:
    """The type that a schema describes, as text.

    Args:
        schema_json: the schema, as JSON text.
        registry: other documents that it may refer to, by URI.
        open_objects: whether objects may have more keys where their schema says nothing about it.

    Raises:
        InvalidConstraint: the schema refers to something that does not exist, or it is malformed.
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
        self._definitions: dict[int, _Definition | None] = {}  # None while the text is being written
        self._names: dict[int, str] = {}

    def text(self) -> str:
        root = self._documents.root
        self._inside = [id(root.schema)]
        self._type(root)
        self._counting = False
        self._inside = [id(root.schema)]
        if id(root.schema) in self._recursive:
            self._names[id(root.schema)] = "Answer"
        whole = self._type(root)
        # A definition that other definitions use may have been written before them: the text's order is free.
        named = [definition for definition in self._definitions.values() if definition is not None]
        if id(root.schema) in self._recursive:
            named.insert(0, _Definition("Answer", whole))
            whole = "Answer"
        return "\n".join([whole, *(f"{definition.name} = {definition.text}" for definition in named)])

    # -- references ----------------------------------------------------------------------------------------------------

    def _reference(self, source: Subschema, keyword: str) -> str:
        ref = source.schema[keyword] if isinstance(source.schema, dict) else ""
        try:
            target = self._target(source, keyword, ref)
        except UnknownReference:
            return f"any (defined at {ref})"
        if not isinstance(target.schema, dict):
            return self._type(target)
        return self._use(target, str(ref))

    def _target(self, source: Subschema, keyword: str, ref: Any) -> Subschema:
        if not isinstance(ref, str):
            raise InvalidConstraint(f"not a valid JSON Schema, at {source.pointer}/{keyword}: expected a URI")
        return self._documents.target(source, ref, keyword)

    def _use(self, target: Subschema, ref: str) -> str:
        key = id(target.schema)
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
            self._definitions[key] = _Definition(self._name(target, ref), self._written(target))
        definition = self._definitions[key]
        if definition is None or key in self._recursive or len(definition.text) > _SHORT:
            return self._name(target, ref)
        del self._definitions[key]  # it needs no name
        return definition.text

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

    # -- one schema ----------------------------------------------------------------------------------------------------

    def _type(self, sub: Subschema, *, described: bool = True) -> str:
        """A schema's type.

        Args:
            sub: the schema.
            described: whether to write its description too, as a comment.
        """
        schema = sub.schema
        if isinstance(schema, bool):
            return "any" if schema else "nothing"
        if "$ref" in schema and sub.dialect <= 7:  # its siblings count for nothing there
            parts = [self._reference(sub, "$ref")]
        else:
            references = ("$ref", "$dynamicRef", "$recursiveRef")
            parts = [self._reference(sub, keyword) for keyword in references if keyword in schema]
            parts += self._own(sub, schema)
        text = " & ".join(map(_grouped, parts)) if len(parts) > 1 else "".join(parts) or "any"
        comment = _comment(schema)
        return f"{text} /* {comment} */" if described and comment else text

    def _own(self, sub: Subschema, schema: dict[str, Any]) -> list[str]:
        """What the keywords of a schema say, references aside: types that all hold."""
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
                texts = [self._type(self._child(sub, branch, keyword, i)) for i, branch in enumerate(branches)]
                if len(texts) > 1:
                    texts = list(dict.fromkeys(_grouped(text) if sign == " & " else text for text in texts))
                text = sign.join(texts)
                parts.append(f"exactly one of ({text})" if keyword == "oneOf" and len(texts) > 1 else text)
        if "not" in schema:
            parts.append(f"not {_grouped(self._type(self._child(sub, schema['not'], 'not')))}")
        if "if" in schema:
            branches = [f"if {_grouped(self._type(self._child(sub, schema['if'], 'if')))}"]
            for keyword in ("then", "else"):
                if keyword in schema:
                    branches.append(f"{keyword} {_grouped(self._type(self._child(sub, schema[keyword], keyword)))}")
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

        Args:
            schema: the schema.
            bare: whether nothing says what the value is so far; otherwise a type alone says nothing new.
        """
        keyed = [kind for kind, words in _TYPES_OF.items() if schema.keys() & set(words.split())]
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

    def _child(self, sub: Subschema, schema: Any, *steps: str | int) -> Subschema:
        return self._documents.child(sub, schema, *steps)

    # -- objects and arrays --------------------------------------------------------------------------------------------

    def _object(self, sub: Subschema, schema: dict[str, Any]) -> tuple[str, list[str]]:
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        listed = schema.get("required")
        required = list(dict.fromkeys(listed)) if isinstance(listed, list) else []  # a bool before draft 4
        entries: list[tuple[str, str]] = []  # an entry, and its comment
        for key, value in properties.items():
            child = self._child(sub, value, "properties", key)
            comment = _comment(value)
            mark = ":" if key in required else "?:"
            entries.append((f"{_key(key)}{mark} {self._type(child, described=False)}", comment))
        entries += [(f"{_key(key)}: any", "") for key in required if key not in properties]
        for pattern, value in (schema.get("patternProperties") or {}).items():
            child = self._child(sub, value, "patternProperties", pattern)
            entries.append((f"[/{pattern}/]: {self._type(child)}", ""))
        entries += self._others(sub, schema, closed=bool(properties) and not self._open)
        return _braces(entries), self._object_notes(sub, schema)

    def _others(self, sub: Subschema, schema: dict[str, Any], *, closed: bool) -> list[tuple[str, str]]:
        """The entry for all other keys, if there may be any; ``closed`` where the schema says nothing about them."""
        for keyword in ("additionalProperties", "unevaluatedProperties"):
            if keyword in schema:
                rest = schema[keyword]
                if rest is False:
                    return []
                return [(f"[key]: {self._type(self._child(sub, rest, keyword))}", "")]
        return [] if closed else [("[key]: any", "")]

    def _object_notes(self, sub: Subschema, schema: dict[str, Any]) -> list[str]:
        notes = []
        if "propertyNames" in schema:
            notes.append(f"keys: {self._type(self._child(sub, schema['propertyNames'], 'propertyNames'))}")
        for keyword in ("dependentRequired", "dependentSchemas", "dependencies"):
            for key, needs in (schema.get(keyword) or {}).items():
                if isinstance(needs, list):
                    notes.append(f"{_key(key)} needs {', '.join(map(_key, needs))}")
                else:
                    notes.append(f"{_key(key)} needs {_grouped(self._type(self._child(sub, needs, keyword, key)))}")
        return notes

    def _array(self, sub: Subschema, schema: dict[str, Any]) -> tuple[str, list[str]]:
        keyword = "prefixItems" if isinstance(schema.get("prefixItems"), list) else "items"
        first = schema.get(keyword)
        rest_keyword = "items" if keyword == "prefixItems" else "additionalItems"
        notes = []
        if "contains" in schema:
            low, high = schema.get("minContains", 1), schema.get("maxContains")
            count = f"at least {_json(low)}" if high is None else f"{_json(low)}..{_json(high)}"
            notes.append(
                f"contains {count} of {_grouped(self._type(self._child(sub, schema['contains'], 'contains')))}"
            )
        if not isinstance(first, list):
            item_type = "any" if first is None else self._type(self._child(sub, first, "items"))
            return f"{_grouped(item_type)}[]", notes
        texts = [self._type(self._child(sub, value, keyword, i)) for i, value in enumerate(first)]
        rest = schema.get(rest_keyword, schema.get("unevaluatedItems"))
        if rest is not None and rest is not False:
            name = rest_keyword if rest_keyword in schema else "unevaluatedItems"
            texts.append(f"...{_grouped(self._type(self._child(sub, rest, name)))}[]")
        elif rest is None:
            texts.append("...any[]")
        return f"[{', '.join(texts)}]", notes


def _enumeration(values: list[str]) -> str:
    # A JSON object or array alone would read like a type.
    listed = len(values) > _FEW or any(value[0] in "{[" for value in values)
    return f"one of [{','.join(values)}]" if listed else " | ".join(values) or "nothing"


def _key(key: Any) -> str:
    return str(key) if isinstance(key, str) and _IDENTIFIER.fullmatch(key) else _json(key)


def _comment(schema: Any) -> str:
    """A schema's description in one line."""
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
    """A JSON value whose numbers may be ``Decimal``, as text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_json(key)}: {_json(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_json, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _bounds(schema: dict[str, Any], kind: str) -> list[str]:
    """What a schema's keywords say of values of one JSON type, each in a few words.

    Args:
        schema: the schema; bounds that are schemas themselves are left out.
        kind: the name of the JSON type.
    """
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
