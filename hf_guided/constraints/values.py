"""Constraints on a row's text: frozen, hashable values.

A constraint copies what it is given, so changing a schema dict afterwards changes nothing. Two constraints with the
same ``key`` allow the same texts and share one compiled grammar; they may still differ in how they parse the text
back, so parse with the constraint the caller gave, not with the one that was compiled.

Constructors refuse what is malformed. The keywords of a schema and the rules of a grammar are read when a constraint is
compiled or audited, for that takes more time than a constructor should.
"""

from __future__ import annotations

import enum
import json
import re
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Literal, overload

from typing_extensions import TypeVar

from ..errors import InvalidConstraint, Loss, UnsupportedConstraint, reading, shown
from . import json_text
from .base import Constraint, beginning, expect_utf8, one_of, set_fields, with_flags
from .json_constraints import JsonObject, JsonSchema, laid_out
from .structural_tag_checks import TagChecker

__all__ = ["Choice", "Constraint", "Grammar", "JsonObject", "JsonSchema", "Regex", "StructuralTag", "laid_out"]

OptionT = TypeVar("OptionT", default=str)  # type of an option's value
MemberT = TypeVar("MemberT", bound=enum.Enum)
Syntax = Literal["lark", "gbnf"]
DEFAULT_ROOT: dict[str, str] = {"lark": "start", "gbnf": "root"}

_SHORT_PATTERN = 10_000  # characters that Python compiles in milliseconds, whatever they are

_FLAGS = {"a": re.ASCII, "i": re.IGNORECASE, "s": re.DOTALL, "x": re.VERBOSE}


@dataclass(frozen=True, init=False)
class Regex(Constraint):
    """Text that a regular expression matches from beginning to end (``re.fullmatch``).

    Args:
        pattern: in the syntax of Python's `re`, as text or compiled. The flags ASCII, IGNORECASE, DOTALL and VERBOSE
            are kept; MULTILINE is refused.

    Raises:
        InvalidConstraint: it does not compile, is a bytes pattern, or has the flag MULTILINE.
        UnsupportedConstraint: it is longer than any engine takes.
    """

    kind: ClassVar[str] = "regex"

    pattern: str

    @reading("Regex", InvalidConstraint)
    def __init__(self, pattern: str | re.Pattern[str]) -> None:
        compiled = _compiled(pattern)
        if compiled.flags & re.MULTILINE:
            raise InvalidConstraint(
                "expected no regex flags but ASCII, IGNORECASE, DOTALL and VERBOSE, got MULTILINE; the whole output is "
                "matched, so ^ and $ are not needed"
            )
        # Flags are kept in one field, so that re.compile("a", re.I) and "(?i)a" are one constraint.
        set_fields(self, pattern=with_flags(compiled, _FLAGS))

    def _identity(self) -> Sequence[Any]:
        return (self.pattern,)

    def parse(self, text: str) -> re.Match[str]:
        """The match."""
        match = re.fullmatch(self.pattern, text)
        if match is None:
            raise ValueError(f"{shown(text)} does not match {self.pattern!r}")
        return match


@dataclass(frozen=True, init=False)
class Choice(Constraint, Generic[OptionT]):
    """One of several literal texts (no JSON quotes).

    Args:
        options: strings in order, repeats are dropped; or an Enum class or Literal of strings, or a list of such
            members, which are the values of their texts. The empty string means "or nothing at all" and needs another
            option beside it.

    Raises:
        InvalidConstraint: no options, or one that is not a string.
    """

    kind: ClassVar[str] = "choice"

    options: tuple[str, ...]
    # What the options stand for: each is the member of an Enum, or the option itself.
    values: tuple[Any, ...] = field(compare=False, repr=False)

    @overload
    def __init__(self: Choice[MemberT], options: type[MemberT] | list[MemberT] | tuple[MemberT, ...]) -> None: ...

    @overload
    def __init__(self: Choice[str], options: list[str] | tuple[str, ...]) -> None: ...

    @overload
    def __init__(self: Choice[Any], options: Any) -> None: ...

    @reading("Choice", InvalidConstraint)
    def __init__(self, options: Any) -> None:
        if isinstance(options, enum.EnumMeta):
            options = [*options]
        elif typing.get_origin(options) is Literal:
            options = typing.get_args(options)
        if not isinstance(options, (list, tuple)):
            raise InvalidConstraint(
                f"Choice: expected a list of strings, got {shown(options)} of type {type(options).__name__}; "
                "write hg.Choice(['yes', 'no'])"
            )
        values: dict[str, Any] = {}
        for index, option in enumerate(options):
            text = option.value if isinstance(option, enum.Enum) else option
            if not isinstance(text, str):
                raise InvalidConstraint(
                    f"Choice: expected strings, got {shown(option)} of type {type(option).__name__} at index {index}; "
                    "for other JSON values use hg.JsonSchema({'enum': [...]})"
                )
            expect_utf8(text, "Choice")
            text = str.__str__(text)  # not that of a subclass
            values.setdefault(text, option if isinstance(option, enum.Enum) else text)
        if values.keys() <= {""}:
            raise InvalidConstraint(f"Choice: expected at least one option with text in it, got {[*values]!r}")
        set_fields(self, options=tuple(values), values=tuple(values.values()))

    def _identity(self) -> Sequence[Any]:
        return (self.options,)

    def parse(self, text: str) -> OptionT:
        """The option: the member of an Enum, or the text."""
        if text not in self.options:
            raise ValueError(f"{shown(text)} is none of the options {shown([*self.options])}")
        value: OptionT = self.values[self.options.index(text)]
        return value


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
        expect_utf8(text, "Grammar")
        known: Syntax
        if syntax is None:
            known = _detect_syntax(text)
        else:
            known = one_of("syntax", "gbnf" if syntax == "ebnf" else syntax, Syntax)
        if root is not None and not isinstance(root, str):
            raise InvalidConstraint(f"root: expected the name of a rule, or None, got {shown(root)}")
        name = "" if root is None else root[:]  # a plain str: a subclass may have methods that raise
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
    spelling = "canonical"  # JSON inside is spelled so

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
                f'or {{"structures": [...], "triggers": [...]}}, got {shown(dict(tag))}'
            )
        set_fields(self, tag_json=json_text.dumps(dict(tag), "structural tag"))
        TagChecker(Regex, JsonSchema).check(self.tag)

    @property
    def tag(self) -> dict[str, Any]:
        """The structural tag, a fresh copy."""
        return json.loads(self.tag_json)  # type: ignore[no-any-return]

    def _identity(self) -> Sequence[Any]:
        return (self.tag_json,)

    def __repr__(self) -> str:
        return f"StructuralTag({beginning(self.tag_json)})"


def _compiled(pattern: Any) -> re.Pattern[str]:
    text = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
    if not isinstance(text, str):
        raise InvalidConstraint(f"Regex: expected a str pattern, got {shown(text)} of type {type(text).__name__}")
    expect_utf8(text, "Regex")
    if len(text) > _SHORT_PATTERN:
        _check_length(text)
    try:
        return pattern if isinstance(pattern, re.Pattern) else re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidConstraint(
            f"Regex: {shown(text)} does not compile: {error}; write it as Python's re takes it"
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
        f'Grammar: expected rules like `start: "a"` (Lark) or `root ::= "a"` (GBNF), got {shown(text)}; '
        'say which with syntax="lark" or syntax="gbnf"'
    )
