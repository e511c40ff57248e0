"""Constraints on a row's text: frozen, hashable values.

A constraint copies what it is given, so changing a schema dict afterwards changes nothing. Two constraints with the
same ``key`` allow the same texts and share one compiled grammar; they may still differ in how they parse the text
back, so parse with the constraint the caller gave, not with the one that was compiled.

Constructors refuse what is malformed. Two checks need more time than a constructor should take and are done when a
constraint is compiled or audited: a schema against its metaschema (``check()``, about a millisecond), and the rules
of a grammar (its engine).
"""

from __future__ import annotations

import enum
import json
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Literal

from ..errors import InvalidConstraint, Loss, UnsupportedConstraint, reading, shown
from . import json_text
from .cache_keys import digest, normal_form
from .json_style import MAX_INDENT, JsonStyle, Spelling
from .json_style import Whitespace as Whitespace
from .json_text import shorten
from .python_types import TypeNote, adapter_of, schema_of
from .structural_tag_checks import check_tag, inside_tag

Extra = Literal["forbid", "allow"]
OnUnsupported = Literal["error", "warn", "validate"]
KeyOrder = Literal["declared", "any"]
Syntax = Literal["lark", "gbnf"]
DEFAULT_ROOT: dict[str, str] = {"lark": "start", "gbnf": "root"}


class Constraint:
    """Base class of all constraints."""

    kind: ClassVar[str]
    spelling: Spelling | None = None  # of JSON values; None where there are none
    on_unsupported: OnUnsupported = "error"

    @cached_property
    def key(self) -> str:
        """Sha256 that is the same for constraints with the same texts and the same demands on a backend."""
        return digest(self.kind, *self._identity())

    def _identity(self) -> Sequence[Any]:
        """What distinguishes this constraint from others of its kind, as JSON values."""
        raise NotImplementedError

    def check(self) -> None:
        """The checks that are too slow for the constructor; raises InvalidConstraint."""

    def for_tokenizer(self, tokenizer: Any) -> Constraint:
        """The same constraint, with the parts that depend on the tokenizer filled in."""
        return self

    def parse(self, text: str) -> Any:
        """The value of a finished text.

        Args:
            text: a text that satisfies the constraint.

        Raises:
            ValueError: the text does not satisfy it (json.JSONDecodeError, pydantic.ValidationError ...).
        """
        return text


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
        max_depth: how deeply arrays and objects may nest, the outermost counted; None is no bound. The automaton
            enforces it: with a bound it takes schemas that are recursive, or that allow any value somewhere. Each
            level takes about twice the states of the one before.
        registry: documents that remote ``$ref`` may name, by URI. Nothing is ever fetched: a reference to any other
            document counts as not enforced.
        on_unsupported: what to do with keywords that no backend enforces: "error", "warn" (leave them out), or
            "validate" (leave them out, and validate the finished text).
        indent: the layout of ``json.dumps(indent=...)`` instead of ``whitespace``. The indentation depends on the
            depth, so a schema that is recursive, or allows any value somewhere, also needs ``max_depth``.
        spelling: "canonical" (each value as ``json.dumps(ensure_ascii=False)`` writes it: integers without a point and
            of at most 20 digits, or as many as bounds and listed values need; other numbers in the shape of a float's
            repr; strings without needless escapes; date-times with T, Z and at most 9 digits of a fraction) or "any"
            (every spelling that JSON allows). The audit lists what "canonical" leaves out.
        key_order: "declared": the members of an object come in the order of its schema.

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
    python_type: Any = field(hash=False)
    # Differences between the schema and the type: rows of the audit. They follow from the type.
    type_notes: tuple[TypeNote, ...] = field(compare=False)
    described_json: str | None = field(compare=False)

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
        python_type: Any = None
        type_notes: tuple[TypeNote, ...] = ()
        described: Any = None
        if isinstance(schema, str):
            schema = json_text.loads(schema, "JSON Schema")
            _expect_schema(schema, "JSON Schema text")
        elif isinstance(schema, Mapping):
            schema = dict(schema)
        elif not isinstance(schema, bool):
            python_type = schema
            schema, described, type_notes = schema_of(python_type)
        if max_depth is not None and (type(max_depth) is not int or max_depth < 1):
            raise InvalidConstraint(f"max_depth: expected an int of 1 or more, or None, got {shown(max_depth)}")
        if _one_of("key_order", key_order, KeyOrder) == "any":
            raise InvalidConstraint('key_order="any" is not supported yet; leave it out for the order of the schema')
        style = json_style(whitespace, indent, spelling)
        set_fields(
            self,
            schema_json=json_text.dumps(schema, "JSON Schema"),
            whitespace=style.whitespace,
            indent=style.indent,
            spelling=style.spelling,
            key_order=key_order,
            extra=_one_of("extra", extra, Extra),
            max_depth=max_depth,
            registry_json=None if not registry else _registry_json(registry),
            on_unsupported=_one_of("on_unsupported", on_unsupported, OnUnsupported),
            python_type=python_type,
            type_notes=type_notes,
            described_json=None if described is None else json_text.dumps(described, "JSON Schema"),
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
        """How its values are written."""
        return JsonStyle(self.whitespace, self.indent, self.spelling)

    @property
    def point_zero(self) -> bool:
        """Whether an integer may be written 1.0, as JSON Schema allows: strict readers take that for a float."""
        return self.spelling == "any" and self.python_type is None

    def styled(self, style: JsonStyle) -> JsonSchema:
        """The same values, with another layout or spelling."""
        return JsonSchema(
            self.schema if self.python_type is None else self.python_type,
            style.whitespace,
            self.extra,
            self.max_depth,
            self.registry,
            self.on_unsupported,
            indent=style.indent,
            spelling=style.spelling,
            key_order=self.key_order,
        )

    def _identity(self) -> Sequence[Any]:
        # Registry documents are compared unchanged: a pointer from elsewhere may lead anywhere into them.
        options = self.extra, self.max_depth, self.registry_json, self.on_unsupported, self.point_zero
        return normal_form(self.schema), *self.style, *options

    def check(self) -> None:
        """Validate the schema against its metaschema.

        Raises:
            InvalidConstraint: with the JSON pointer of the first thing that is wrong.
        """
        _ = self._is_valid

    @cached_property
    def _is_valid(self) -> bool:
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import Draft4Validator, Draft7Validator, Draft202012Validator, validator_for

        schema = self.schema
        if isinstance(schema, dict) and not isinstance(schema.get("$schema", ""), str):
            raise InvalidConstraint(f"not a valid JSON Schema, at /$schema: expected a URI, got {schema['$schema']!r}")
        known = validator_for(schema, default=Draft202012Validator)
        try:
            known.check_schema(schema)  # type: ignore[arg-type] # stubs know no bool
        except SchemaError as error:
            # Many schemas that do not name their draft were written for an older one than the default.
            older = (Draft7Validator, Draft4Validator) if "$schema" not in self.schema_json else ()
            if any(draft(draft.META_SCHEMA).is_valid(schema) for draft in older):
                return True
            pointer = "/" + "/".join(str(step).replace("~", "~0").replace("/", "~1") for step in error.absolute_path)
            raise InvalidConstraint(f"not a valid JSON Schema, at {pointer}: {error.message}") from None
        except RecursionError:
            raise InvalidConstraint("the JSON Schema is nested too deeply; flatten it with $defs and $ref") from None
        return True

    def parse(self, text: str) -> Any:
        """The JSON value, or an instance of the type this was made from.

        Raises:
            ValueError: not JSON, not of the type, or, with ``on_unsupported="validate"``, not valid.
        """
        if self.on_unsupported == "validate":
            self._validate(_exact(text))
        if self.python_type is None:
            return json.loads(text)
        return adapter_of(self.python_type).validate_json(text)

    def _validate(self, value: Any) -> None:
        """Check here the keywords that decoding did not enforce; ``value`` has exact numbers."""
        for error in self.validator().iter_errors(value):
            raise ValueError(f"not valid at {error.json_path}: {error.message}")

    def validator(self) -> Any:
        """The validator of `jsonschema` for it; values should have their numbers as ``exact_number`` reads them."""
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        from .checked_patterns import with_python_patterns  # reads patterns, which takes time to import

        schema = with_python_patterns(_exact(self.schema_json))
        known = validator_for(schema, default=Draft202012Validator)
        documents = [
            (uri, DRAFT202012.create_resource(with_python_patterns(document)))
            for uri, document in self.registry.items()
        ]
        return known(schema, registry=Registry().with_resources(documents), format_checker=known.FORMAT_CHECKER)

    def __repr__(self) -> str:
        made_from = self.schema_json if self.python_type is None else repr(self.python_type)
        options: dict[str, Any] = {"whitespace": self.whitespace, "extra": self.extra}
        if self.indent is not None:
            options = {"indent": self.indent, "extra": self.extra}
        if self.spelling != "canonical":
            options["spelling"] = self.spelling
        written = ", ".join(f"{name}={value!r}" for name, value in options.items())
        return f"JsonSchema({shorten(made_from)[1:-1]}, {written})"


@dataclass(frozen=True)
class JsonObject(Constraint):
    """Any JSON object.

    Args:
        whitespace: "flexible" (bounded), "compact" (with the separators of ``json.dumps``) or "minified" (without
            white space).
        spelling: "canonical" (each value as ``json.dumps`` writes it) or "any"; see ``JsonSchema``.
    """

    kind: ClassVar[str] = "json_object"

    whitespace: Whitespace = "flexible"
    spelling: Spelling = field(default="canonical", kw_only=True)

    @reading("JsonObject", InvalidConstraint)
    def __post_init__(self) -> None:
        json_style(self.whitespace, None, self.spelling)

    @property
    def style(self) -> JsonStyle:
        """How its values are written."""
        return JsonStyle(self.whitespace, None, self.spelling)

    def as_schema(self) -> JsonSchema:
        """The same as a schema."""
        return JsonSchema({"type": "object"}, self.whitespace, spelling=self.spelling)

    def _identity(self) -> Sequence[Any]:
        return self.style

    def parse(self, text: str) -> Any:
        """The object as a dict."""
        return json.loads(text)


@dataclass(frozen=True, init=False)
class Regex(Constraint):
    """Text that a regular expression matches from beginning to end (``re.fullmatch``).

    Args:
        pattern: in the syntax of Python's `re`. The flags IGNORECASE and DOTALL are kept; the others are refused.

    Raises:
        InvalidConstraint: it does not compile, is a bytes pattern, or has a flag that engines do not know.
        UnsupportedConstraint: it is longer than any engine takes.
    """

    kind: ClassVar[str] = "regex"

    pattern: str

    @reading("Regex", InvalidConstraint)
    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        compiled = _compiled(pattern)
        unknown = re.RegexFlag(compiled.flags) & ~(re.UNICODE | re.DEBUG | re.IGNORECASE | re.DOTALL)
        if unknown:
            name, advice = next((name, text) for name, text in _FLAG_ADVICE.items() if unknown & re.RegexFlag[name])
            raise InvalidConstraint(f"expected no regex flags but IGNORECASE and DOTALL, got {name}; {advice}")
        # Flags are kept in one field, so that re.compile("a", re.I) and "(?i)a" are one constraint.
        body = re.sub(r"\A(\(\?[aiLmsux]+\))+", "", compiled.pattern)
        letters = "i" * bool(compiled.flags & re.IGNORECASE) + "s" * bool(compiled.flags & re.DOTALL)
        set_fields(self, pattern=f"(?{letters}){body}" if letters else body)

    def _identity(self) -> Sequence[Any]:
        return (self.pattern,)

    def parse(self, text: str) -> re.Match[str]:
        """The match."""
        match = re.fullmatch(self.pattern, text)
        if match is None:
            raise ValueError(f"{shorten(text)} does not match {self.pattern!r}")
        return match


@dataclass(frozen=True, init=False)
class Choice(Constraint):
    """One of several literal texts (no JSON quotes).

    Args:
        options: strings in order, repeats are dropped; or an Enum class or Literal of strings. The empty string
            means "or nothing at all" and needs another option beside it.

    Raises:
        InvalidConstraint: no options, or one that is not a string.
    """

    kind: ClassVar[str] = "choice"

    options: tuple[str, ...]

    @reading("Choice", InvalidConstraint)
    def __init__(self, options: Any) -> None:
        if isinstance(options, enum.EnumMeta):
            options = [member.value for member in options]  # type: ignore[var-annotated]
        elif typing.get_origin(options) is Literal:
            options = typing.get_args(options)
        if not isinstance(options, (list, tuple)):
            raise InvalidConstraint(
                f"Choice: expected a list of strings, got {shown(options)} of type {type(options).__name__}; "
                "write hg.Choice(['yes', 'no'])"
            )
        for index, option in enumerate(options):
            if not isinstance(option, str):
                raise InvalidConstraint(
                    f"Choice: expected strings, got {shown(option)} of type {type(option).__name__} at index {index}; "
                    "for other JSON values use hg.JsonSchema({'enum': [...]})"
                )
            _expect_utf8(option, "Choice")
        unique = tuple(dict.fromkeys(map(str, options)))
        if unique in ((), ("",)):
            raise InvalidConstraint(f"Choice: expected at least one option with text in it, got {list(unique)!r}")
        set_fields(self, options=unique)

    def _identity(self) -> Sequence[Any]:
        return (self.options,)

    def parse(self, text: str) -> str:
        """The option."""
        if text not in self.options:
            raise ValueError(f"{shorten(text)} is none of the options {shorten(str(list(self.options)))}")
        return text


@dataclass(frozen=True, init=False)
class Grammar(Constraint):
    """Text that matches a context-free grammar.

    Args:
        text: Lark as llguidance reads it (``start: "a" b``), or GBNF as llama.cpp reads it (``root ::= "a" b``).
        syntax: "lark" or "gbnf" ("ebnf" is another name for it); None looks at the first rule.
        root: the rule that every text matches; None is ``start`` in Lark and ``root`` in GBNF.

    Raises:
        InvalidConstraint: the syntax cannot be recognized. The rules are read when it is compiled.
    """

    kind: ClassVar[str] = "grammar"

    text: str
    syntax: Syntax
    root: str

    @reading("Grammar", InvalidConstraint)
    def __init__(self, text: str, syntax: Syntax | Literal["ebnf"] | None = None, root: str | None = None) -> None:
        if not isinstance(text, str):
            raise InvalidConstraint(f"Grammar: expected its text as a string, got {type(text).__name__}")
        _expect_utf8(text, "Grammar")
        known: Syntax
        if syntax is None:
            known = _detect_syntax(text)
        else:
            known = _one_of("syntax", "gbnf" if syntax == "ebnf" else syntax, Syntax)
        if root is not None and not isinstance(root, str):
            raise InvalidConstraint(f"root: expected the name of a rule, or None, got {shown(root)}")
        name = "" if root is None else root[:]  # of plain str: a subclass may have methods that raise
        set_fields(self, text=text, syntax=known, root=name or DEFAULT_ROOT[known])

    def _identity(self) -> Sequence[Any]:
        return self.syntax, self.root, self.text


@dataclass(frozen=True, init=False, repr=False)
class StructuralTag(Constraint):
    """Free text with constrained segments between tags, as xgrammar describes it.

    Args:
        tag: a dict, its JSON text, or an `xgrammar.StructuralTag`.

    Raises:
        InvalidConstraint: not a structural tag; with the JSON pointer of the first thing that is wrong.
    """

    kind: ClassVar[str] = "structural_tag"
    spelling = "canonical"  # of the JSON in it

    tag_json: str

    @reading("StructuralTag", InvalidConstraint)
    def __init__(self, tag: Any) -> None:
        if hasattr(tag, "model_dump_json") and not isinstance(tag, type):
            tag = tag.model_dump_json()
        if isinstance(tag, str):
            tag = json_text.loads(tag, "structural tag")
        if not isinstance(tag, Mapping):
            raise InvalidConstraint(f"StructuralTag: expected a dict, JSON text or xgrammar object, got {shown(tag)}")
        if tag.get("type", "structural_tag") != "structural_tag" or not ("format" in tag or "structures" in tag):
            raise InvalidConstraint(
                'StructuralTag: expected {"type": "structural_tag", "format": {...}} '
                f'or {{"structures": [...], "triggers": [...]}}, got {shorten(str(dict(tag)))}'
            )
        set_fields(self, tag_json=json_text.dumps(dict(tag), "structural tag"))
        check_tag(self.tag, _part_of_tag(Regex), _part_of_tag(JsonSchema))

    @property
    def tag(self) -> dict[str, Any]:
        """The structural tag, a fresh copy."""
        return json.loads(self.tag_json)  # type: ignore[no-any-return]

    def _identity(self) -> Sequence[Any]:
        return (self.tag_json,)

    def __repr__(self) -> str:
        return f"StructuralTag({shorten(self.tag_json)[1:-1]})"


def _part_of_tag(make: Callable[[Any], Constraint]) -> Callable[[Any, str], None]:
    """The check of a pattern or a schema inside a structural tag, by the constraint that it would be alone."""

    def check(value: Any, pointer: str) -> None:
        with inside_tag(pointer):
            make(value)

    return check


def laid_out(
    constraint: Constraint | None,
    whitespace: Whitespace | None,
    indent: int | None,
    spelling: Spelling | None = None,
) -> Constraint | None:
    """A constraint on JSON with this layout; other constraints, and options that are not given, stay unchanged.

    Args:
        constraint: of one row.
        whitespace: see ``JsonSchema``; None for the constraint's own.
        indent: see ``JsonSchema``; None for none, where there is a ``whitespace``, else for the constraint's own.
        spelling: see ``JsonSchema``; None for the constraint's own.

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


_SHORT_PATTERN = 10_000  # characters that Python compiles in milliseconds, whatever they are

_FLAG_ADVICE = {
    "VERBOSE": "remove the blanks and comments from the pattern",
    "MULTILINE": "the whole output is matched, so ^ and $ are not needed",
    "ASCII": "spell the class out, e.g. [0-9] for \\d",
}


def set_fields(constraint: Constraint, **values: Any) -> None:
    """Set fields in the constructor of a frozen constraint."""
    for name, value in values.items():
        object.__setattr__(constraint, name, value)  # a frozen dataclass is written only this way


def exact_number(digits: str) -> int | Decimal:
    """A number with a point, exactly: as a float, 19.99 is no multiple of 0.01, and as a Decimal, 1.0 is no integer."""
    number = Decimal(digits)
    return int(number) if number == number.to_integral_value() and number.adjusted() < 400 else number


def _exact(text: str) -> Any:
    return json.loads(text, parse_float=exact_number)


def json_style(whitespace: Any, indent: Any, spelling: Any) -> JsonStyle:
    """The style these options name.

    Raises:
        InvalidConstraint: one of them is unknown, or two contradict each other.
    """
    style = JsonStyle(
        _one_of("whitespace", whitespace, Whitespace), indent, spelling=_one_of("spelling", spelling, Spelling)
    )
    if indent is not None:
        if type(indent) is not int or not 0 <= indent <= MAX_INDENT:
            raise InvalidConstraint(f"indent: expected an int from 0 to {MAX_INDENT}, or None, got {shown(indent)}")
        if whitespace != "flexible":
            raise InvalidConstraint(
                f"expected whitespace or indent, got whitespace={shown(whitespace)} and indent={shown(indent)}; "
                "leave one out"
            )
    return style


def _one_of(name: str, value: Any, allowed: Any) -> Any:
    known = typing.get_args(allowed)
    if value not in known:
        raise InvalidConstraint(f"{name}: expected one of {', '.join(map(repr, known))}, got {shown(value)}")
    return value


def _expect_schema(schema: Any, what: str) -> None:
    if not isinstance(schema, (dict, bool)):
        raise InvalidConstraint(
            f"{what}: expected an object or a bool, got {shown(schema)} of type {type(schema).__name__}"
        )


def _expect_utf8(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidConstraint(f"{what}: expected text that UTF-8 can write, got a lone surrogate: {error}") from None


def _registry_json(registry: Mapping[str, Any]) -> str:
    if not isinstance(registry, Mapping):
        raise InvalidConstraint(f"registry: expected a mapping of URI to document, got {type(registry).__name__}")
    for uri, document in registry.items():
        _expect_schema(document, f"registry[{uri!r}]")
    return json_text.dumps({uri: registry[uri] for uri in sorted(registry)}, "registry")


def _compiled(pattern: Any) -> re.Pattern[str]:
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise InvalidConstraint(f"Regex: expected a str pattern, got {shown(text)} of type {type(text).__name__}")
    _expect_utf8(text, "Regex")
    if len(text) > _SHORT_PATTERN:
        _check_length(text)
    try:
        return pattern if isinstance(pattern, re.Pattern) else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidConstraint(
            f"Regex: {shorten(text)} does not compile: {error}; write it as Python's re takes it"
        ) from None


def _check_length(pattern: str) -> None:
    from ..regex import UnsupportedRegex, check_length  # takes time to import, and few patterns are long

    try:
        check_length(pattern)
    except UnsupportedRegex as error:
        raise UnsupportedConstraint(f"Regex: {error}", [Loss("", "regex", str(error))]) from None


_GBNF_RULE = re.compile(r"^[ \t]*[\w-]+\s*::=", re.MULTILINE)
_LARK_RULE = re.compile(r"^[ \t]*[?!]*\w+(\.\d+)?(\[[^\]]*\])?\s*:(?!:=)", re.MULTILINE)


def _detect_syntax(text: str) -> Syntax:
    gbnf, lark = _GBNF_RULE.search(text), _LARK_RULE.search(text)
    if gbnf and (lark is None or gbnf.start() <= lark.start()):
        return "gbnf"
    if lark:
        return "lark"
    raise InvalidConstraint(
        f'Grammar: expected rules like `start: "a"` (Lark) or `root ::= "a"` (GBNF), got {shorten(text)}; '
        'say which with syntax="lark" or syntax="gbnf"'
    )
