"""Puts the keys of a JSON value into the order its schema declares them in, and finds those that it does not declare.

Constrained decoding fixes the order of keys, or the language would grow with the factorial of their number. The
declared order of an object is

1. the properties of the schema itself, of what its ``$ref`` names, and of the members of its ``allOf``;
2. those of the branches that match: of ``anyOf`` and ``oneOf`` the first, ``if`` with ``then``, or ``else``, and what
   depends on a key that is there; then the branches inside these, and so on;
3. names that are required and declared nowhere;
4. all others, as they stand.

``jsonschema`` decides which branch matches. Values inside are ordered by the schemas that speak of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jsonschema
from jsonschema_specifications import REGISTRY as METASCHEMAS
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

Resolver = Any  # referencing's, which it does not export
_SPEAK_OF_OTHERS = frozenset({"additionalProperties", "unevaluatedProperties", "patternProperties"})


class _At(NamedTuple):
    """A schema, and where its references are looked up."""

    schema: Any
    resolver: Resolver


class DeclaredOrder:
    """The order of one schema; ``registry`` has documents that its references may name, by URI."""

    def __init__(self, schema: Any, registry: Mapping[str, Any] | None = None):
        # Without "$schema" every keyword is read as the newest draft has it.
        validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
        specification = DRAFT202012
        if isinstance(schema, dict) and "$schema" in schema:
            specification = specification_with(validator.META_SCHEMA["$schema"], default=DRAFT202012)
        documents = METASCHEMAS.with_contents((registry or {}).items(), default_specification=specification)
        resolver = documents.resolver_with_root(specification.create_resource(schema))
        self._root = _At(schema, resolver)
        self._ref_alone = specification.name in ("draft-03", "draft-04", "draft-06", "draft-07")
        self._validator = validator(schema, registry=documents, format_checker=validator.FORMAT_CHECKER)

    def __call__(self, instance: Any) -> Any:
        """The same value with its keys in order; a new object."""
        return self._ordered(instance, [self._root])

    def has_undeclared(self, instance: Any) -> bool:
        """Whether some object in the value has a key that nothing declares, where others are not spoken of.

        These are the values that ``extra="forbid"`` may refuse although they are valid. Where several branches of an
        ``anyOf`` match, the first one declares, as it does for the order.
        """
        return self._undeclared(instance, [self._root])

    def _undeclared(self, instance: Any, schemas: list[_At]) -> bool:
        if not isinstance(instance, (dict, list)):
            return False
        parts = self._parts(instance, schemas)
        if isinstance(instance, list):
            return any(
                self._undeclared(item, [at for part in parts for at in _of_item(part, index)])
                for index, item in enumerate(instance)
            )
        declared = {name for part in parts for name in _dict(part.schema, "properties")}
        required = {name for part in parts for name in _list(part.schema, "required")}
        open_ = not declared or any(_SPEAK_OF_OTHERS & part.schema.keys() for part in parts)
        return (not open_ and not instance.keys() <= declared | required) or any(
            self._undeclared(value, [at for part in parts for at in _of_property(part, name)])
            for name, value in instance.items()
        )

    def _ordered(self, instance: Any, schemas: list[_At]) -> Any:
        if not isinstance(instance, (dict, list)):
            return instance
        parts = self._parts(instance, schemas)
        if isinstance(instance, list):
            return [
                self._ordered(item, [at for part in parts for at in _of_item(part, index)])
                for index, item in enumerate(instance)
            ]
        declared = [name for part in parts for name in _dict(part.schema, "properties")]
        required = [name for part in parts for name in _list(part.schema, "required")]
        return {
            name: self._ordered(instance[name], [at for part in parts for at in _of_property(part, name)])
            for name in dict.fromkeys([*declared, *required, *instance])
            if name in instance
        }

    def _parts(self, instance: Any, schemas: list[_At]) -> list[_At]:
        """Every schema that speaks of the instance itself, in the order its names count."""
        found: list[_At] = []
        seen: set[int] = set()

        def always(at: _At) -> None:
            if isinstance(at.schema, dict) and id(at.schema) not in seen:
                seen.add(id(at.schema))
                found.append(at)
                for inner in self._conjuncts(at):
                    always(inner)

        todo = list(schemas)
        while todo:
            start = len(found)
            for at in todo:
                always(at)
            todo = [branch for at in found[start:] for branch in self._branches(at, instance)]
        return found

    def _conjuncts(self, at: _At) -> Iterator[_At]:
        for keyword in ("$ref", "$dynamicRef"):
            if isinstance(at.schema.get(keyword), str):
                try:
                    target = at.resolver.lookup(at.schema[keyword])
                except Unresolvable:
                    continue  # compiling it reports the error
                yield _At(target.contents, target.resolver)
        if not ("$ref" in at.schema and self._ref_alone):
            yield from (_inside(at, item) for item in _list(at.schema, "allOf"))

    def _branches(self, at: _At, instance: Any) -> Iterator[_At]:
        if "$ref" in at.schema and self._ref_alone:
            return
        for keyword in ("anyOf", "oneOf"):
            options = [_inside(at, item) for item in _list(at.schema, keyword)]
            yield from [option for option in options if self._matches(option, instance)][:1]
        if "if" in at.schema:
            condition = _inside(at, at.schema["if"])
            if self._matches(condition, instance):
                yield condition
                yield _inside(at, at.schema.get("then", True))
            else:
                yield _inside(at, at.schema.get("else", True))
        for keyword in ("dependentSchemas", "dependencies"):
            for name, schema in _dict(at.schema, keyword).items():
                if isinstance(instance, dict) and name in instance:
                    yield _inside(at, schema)

    def _matches(self, at: _At, instance: Any) -> bool:
        try:
            return not any(self._validator.descend(instance, at.schema, resolver=at.resolver))
        except (re.error, Unresolvable):  # a pattern or a reference that jsonschema cannot read
            return False


def _of_property(part: _At, name: str) -> Iterator[_At]:
    """The schemas for the value of a property."""
    schema = part.schema
    found = [_dict(schema, "properties")[name]] if name in _dict(schema, "properties") else []
    found += [inner for pattern, inner in _dict(schema, "patternProperties").items() if _found(pattern, name)]
    if not found:
        found = [schema[key] for key in ("additionalProperties", "unevaluatedProperties") if key in schema]
    yield from (_inside(part, inner) for inner in found)


def _found(pattern: str, name: str) -> bool:
    try:
        return bool(re.search(pattern, name))
    except re.error:  # right in ECMA-262, not in Python
        return False


def _of_item(part: _At, index: int) -> Iterator[_At]:
    """The schemas for an item of an array."""
    schema = part.schema
    items = schema.get("items")
    first = items if isinstance(items, list) else _list(schema, "prefixItems")
    if index < len(first):
        yield _inside(part, first[index])
        return
    rest = ("additionalItems", "unevaluatedItems") if isinstance(items, list) else ("items", "unevaluatedItems")
    yield from (_inside(part, schema[key]) for key in (*rest, "contains") if key in schema)


def _inside(at: _At, schema: Any) -> _At:
    """A schema inside another: an ``$id`` of its own moves the base of its references."""
    base = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    if isinstance(base, str) and base and not base.startswith("#"):
        return _At(schema, at.resolver.in_subresource(DRAFT202012.create_resource({"$id": base})))
    return _At(schema, at.resolver)


def _dict(schema: Any, keyword: str) -> dict[str, Any]:
    value = schema.get(keyword)
    return value if isinstance(value, dict) else {}


def _list(schema: Any, keyword: str) -> list[Any]:
    value = schema.get(keyword)
    return value if isinstance(value, list) else []
