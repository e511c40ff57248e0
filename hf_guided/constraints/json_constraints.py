"""Constraints on JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

from ..errors import InvalidConstraint, reading, shown
from . import json_text
from .base import Constraint, OnUnsupported, beginning, one_of, replaced, set_fields
from .json_schema_keywords import NormalForm
from .json_style import JsonStyle, KeyOrder, Spelling, Whitespace, json_style
from .python_types import TypeNote, adapter_of, schema_of

Extra = Literal["forbid", "allow"]
_DEFAULTS = {"whitespace": "flexible", "extra": "forbid", "spelling": "canonical", "key_order": "declared"}


@dataclass(frozen=True, init=False, repr=False)
class JsonSchema(Constraint):
    """JSON text that is valid against a JSON Schema.

    Args:
        schema: a dict or bool, JSON text of one, or a Python type: Pydantic model, dataclass, TypedDict, Enum,
            list[int], Literal, Annotated ... (whatever Pydantic's TypeAdapter takes). A type is also what ``parse``
            gives back.
        whitespace: "flexible" (bounded), "compact" (with the separators of ``json.dumps``) or "minified" (without
            white space).
        extra: whether objects whose schema says nothing about additional properties may have some:
            "forbid" or "allow" (as JSON Schema itself says).
        max_depth: how deeply arrays and objects may nest, the outermost counted; None is no bound. The native
            engine enforces it; each level takes as many states as the one before.
        registry: documents that remote ``$ref`` may name, by URI. Nothing is ever fetched: a reference to any other
            document counts as not enforced.
        on_unsupported: what to do with keywords that no backend enforces: "error", "warn" (leave them out), or
            "validate" (leave them out, and validate the finished text).
        indent: the layout of ``json.dumps(indent=...)`` instead of ``whitespace``. The indentation depends on the
            depth, so a schema that is recursive, or allows any value somewhere, also needs ``max_depth``.
        spelling: "canonical" (each value as ``json.dumps(ensure_ascii=False)`` writes it: integers without a point and
            of at most 20 digits, or as many as bounds and listed values need; other numbers in the shape of a float's
            repr; strings without needless escapes; date-times with T, Z and at most 9 digits of a fraction) or "any"
            (every spelling that JSON allows, but for names). The audit lists what "canonical" leaves out.
        key_order: of the members of an object: "declared" (the order of the schema), or "any", in which no name comes
            twice.

    Raises:
        InvalidConstraint: not a schema, not JSON, or an unknown option.
    """

    kind: ClassVar[str] = "json_schema"

    schema_json: str
    whitespace: Whitespace
    extra: Extra
    max_depth: int | None
    registry_json: str | None
    on_unsupported: OnUnsupported
    indent: int | None
    spelling: Spelling
    key_order: KeyOrder
    # Not hashed: Annotated may hold unhashable values.
    python_type: Any = field(default=None, hash=False)
    type_notes: tuple[TypeNote, ...] = ()  # differences between the schema and the type: rows of the audit
    described_json: str | None = None
    lenient: bool = False  # whether any object will do where it does not compile ("strict": false)

    @reading("JsonSchema", InvalidConstraint)
    def __init__(
        self,
        schema: Any,
        whitespace: Whitespace = "flexible",
        extra: Extra = "forbid",
        max_depth: int | None = None,
        registry: Mapping[str, Any] | None = None,
        on_unsupported: OnUnsupported = "error",
        *,
        indent: int | None = None,
        spelling: Spelling = "canonical",
        key_order: KeyOrder = "declared",
    ) -> None:
        if isinstance(schema, str):
            schema = json_text.loads(schema, "JSON Schema")
            _expect_schema(schema, "JSON Schema text")
        elif isinstance(schema, Mapping):
            schema = dict(schema)
        elif not isinstance(schema, bool):
            set_fields(self, python_type=schema)
            schema, described, notes = schema_of(schema)
            set_fields(self, type_notes=notes, described_json=json_text.dumps(described, "JSON Schema"))
        if max_depth is not None and (type(max_depth) is not int or max_depth < 1):
            raise InvalidConstraint(f"max_depth: expected an int of 1 or more, or None, got {shown(max_depth)}")
        style = json_style(whitespace, indent, spelling)
        set_fields(
            self,
            schema_json=json_text.dumps(schema, "JSON Schema"),
            whitespace=style.whitespace,
            indent=style.indent,
            spelling=style.spelling,
            key_order=one_of("key_order", key_order, KeyOrder),
            extra=one_of("extra", extra, Extra),
            max_depth=max_depth,
            registry_json=None if not registry else _registry_json(registry),
            on_unsupported=one_of("on_unsupported", on_unsupported, OnUnsupported),
        )

    @property
    def schema(self) -> dict[str, Any] | bool:
        """The JSON Schema, a fresh copy."""
        return json.loads(self.schema_json)  # type: ignore[no-any-return]

    @property
    def described(self) -> dict[str, Any] | bool:
        """The JSON Schema to show to people and models, a fresh copy: of a type with formats' names for patterns."""
        return json.loads(self.described_json or self.schema_json)  # type: ignore[no-any-return]

    @property
    def registry(self) -> dict[str, Any]:
        """The documents remote ``$ref`` may name, by URI, a fresh copy."""
        return json.loads(self.registry_json or "{}")  # type: ignore[no-any-return]

    @property
    def style(self) -> JsonStyle:
        """The layout and spelling of its values."""
        return JsonStyle(self.whitespace, self.indent, self.spelling)

    @property
    def point_zero(self) -> bool:
        """Whether an integer may be written 1.0, as JSON Schema allows: strict readers take that for a float."""
        return self.spelling == "any" and self.python_type is None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments that decide which texts it has and are not the defaults, other than the schema; JSON values."""
        names = ("whitespace", "extra", "max_depth", "indent", "spelling", "key_order")
        values = {name: getattr(self, name) for name in names} | {"registry": self.registry or None}
        return {name: value for name, value in values.items() if value != _DEFAULTS.get(name)}

    def any_object(self) -> JsonObject:
        """Any object, in the same layout and spelling."""
        return JsonObject(self.whitespace, spelling=self.spelling)

    def styled(self, style: JsonStyle) -> JsonSchema:
        """The same values, with another layout or spelling."""
        return replaced(self, whitespace=style.whitespace, indent=style.indent, spelling=style.spelling)

    def _identity(self) -> Sequence[Any]:
        # Registry documents are compared unchanged: a pointer from elsewhere may lead anywhere into them.
        options = (
            *(self.extra, self.max_depth, self.registry_json, self.on_unsupported, self.point_zero),
            *(self.key_order, self.lenient),
        )
        return self.normal_form.digest, *self.style, *options

    @cached_property
    def normal_form(self) -> NormalForm:
        """The normal form of its schema."""
        return NormalForm.of(self.schema_json)

    def check(self) -> None:
        """Validate the schema against its metaschema.

        Raises:
            InvalidConstraint: with the JSON pointer of the first thing that is wrong.
        """
        from .json_validator import check_schema  # takes time to import

        check_schema(self.schema_json)

    def parse(self, text: str) -> Any:
        """The JSON value, or an instance of the type this was made from.

        Raises:
            ValueError: not JSON, not of the type, or, with ``on_unsupported="validate"``, not valid.
        """
        if self.on_unsupported == "validate":
            from .json_validator import with_exact_numbers

            for error in self.validator().iter_errors(with_exact_numbers(text)):
                raise ValueError(f"not valid at {error.json_path}: {error.message}")
        if self.python_type is None:
            return json.loads(text)
        return adapter_of(self.python_type).validate_json(text)

    def validator(self) -> Any:
        """The validator of `jsonschema` for the schema; see ``json_validator``."""
        from .json_validator import validator

        return validator(self.schema_json, self.registry)

    def __repr__(self) -> str:
        made_from = self.schema_json if self.python_type is None else repr(self.python_type)
        options: dict[str, Any] = {"whitespace": self.whitespace, "extra": self.extra}
        if self.indent is not None:
            options = {"indent": self.indent, "extra": self.extra}
        if self.spelling != "canonical":
            options["spelling"] = self.spelling
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"JsonSchema({beginning(made_from)}, {written})"


@dataclass(frozen=True)
class JsonObject(Constraint):
    """Any JSON object.

    Args:
        whitespace: see ``JsonSchema``.
        spelling: see ``JsonSchema``.
    """

    kind: ClassVar[str] = "json_object"

    whitespace: Whitespace = "flexible"
    spelling: Spelling = field(default="canonical", kw_only=True)

    @reading("JsonObject", InvalidConstraint)
    def __post_init__(self) -> None:
        json_style(self.whitespace, None, self.spelling)

    @property
    def style(self) -> JsonStyle:
        """The layout and spelling of its values."""
        return JsonStyle(self.whitespace, None, self.spelling)

    def as_schema(self) -> JsonSchema:
        """The same texts by the schema of an object."""
        return JsonSchema({"type": "object"}, self.whitespace, spelling=self.spelling)

    def _identity(self) -> Sequence[Any]:
        return self.style

    def parse(self, text: str) -> Any:
        """The object as a dict."""
        return json.loads(text)


def laid_out(
    constraint: Constraint | None,
    whitespace: Whitespace | None,
    indent: int | None,
    spelling: Spelling | None = None,
) -> Constraint | None:
    """A constraint on JSON with these options of ``JsonSchema``; other constraints stay unchanged.

    None keeps the constraint's own option; but with a ``whitespace`` and no ``indent`` there is no indentation.

    Raises:
        InvalidConstraint: unknown, two at once, or an indent for any object, whose depth has no bound.
    """
    if whitespace is None and indent is None and spelling is None:
        return constraint
    own = constraint.style if isinstance(constraint, (JsonSchema, JsonObject)) else JsonStyle()
    if whitespace is not None or indent is not None:
        own = own._replace(whitespace=whitespace or "flexible", indent=indent)
    style = json_style(own.whitespace, own.indent, spelling or own.spelling)
    if isinstance(constraint, JsonSchema):
        return constraint.styled(style)
    if isinstance(constraint, JsonObject):
        if indent is not None:
            raise InvalidConstraint(
                "an indentation depends on the depth, and any JSON object may have any; pass "
                f'hg.JsonSchema({{"type": "object"}}, indent={indent}, max_depth=...)'
            )
        return JsonObject(style.whitespace, spelling=style.spelling)
    return constraint


def _expect_schema(schema: Any, what: str) -> None:
    if not isinstance(schema, (dict, bool)):
        raise InvalidConstraint(
            f"{what}: expected an object or a bool, got {shown(schema)} of type {type(schema).__name__}"
        )


def _registry_json(registry: Mapping[str, Any]) -> str:
    if not isinstance(registry, Mapping):
        raise InvalidConstraint(f"registry: expected a mapping of URI to document, got {type(registry).__name__}")
    for uri, document in registry.items():
        _expect_schema(document, f"registry[{uri!r}]")
    return json_text.dumps({uri: registry[uri] for uri in sorted(registry)}, "registry")
