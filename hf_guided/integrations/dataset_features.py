"""The columns of the package datasets that hold the values of a constraint.

An object with known members is a struct, a list a list, and null may stand everywhere. What has no type of Arrow
(values of several types, any value, members of any name, recursion) is JSON as text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import datasets

from ..constraints.values import Choice, Constraint, JsonObject, JsonSchema
from ..errors import InvalidArgument, shown

_LARGEST = 2**63
_EXACT = 2**53
_VALUES = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}
_PYTHON: dict[str, Any] = {"string": str, "int64": (int, float), "float64": (int, float), "bool": bool}  # of values
# What may add members to those of "properties", or change their types.
_COMPOSES = frozenset(
    "$ref $dynamicRef $recursiveRef allOf anyOf oneOf if then else dependentSchemas dependencies properties "
    "patternProperties items prefixItems".split()
)


@dataclass(frozen=True)
class Column:
    """The type of a column, or of a part of it.

    Args:
        feature: of the package datasets.
        cell: what the feature takes, made of a value that is not null; raises InvalidArgument if it does not fit.
    """

    feature: Any
    cell: Callable[[Any], Any]


_JSON = Column(datasets.Value("string"), partial(json.dumps, ensure_ascii=False))


def _scalar(dtype: str) -> Column:
    """Texts, numbers or booleans."""
    return Column(datasets.Value(dtype), partial(_scalar_cell, dtype))


def _scalar_cell(dtype: str, value: Any) -> Any:
    if not isinstance(value, _PYTHON[dtype]) or (isinstance(value, bool) and dtype != "bool"):
        raise InvalidArgument(f"expected a value for a column of {dtype}, got {shown(value)}")
    if dtype == "int64":
        value = int(value)
        if not -_LARGEST <= value < _LARGEST:
            raise InvalidArgument(f"expected an integer of 64 bits, got {value}; bound it in the schema")
    if dtype == "float64" and isinstance(value, int):
        if not -_EXACT <= value <= _EXACT:  # Arrow takes no integer that a float may round
            raise InvalidArgument(f"expected a number that 64 bits hold, got {shown(value)}; bound it in the schema")
        value = float(value)
    return value


def _label(names: list[str]) -> Column:
    """A text out of some, as its number."""
    return Column(datasets.ClassLabel(names=names), names.index)


def _list(items: Column) -> Column:
    def cell(value: Any) -> list[Any]:
        return [None if item is None else items.cell(item) for item in value]

    return Column(datasets.List(items.feature), cell)


def _struct(members: Mapping[str, Column]) -> Column:
    """Objects; a member that is missing is null."""

    def cell(value: Any) -> dict[str, Any]:
        if more := [name for name in value if name not in members]:
            raise InvalidArgument(f"expected the members {', '.join(members)}, got also {shown(more)}")
        return {name: None if value.get(name) is None else member.cell(value[name]) for name, member in members.items()}

    return Column({name: member.feature for name, member in members.items()}, cell)


def column_of(constraint: Constraint | None, *, class_labels: bool = False) -> Column:
    """The column for the values of a constraint.

    Args:
        constraint: of the answers; None is free text.
        class_labels: whether one of some texts is a ``ClassLabel``, which holds its number, instead of a text.
    """
    if isinstance(constraint, JsonSchema):
        reader = _Reader(constraint.schema, is_closed=constraint.extra != "allow", class_labels=class_labels)
        return reader.column(constraint.schema, ())
    if isinstance(constraint, JsonObject):
        return _JSON
    if isinstance(constraint, Choice) and class_labels:
        return _label(list(constraint.options))
    return _scalar("string")


class _Reader:
    """Reads one schema."""

    def __init__(self, root: Any, *, is_closed: bool, class_labels: bool):
        self._root, self._is_closed, self._class_labels = root, is_closed, class_labels

    def column(self, schema: Any, inside: tuple[str, ...]) -> Column:
        """The column of a subschema.

        Args:
            schema: the subschema.
            inside: the references that led to it.
        """
        if not isinstance(schema, dict):
            return _JSON
        composes = _COMPOSES & schema.keys()
        if "$ref" in schema:
            if composes != {"$ref"} or schema["$ref"] in inside:
                return _JSON
            return self.column(self._target(schema["$ref"]), (*inside, schema["$ref"]))
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if branches is not None:
            branches = [branch for branch in branches if not _is_null(branch)]
            return self.column(branches[0], inside) if len(branches) == len(composes) == 1 else _JSON
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            return self._listed([value for value in values if value is not None])
        kinds = schema.get("type")
        kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
        if len(kinds) != 1:
            return _JSON
        if kinds == ["array"]:
            items = schema.get("items")
            fits = isinstance(items, dict) and "prefixItems" not in schema
            return _list(self.column(items, inside)) if fits else _JSON
        if kinds == ["object"]:
            return self._object(schema, inside)
        return _scalar(_VALUES[kinds[0]]) if kinds[0] in _VALUES else _JSON

    def _object(self, schema: dict[str, Any], inside: tuple[str, ...]) -> Column:
        is_closed = schema.get("additionalProperties", not self._is_closed) is False
        members = schema.get("properties")
        is_closed &= _COMPOSES & schema.keys() <= {"properties"}
        if not members or not is_closed or any(name not in members for name in schema.get("required", ())):
            return _JSON
        return _struct({name: self.column(member, inside) for name, member in members.items()})

    def _listed(self, values: list[Any]) -> Column:
        kinds = {type(value) for value in values}
        if kinds == {str}:
            return _label(values) if self._class_labels else _scalar("string")
        for dtype, of_dtype in (("bool", {bool}), ("int64", {int}), ("float64", {int, float})):
            if kinds and kinds <= of_dtype:
                return _scalar(dtype)
        return _JSON

    def _target(self, reference: str) -> Any:
        """The target of a reference within the schema; None for other references, of which nothing is known."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        found = self._root
        for part in reference.removeprefix("#").split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                return None
            found = found[part]
        return found


def _is_null(schema: Any) -> bool:
    return isinstance(schema, dict) and (schema.get("type") == "null" or schema.get("const", 0) is None)
