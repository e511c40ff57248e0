"""Random JSON Schemas with many keywords, over few names and few values, so that their keywords interact.

Everything is drawn from a ``random.Random``: from Hypothesis, which can shrink it, or a seeded one in a long run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice, permutations, product
from random import Random
from typing import Any

NAMES = ("a", "b", "ab", "é")
DRAFTS = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
PATTERNS = ("^a", "b$", "^a?b?$", "é", "^(?!a)", "^(?=.*b)a", "^.$", "^[^b]*$", "a|b", "^(?!ab$).*$", ".*")
SCALARS = (None, True, False, 0, 1, 2, 3, -1, 0.5, 1.5, 1.0, 2.0, "", "a", "b", "ab", "é", "aab", "1.2.3.4")
VALUES = (
    *SCALARS,
    [],
    {},
    [1],
    ["a"],
    [1, "a"],
    [None, 1.0],
    {"a": 1},
    {"b": "a"},
    {"a": [1], "é": {}},
    {"a": {"b": 1}},
)
_TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
_NUMBERS = (-1, 0, 0.5, 1, 1.5, 2, 0.1, 1.0, 3)


class Writer:
    """Writes one schema.

    Args:
        random: the source of all decisions.
        draft: 4, 6, 7, 2019 or 2020.
    """

    def __init__(self, random: Random, draft: int):
        self._random = random
        self._draft = draft
        self._definitions = random.randrange(3)

    def document(self) -> dict[str, Any]:
        """A whole schema, with its definitions."""
        schema: dict[str, Any] = {"$schema": DRAFTS[self._draft]}
        key = "$defs" if self._draft >= 2019 else "definitions"
        inner = self.schema(3)
        if self._definitions:
            schema[key] = {f"d{i}": self.schema(2) for i in range(self._definitions)}
        return schema | (inner if isinstance(inner, dict) else {"allOf": [self._whole(inner)]})

    def _whole(self, schema: Any) -> Any:
        return schema if self._draft > 4 or isinstance(schema, dict) else {} if schema else {"not": {}}

    def schema(self, depth: int) -> Any:
        random = self._random
        if random.random() < 0.07:
            return self._whole(random.random() < 0.6)
        if depth <= 0:
            return self._scalar()
        keywords: dict[str, Any] = {}
        if random.random() < 0.4:
            keywords["type"] = self._type()
        for _ in range(random.choice((1, 1, 1, 2, 2, 3))):
            keywords |= random.choice(
                (self._numbers, self._strings, self._arrays, self._objects, self._objects, self._whole_value)
            )(depth)
        if isinstance(keywords.get("items"), bool):
            keywords.pop("additionalItems", None)  # on which jsonschema fails then
        return keywords

    def _scalar(self) -> Any:
        random = self._random
        which = random.randrange(5)
        if which == 0:
            return {"type": self._type()}
        if which == 1:
            return self._listed()
        if which == 2:
            return {"type": random.choice(("number", "integer")), **self._numbers(0)}
        if which == 3:
            return {"type": "string", **self._strings(0)}
        return self._numbers(0) | self._strings(0)

    def _type(self) -> Any:
        random = self._random
        return random.choice(_TYPES) if random.random() < 0.6 else random.sample(_TYPES, random.randint(1, 3))

    def _listed(self) -> dict[str, Any]:
        random = self._random
        if self._draft > 4 and random.random() < 0.5:
            return {"const": random.choice(VALUES)}
        return {"enum": random.sample(VALUES, random.randint(1, 4))}

    def _numbers(self, depth: int) -> dict[str, Any]:
        random = self._random
        keywords: dict[str, Any] = {}
        for keyword in random.sample(("minimum", "maximum", "multipleOf"), random.randint(1, 2)):
            keywords[keyword] = random.choice(
                _NUMBERS if keyword != "multipleOf" else (1, 2, 3, 0.5, 0.1, 1.0, 0.25, 10)
            )
        for keyword, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if random.random() < 0.2:
                if self._draft > 4:
                    keywords[flag] = random.choice(_NUMBERS)
                elif keyword in keywords:
                    keywords[flag] = random.random() < 0.7
        return keywords

    def _strings(self, depth: int) -> dict[str, Any]:
        random = self._random
        keywords: dict[str, Any] = {}
        for keyword in random.sample(("minLength", "maxLength", "pattern", "pattern", "format"), random.randint(1, 2)):
            if keyword == "pattern":
                keywords[keyword] = random.choice(PATTERNS)
            elif keyword == "format":
                keywords[keyword] = random.choice(("ipv4", "unheard-of"))
            else:
                keywords[keyword] = random.choice((0, 1, 2, 3, 20))  # of 20 characters a register keeps the count
        return keywords

    def _arrays(self, depth: int) -> dict[str, Any]:
        random, draft = self._random, self._draft
        keywords: dict[str, Any] = {}
        choices = ["items", "tuple", "minItems", "maxItems", "uniqueItems"]
        # For the draft of 2019, jsonschema fails on items that are true, and counts the items that contains matches.
        choices += ["contains"] * (draft > 4) + ["unevaluatedItems"] * 2 * (draft >= 2020)
        for keyword in random.sample(choices, random.randint(1, 3)):
            if keyword == "items":
                keywords.setdefault("items", self.schema(depth - 1))
            elif keyword == "tuple":
                prefix = [self.schema(depth - 1) for _ in range(random.randint(1, 3))]
                keywords["prefixItems" if draft >= 2020 else "items"] = prefix
                if draft < 2020 and random.random() < 0.5:
                    keywords["additionalItems"] = self.schema(depth - 1)
            elif keyword == "uniqueItems":
                keywords[keyword] = True
                if random.random() < 0.7:
                    keywords["items"] = {"enum": random.sample(SCALARS[:6], random.randint(1, 3))}
            elif keyword == "contains":
                keywords[keyword] = self.schema(depth - 1)
                if draft >= 2019 and random.random() < 0.5:
                    keywords["minContains"] = random.randrange(3)
                if draft >= 2019 and random.random() < 0.5:
                    keywords["maxContains"] = random.randrange(3)
            elif keyword == "unevaluatedItems":
                keywords[keyword] = self.schema(depth - 1)
            else:
                keywords[keyword] = random.randrange(4)
        return keywords

    def _objects(self, depth: int) -> dict[str, Any]:
        random, draft = self._random, self._draft
        keywords: dict[str, Any] = {}
        choices = ["properties"] * 3 + ["required", "required", "patternProperties", "additionalProperties"]
        choices += ["minProperties", "maxProperties", "dependent"] + ["propertyNames"] * (draft > 4)
        choices += ["unevaluatedProperties"] * 2 * (draft >= 2019)
        for keyword in random.sample(choices, random.randint(1, 4)):
            names = random.sample(NAMES, random.randint(1, 3))
            if keyword == "properties":
                keywords[keyword] = {name: self.schema(depth - 1) for name in names}
            elif keyword == "required":
                keywords[keyword] = names
            elif keyword == "patternProperties":
                patterns = random.sample(PATTERNS, random.randint(1, 3))
                keywords[keyword] = {pattern: self.schema(depth - 1) for pattern in patterns}
            elif keyword in ("additionalProperties", "unevaluatedProperties"):
                # For the draft of 2019, jsonschema mistakes a schema here for a list of evaluated names.
                is_schema = draft != 2019 and random.random() < 0.4
                keywords[keyword] = self.schema(depth - 1) if is_schema else random.random() < 0.4
            elif keyword == "propertyNames":
                keywords[keyword] = random.choice((self._strings(0), self._listed(), self.schema(1)))
            elif keyword == "dependent":
                keywords |= self._dependent(depth, names)
            else:
                keywords[keyword] = random.randrange(4)
        return keywords

    def _dependent(self, depth: int, names: list[str]) -> dict[str, Any]:
        random = self._random
        needs = {name: random.sample(NAMES, random.randint(1, 2)) for name in names[:2]}
        schemas = {name: self.schema(depth - 1) for name in names[:2]}
        if self._draft < 2019:
            return {"dependencies": {name: random.choice((needs, schemas))[name] for name in needs}}
        return random.choice(({"dependentRequired": needs}, {"dependentSchemas": schemas}))

    def _whole_value(self, depth: int) -> dict[str, Any]:
        random = self._random
        choices = ["listed", "allOf", "anyOf", "anyOf", "oneOf", "oneOf", "not"]
        choices += ["if", "if"] * (self._draft >= 7) + ["$ref"] * self._definitions
        keyword = random.choice(choices)
        if keyword == "listed":
            return self._listed()
        if keyword == "not":
            return {"not": self.schema(depth - 1)}
        if keyword == "$ref":
            where = "$defs" if self._draft >= 2019 else "definitions"
            name = random.choice(["#"] + [f"#/{where}/d{i}" for i in range(self._definitions)] * 4)
            return {"$ref": name}
        if keyword == "if":
            branches = random.choice((("then",), ("else",), ("then", "else")))
            return {keyword: self.schema(depth - 1) for keyword in ("if", *branches)}
        return {keyword: [self.schema(depth - 1) for _ in range(random.randint(1, 3))]}


def constants(schema: Any) -> Iterator[Any]:
    """The values that a schema lists in `const` and `enum`."""
    if isinstance(schema, dict):
        if "const" in schema:
            yield schema["const"]
        if isinstance(schema.get("enum"), list):
            yield from schema["enum"]
        for inner in schema.values():
            yield from constants(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from constants(inner)


def instance(random: Random, listed: list[Any], depth: int = 2) -> Any:
    """A random value that is often valid or almost valid."""
    roll = random.random()
    if listed and roll < 0.2:
        return random.choice(listed)
    if depth <= 0 or roll < 0.4:
        return random.choice(SCALARS)
    if roll < 0.6:
        return [instance(random, listed, depth - 1) for _ in range(random.randrange(5))]
    names = random.sample((*NAMES, "c"), random.choice((0, 1, 1, 2, 2, 3)))
    return {name: instance(random, listed, depth - 1) for name in names}


def orders(value: Any) -> Iterator[Any]:
    """Yield the value with its keys in every order, at every depth."""
    if isinstance(value, list):
        for items in product(*(list(islice(orders(item), 30)) for item in value)):
            yield list(items)
    elif isinstance(value, dict):
        for names in permutations(value):
            for items in product(*(list(islice(orders(value[name]), 30)) for name in names)):
                yield dict(zip(names, items, strict=True))
    else:
        yield value


def parsed(text: str, draft: int) -> Any:
    """The value of a JSON text, with exact numbers. 1.0 is an integer from draft 6 on."""

    def number(written: str) -> Any:
        exact = Decimal(written)
        return int(exact) if draft > 4 and exact == exact.to_integral_value() else exact

    return json.loads(text, parse_float=number)


def spellings(random: Random, value: Any) -> str:
    """An unusual JSON text: escaped letters, whole numbers as 1.0 or 1e0, names written twice."""
    if isinstance(value, str):
        return '"' + "".join(f"\\u{ord(char):04x}" if random.random() < 0.5 else char for char in value) + '"'
    if isinstance(value, list):
        return "[" + ", ".join(spellings(random, item) for item in value) + "]"
    if isinstance(value, dict):
        members = list(value.items())
        if members and random.random() < 0.5:
            name, member = random.choice(members)
            members.insert(random.randrange(len(members) + 1), (name, random.choice((member, random.choice(SCALARS)))))
        return "{" + ", ".join(f"{spellings(random, name)}: {spellings(random, item)}" for name, item in members) + "}"
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value):
        whole = int(value)
        return random.choice((f"{whole}.0", f"{whole}e0", f"{whole}0e-1", f"-{whole}" if not whole else f"{whole}"))
    return json.dumps(value, ensure_ascii=False)
