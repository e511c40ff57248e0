"""The columns of the package datasets that hold the values of a constraint.

An object with known members is a struct, a list a list, and null may stand everywhere. What has no type of Arrow
(values of several types, any value, members of any name, recursion) is JSON as text.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
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


class Column(ABC):
    """The type of a column, or of a part of it."""

    @property
    @abstractmethod
    def feature(self) -> Any:
        """Of the package datasets."""

    @abstractmethod
    def cell(self, value: Any) -> Any:
        """A value, which is not null, as the feature takes it.

        Raises:
            InvalidArgument: it does not fit.
        """


class JsonText(Column):
    """Any value, as JSON."""

    @property
    def feature(self) -> Any:
        """See ``Column.feature``."""
        return datasets.Value("string")

    def cell(self, value: Any) -> str:
        """See ``Column.cell``."""
        return json.dumps(value, ensure_ascii=False)


class Scalar(Column):
    """Texts, numbers or booleans.

    Args:
        dtype: of Arrow.
    """

    def __init__(self, dtype: str):
        self._dtype = dtype

    @property
    def feature(self) -> Any:
        """See ``Column.feature``."""
        return datasets.Value(self._dtype)

    def cell(self, value: Any) -> Any:
        """See ``Column.cell``."""
        if not isinstance(value, _PYTHON[self._dtype]) or (isinstance(value, bool) and self._dtype != "bool"):
            raise InvalidArgument(f"expected a value for a column of {self._dtype}, got {shown(value)}")
        if self._dtype == "int64":
            value = int(value)
            if not -_LARGEST <= value < _LARGEST:
                raise InvalidArgument(f"expected an integer of 64 bits, got {value}; bound it in the schema")
        if self._dtype == "float64" and isinstance(value, int):
            if not -_EXACT <= value <= _EXACT:  # Arrow takes no integer that a float may round
                raise InvalidArgument(
                    f"expected a number that 64 bits hold, got {shown(value)}; bound it in the schema"
                )
            value = float(value)
        return value


class Label(Column):
    """One of some texts.

    Args:
        names: the texts.
    """

    def __init__(self, names: list[str]):
        self._names = names

    @property
    def feature(self) -> Any:
        """See ``Column.feature``."""
        return datasets.ClassLabel(names=self._names)

    def cell(self, value: Any) -> int:
        """See ``Column.cell``."""
        return self._names.index(value)


class ListOf(Column):
    """Lists.

    Args:
        items: of their items.
    """

    def __init__(self, items: Column):
        self._items = items

    @property
    def feature(self) -> Any:
        """See ``Column.feature``."""
        return datasets.List(self._items.feature)

    def cell(self, value: Any) -> list[Any]:
        """See ``Column.cell``."""
        return [None if item is None else self._items.cell(item) for item in value]


class Struct(Column):
    """Objects.

    Args:
        members: of each member.
    """

    def __init__(self, members: Mapping[str, Column]):
        self._members = members

    @property
    def feature(self) -> Any:
        """See ``Column.feature``."""
        return {name: member.feature for name, member in self._members.items()}

    def cell(self, value: Any) -> dict[str, Any]:
        """See ``Column.cell``: a member that is missing is null."""
        if more := [name for name in value if name not in self._members]:
            raise InvalidArgument(f"expected the members {', '.join(self._members)}, got also {shown(more)}")
        return {
            name: None if value.get(name) is None else member.cell(value[name])
            for name, member in self._members.items()
        }


def column_of(constraint: Constraint | None, *, class_labels: bool = False) -> Column:
    """The column for the values of a constraint.

    Args:
        constraint: of the answers; None is free text.
        class_labels: whether one of some texts is a ``ClassLabel``, which holds its number, instead of a text.
    """
    if isinstance(constraint, JsonSchema):
        return _Reader(constraint.schema, is_closed=constraint.extra != "allow", class_labels=class_labels).column()
    if isinstance(constraint, JsonObject):
        return JsonText()
    if isinstance(constraint, Choice) and class_labels:
        return Label(list(constraint.options))
    return Scalar("string")


class _Reader:
    """Reads one schema."""

    def __init__(self, root: Any, *, is_closed: bool, class_labels: bool):
        self._root, self._is_closed, self._class_labels = root, is_closed, class_labels

    def column(self) -> Column:
        return self._column(self._root, ())

    def _column(self, schema: Any, inside: tuple[str, ...]) -> Column:
        """The column of a subschema.

        Args:
            schema: the subschema.
            inside: the references that led to it.
        """
        if not isinstance(schema, dict):
            return JsonText()
        composes = _COMPOSES & schema.keys()
        if "$ref" in schema:
            if composes != {"$ref"} or schema["$ref"] in inside:
                return JsonText()
            return self._column(self._target(schema["$ref"]), (*inside, schema["$ref"]))
        branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
        if branches is not None:
            branches = [branch for branch in branches if not _is_null(branch)]
            return self._column(branches[0], inside) if len(branches) == len(composes) == 1 else JsonText()
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if values is not None:
            return self._listed([value for value in values if value is not None])
        kinds = schema.get("type")
        kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
        if len(kinds) != 1:
            return JsonText()
        if kinds == ["array"]:
            return JsonText() if "prefixItems" in schema else self._list(schema.get("items"), inside)
        if kinds == ["object"]:
            return self._object(schema, inside)
        return Scalar(_VALUES[kinds[0]]) if kinds[0] in _VALUES else JsonText()

    def _list(self, items: Any, inside: tuple[str, ...]) -> Column:
        return ListOf(self._column(items, inside)) if isinstance(items, dict) else JsonText()

    def _object(self, schema: dict[str, Any], inside: tuple[str, ...]) -> Column:
        is_closed = schema.get("additionalProperties", not self._is_closed) is False
        members = schema.get("properties")
        is_closed &= _COMPOSES & schema.keys() <= {"properties"}
        if not members or not is_closed or any(name not in members for name in schema.get("required", ())):
            return JsonText()
        return Struct({name: self._column(member, inside) for name, member in members.items()})

    def _listed(self, values: list[Any]) -> Column:
        kinds = {type(value) for value in values}
        if kinds == {str}:
            return Label(values) if self._class_labels else Scalar("string")
        for dtype, of_dtype in (("bool", {bool}), ("int64", {int}), ("float64", {int, float})):
            if kinds and kinds <= of_dtype:
                return Scalar(dtype)
        return JsonText()

    def _target(self, reference: str) -> Any:
        """What a reference within the schema leads to; None for other references, of which nothing is known."""
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
