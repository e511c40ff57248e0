"""JSON Schema for engines that drop keywords in silence: only listed keywords are passed on, the rest are losses.

``JsonSubset.reduce`` rebuilds a schema from nothing but keywords that the engine is proven to enforce, in the forms it
is proven on: one type at a time, references and alternatives standing alone, enumerations already filtered.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from jsonschema import ValidationError, validators
from jsonschema.validators import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft202012Validator,
    validator_for,
)

from ..errors import InvalidConstraint, Loss
from ..schema.subschemas import escape

Schema = dict[str, Any]

KEYWORDS: dict[str, frozenset[str]] = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset(
        "items prefixItems additionalItems contains minContains maxContains minItems maxItems uniqueItems "
        "unevaluatedItems".split()
    ),
    "object": frozenset(
        "properties required additionalProperties patternProperties propertyNames minProperties maxProperties "
        "dependentRequired dependentSchemas dependencies unevaluatedProperties".split()
    ),
}
_ANYWHERE = frozenset("type enum const anyOf oneOf allOf not if then else $ref $dynamicRef $recursiveRef".split())
_ASSERTIONS = _ANYWHERE.union(*KEYWORDS.values())
_OLD_FORMS: dict[str, type] = {"items": list, "exclusiveMinimum": bool, "exclusiveMaximum": bool}
_CODE = re.compile(r"\\u\{([0-9a-f]+)\}")  # of a character, in a prepared pattern
_DEFINITIONS = ("$defs", "definitions")


class JsonSubset:
    """The part of JSON Schema that one engine enforces. A subclass lists it by type; the rest is common.

    Args:
        root: the prepared schema; not changed.
    """

    engine: str
    enforced: dict[str, frozenset[str]]

    def __init__(self, root: Schema | bool):
        self._root = root
        self.losses: list[Loss] = []

    def reduce(self) -> Schema:
        """The enforced part of the schema; fills ``losses``.

        Raises:
            InvalidConstraint: nothing satisfies the schema.
        """
        reduced = self._schema(self._root, "")
        if isinstance(self._root, dict):
            for keyword in _DEFINITIONS:
                definitions = self._root.get(keyword)
                if isinstance(definitions, dict):
                    self._check_definitions(keyword, definitions)
                    reduced[keyword] = {
                        name: self._schema(schema, f"/{keyword}/{escape(name)}") for name, schema in definitions.items()
                    }
        return reduced

    def _check_definitions(self, keyword: str, definitions: dict[str, Any]) -> None:
        """Refuse malformed schemas that the check of the whole has not seen: older drafts have no ``$defs``."""
        kind = validator_for(self._root, default=Draft7Validator)
        if keyword == "definitions" or kind not in (Draft7Validator, Draft6Validator, Draft4Validator):
            return
        for name, definition in definitions.items():
            if not any(older(older.META_SCHEMA).is_valid(definition) for older in {kind, Draft202012Validator}):
                pointer = f"/{keyword}/{escape(name)}"
                raise InvalidConstraint(f"not a valid JSON Schema, at {pointer}", pointers=[pointer])

    # -- for subclasses

    def of_type(self, kind: str, schema: Schema, pointer: str) -> Schema:
        """The reduced schema of one type; ``schema`` holds nothing but enforced keywords of that type."""
        raise NotImplementedError

    def writes(self, value: Any) -> bool:
        """Whether the engine writes this enum value right."""
        return True

    def lose(self, pointer: str, keyword: str, reason: str) -> None:
        """Note a loss."""
        self.losses.append(Loss(pointer, keyword, f"{self.engine} {reason}"))

    def nothing(self, pointer: str, keyword: str) -> Schema:
        """The reduced schema where no value fits: an error at the root; further in, the engine cannot say it."""
        if not pointer:
            raise InvalidConstraint(f"no value satisfies the JSON Schema: nothing fits its {keyword}")
        self.lose(pointer, keyword, "cannot say that no value fits")
        return {}

    def inner(self, schema: Any, pointer: str, *path: str) -> Schema:
        """The reduced schema of a schema inside."""
        return self._schema(schema, "/".join((pointer, *map(escape, path))))

    # -- common

    def _schema(self, schema: Any, pointer: str) -> Schema:
        if schema is False:
            self.lose(pointer, "false", "cannot forbid a value")
        if not isinstance(schema, dict):
            return {}
        here = {keyword: value for keyword, value in schema.items() if keyword in _ASSERTIONS}
        if "$ref" in here:
            return self._reference(here, pointer)
        if "const" in here or "enum" in here:
            return self._values(here, pointer)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in here:
                branches = self._branches(keyword, here, pointer)
                if branches is not None:
                    return branches
                del here[keyword]
        for keyword in sorted(_ANYWHERE & here.keys() - {"type"}):
            self.lose(pointer, keyword, "does not enforce it")
            del here[keyword]
        return self._types(here, pointer)

    def _reference(self, here: Schema, pointer: str) -> Schema:
        for keyword in here.keys() - {"$ref"}:
            self.lose(pointer, keyword, "ignores it beside $ref")
        if not isinstance(here["$ref"], str):  # the metaschema of draft 4 says nothing of it
            raise InvalidConstraint(
                f"not a valid JSON Schema, at {pointer}/$ref: expected a string, got {here['$ref']!r}",
                pointers=[f"{pointer}/$ref"],
            )
        parts = here["$ref"].split("/")
        known = len(parts) == 3 and parts[0] == "#" and parts[1] in _DEFINITIONS
        if known and "%" not in here["$ref"] and "~" not in here["$ref"]:
            return {"$ref": here["$ref"]}
        self.lose(pointer, "$ref", "follows only references like #/$defs/name")
        return {}

    def _values(self, here: Schema, pointer: str) -> Schema:
        values = [here["const"]] if "const" in here else here["enum"]
        # References inside the other keywords lead from the root, so the root stays around them.
        kind = validators.extend(validator_for(self._root, default=Draft202012Validator), {"pattern": _pattern})  # type: ignore[no-untyped-call]
        keyword = "const" if "const" in here else "enum"
        # The values of an enum are in it: to look each of them up there takes the square of their number.
        beside = here if "const" in here else {keyword: value for keyword, value in here.items() if keyword != "enum"}
        checker = kind(self._root).evolve(schema=beside)
        try:
            fitting = [value for value in values if checker.is_valid(value)]
        except (re.error, RecursionError) as error:  # a pattern only of ECMA-262; a reference that leads to itself
            self.lose(pointer, keyword, f"cannot tell which of these values are valid: {error}")
            return {}
        if not fitting:
            return self.nothing(pointer, keyword)
        written = [value for value in fitting if self.writes(value)]
        if len(written) == len(fitting):
            return {"enum": written}
        self.lose(pointer, keyword, "does not write all of these values")
        return {}

    def _branches(self, keyword: str, here: Schema, pointer: str) -> Schema | None:
        branches = here[keyword]
        if len(here) > 1:
            self.lose(pointer, keyword, "ignores it beside other keywords")
        elif keyword == "allOf" and len(branches) > 1:
            self.lose(pointer, keyword, "does not combine schemas")
        elif keyword == "oneOf" and not _disjoint(branches):
            self.lose(pointer, keyword, "would take a value that fits two of the schemas")
        else:
            reduced = [self.inner(branch, pointer, keyword, str(i)) for i, branch in enumerate(branches)]
            return reduced[0] if len(reduced) == 1 else {"anyOf": reduced}
        return None

    def _types(self, here: Schema, pointer: str) -> Schema:
        types = here.pop("type", None)
        if types is None:
            if not here:
                return {}
            types = [kind for kind in KEYWORDS if kind != "integer"]  # values that no keyword binds are all valid
        elif isinstance(types, str):
            types = [types]
        reduced = [self._type(kind, here, pointer) for kind in types]
        return reduced[0] if len(reduced) == 1 else {"anyOf": reduced}

    def _type(self, kind: str, here: Schema, pointer: str) -> Schema:
        relevant = {keyword: value for keyword, value in here.items() if keyword in KEYWORDS[kind]}
        for keyword, value in list(relevant.items()):
            old = isinstance(value, _OLD_FORMS.get(keyword, ()))
            if old or keyword not in self.enforced[kind]:
                self.lose(pointer, keyword, f"does not enforce {'its form of older drafts' if old else 'it'}")
                del relevant[keyword]
        return self.of_type(kind, relevant, pointer)


def _pattern(validator: Any, pattern: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    r"""The keyword for ``jsonschema``, where a prepared pattern may hold ``\u{...}``, which ``re`` does not read."""
    if validator.is_type(value, "string"):
        python = _CODE.sub(lambda match: re.escape(chr(int(match[1], 16))), pattern)
        if not re.search(python, value):
            yield ValidationError(f"{value!r} does not match {pattern!r}")


def _disjoint(branches: Iterable[Any]) -> bool:
    """Whether no value can fit two of the schemas, seen from their types or constants alone."""
    branches = list(branches)
    if all(isinstance(branch, dict) and isinstance(branch.get("type"), str) for branch in branches):
        types = ["number" if branch["type"] == "integer" else branch["type"] for branch in branches]
        return len(set(types)) == len(types)
    if all(isinstance(branch, dict) and "const" in branch for branch in branches):
        texts = [json.dumps(branch["const"], sort_keys=True) for branch in branches]
        return len(set(texts)) == len(texts)
    return False
