"""The fields of a structural tag: which each format has, and which values they take.

The formats are those of xgrammar's `structural_tag.py`, in the same words. What is refused here would otherwise be
dropped in silence by one engine, or fail in the middle of another. What needs a vocabulary (tokens by name) or time
(a schema against its metaschema) is checked when the tag is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..errors import InvalidConstraint
from .json_text import shorten
from .suggestions import did_you_mean
from .tool_xml import STYLES

MAX_COUNT = 2**31 - 1  # of characters, tokens and repetitions: engines keep them in 32 bits
MAX_FORMATS = 64  # inside each other

Check = Callable[[Any, str], None]


# What a format may leave out; all its other fields are required.
OPTIONAL = frozenset(
    "type excludes exclude_tokens max_chars max_tokens max_whitespace_cnt style any_order at_least_one "
    "stop_after_first loop".split()
)


def check_tag(tag: Mapping[str, Any], pattern: Callable[[Any], Any], schema: Callable[[Any], Any]) -> None:
    """Check a structural tag in either of its two forms.

    Args:
        tag: plain JSON values.
        pattern: makes the constraint that a regular expression alone would be.
        schema: makes the constraint that a JSON Schema alone would be.

    Raises:
        InvalidConstraint: with the JSON pointer of the first thing that is wrong.
    """
    Checker(pattern, schema).root(tag)


@contextmanager
def inside_tag(pointer: str) -> Iterator[None]:
    """Put the JSON pointer of a part of a structural tag before the errors that this part alone would have."""
    try:
        yield
    except InvalidConstraint as error:
        pointers = [pointer + inner for inner in error.pointers or ("",)]
        raise InvalidConstraint(f"StructuralTag: at {pointer}: {error}", pointers=pointers) from None


class Checker:
    """Checks one tag; ``fields`` has the checks of each format's fields."""

    def __init__(self, pattern: Callable[[Any], Any], schema: Callable[[Any], Any]):
        self._pattern, self._schema = pattern, schema
        self._depth = 0
        tags, tokens, schemas = _list(self._tag, 1), _list(_token), self._json_schema
        flags: dict[str, Check] = {"at_least_one": _flag, "stop_after_first": _flag}
        elements: dict[str, Check] = {"elements": _list(self._format, 1)}
        content: dict[str, Check] = {"content": self._format}
        excludes: dict[str, Check] = {"excludes": _list(_text)}
        self.fields: dict[str, dict[str, Check]] = {
            "const_string": {"value": _any_text},
            "regex": {"pattern": self._regex},
            "grammar": {"grammar": _text},
            "any_text": {**excludes, "max_tokens": _count_or_none, "max_chars": _count_or_none},
            "json_schema": {
                "json_schema": schemas,
                "style": _style,
                "any_order": _flag,
                "max_whitespace_cnt": _count_or_none,
                **excludes,
            },
            "qwen_xml_parameter": {"json_schema": schemas},
            "sequence": elements,
            "or": elements,
            "optional": content,
            "plus": content,
            "star": content,
            "repeat": {"min": _count, "max": _most, **content},
            "tag": {"begin": self._begin, **content, "end": self._end},
            "triggered_tags": {"triggers": _list(_text, 1), "tags": tags, **flags, **excludes},
            "tags_with_separator": {"tags": tags, "separator": _any_text, **flags},
            "dispatch": {"rules": _list(self._rule(_text), 1), "loop": _flag, **excludes},
            "token": {"token": _token},
            "exclude_token": {"exclude_tokens": tokens},
            "any_tokens": {"exclude_tokens": tokens, "max_tokens": _count_or_none},
            "token_triggered_tags": {
                "trigger_tokens": _list(_token, 1),
                "tags": tags,
                **flags,
                "exclude_tokens": tokens,
            },
            "token_dispatch": {"rules": _list(self._rule(_token), 1), "loop": _flag, "exclude_tokens": tokens},
        }

    def root(self, tag: Mapping[str, Any]) -> None:
        """Check all of the tag."""
        kind = {"type": _exactly("structural_tag")}
        if "format" in tag or "structures" not in tag:
            self._object(tag, "", {**kind, "format": self._format})
            return
        structure = {"begin": _text, "schema": self._json_schema, "end": _any_text}
        structures = _list(lambda value, pointer: self._object(value, pointer, structure), 1)
        self._object(tag, "", {**kind, "structures": structures, "triggers": _list(_text, 1)})
        _check_triggers(tag["triggers"], tag["structures"], "", "structures")

    def _object(self, value: Any, pointer: str, fields: Mapping[str, Check]) -> None:
        if not isinstance(value, Mapping):
            raise _expected("an object", value, pointer)
        for name, content in value.items():
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in fields:
                known = f"one of the fields {', '.join(fields)}"
                raise _refused(f"expected {known}, got {shorten(name)}{did_you_mean(name, fields)}", at)
            fields[name](content, at)
        for name in fields:
            if name not in value and name not in OPTIONAL:
                raise _refused("expected a value, got nothing", f"{pointer}/{name}")

    def _format(self, value: Any, pointer: str, default: str | None = None) -> None:
        if not isinstance(value, Mapping):
            raise _expected("a format, which is an object", value, pointer)
        kind = value.get("type", default)
        if not isinstance(kind, str) or kind not in self.fields:
            near = did_you_mean(kind, self.fields) if isinstance(kind, str) else ""
            raise _expected(f"one of the formats {', '.join(self.fields)}", kind, f"{pointer}/type", near)
        if self._depth == MAX_FORMATS:
            raise _refused(f"expected at most {MAX_FORMATS} formats inside each other", pointer)
        self._depth += 1
        self._object(value, pointer, {"type": _exactly(kind), **self.fields[kind]})
        self._depth -= 1
        if kind == "repeat" and 0 <= value["max"] < value["min"]:
            at_least = f"at least min, which is {value['min']}, or -1 for no bound"
            raise _expected(at_least, value["max"], f"{pointer}/max")
        for index, tag in enumerate(value["tags"] if kind in ("triggered_tags", "token_triggered_tags") else ()):
            if isinstance(tag["begin"], str) != (kind == "triggered_tags"):
                begins = "a string" if kind == "triggered_tags" else "a token"
                raise _expected(
                    f"{begins}, which begins the tags of {kind}", tag["begin"], f"{pointer}/tags/{index}/begin"
                )
        if kind == "triggered_tags":
            _check_triggers(value["triggers"], value["tags"], pointer, "tags")

    def _regex(self, value: Any, pointer: str) -> None:
        _text(value, pointer)
        with inside_tag(pointer):
            self._pattern(value)

    def _json_schema(self, value: Any, pointer: str) -> None:
        older = pointer.endswith("/schema")  # also takes the text of a schema
        if not isinstance(value, (Mapping, bool)) and not (older and isinstance(value, str)):
            raise _expected("a JSON Schema: an object, true or false", value, pointer)
        with inside_tag(pointer):
            self._schema(value)

    def _tag(self, value: Any, pointer: str) -> None:
        self._format(value, pointer, "tag")
        if value.get("type", "tag") != "tag":
            raise _expected("a tag", value["type"], f"{pointer}/type")

    def _mark(self, value: Any, pointer: str) -> None:
        if not isinstance(value, Mapping):
            raise _expected("a string or a token", value, pointer)
        self._format(value, pointer, "token")
        if value.get("type", "token") != "token":
            raise _expected("a token", value["type"], f"{pointer}/type")

    def _begin(self, value: Any, pointer: str) -> None:
        if not isinstance(value, str):
            self._mark(value, pointer)

    def _end(self, value: Any, pointer: str) -> None:
        if isinstance(value, list):
            _list(_any_text, 1)(value, pointer)
        elif not isinstance(value, str):
            self._mark(value, pointer)

    def _rule(self, check_pattern: Check) -> Check:
        def check(value: Any, pointer: str) -> None:
            if not isinstance(value, list) or len(value) != 2:
                raise _expected("a pair of a pattern and a format", value, pointer)
            check_pattern(value[0], f"{pointer}/0")
            self._format(value[1], f"{pointer}/1")

        return check


def _check_triggers(triggers: Sequence[str], tags: Sequence[Mapping[str, Any]], pointer: str, name: str) -> None:
    """Every tag begins with exactly one trigger, and every trigger begins a tag."""
    times, lengths = Counter(triggers), {len(trigger) for trigger in triggers}
    used: set[str] = set()
    for index, tag in enumerate(tags):
        begin = tag["begin"]  # its beginnings are looked up: there may be thousands of tags and of triggers
        matching = [begin[:length] for length in lengths if length <= len(begin) and begin[:length] in times]
        if (many := sum(times[trigger] for trigger in matching)) != 1:
            found = f"begins with {many or 'none'} of them"
            what = f"expected a tag that begins with exactly one of the triggers, got {shorten(begin)}, which"
            raise _refused(f"{what} {found}", f"{pointer}/{name}/{index}/begin")
        used.update(matching)
    for index, trigger in enumerate(triggers):
        if trigger not in used:
            raise _expected("a trigger that one of the tags begins with", trigger, f"{pointer}/triggers/{index}")


def _any_text(value: Any, pointer: str) -> None:
    if not isinstance(value, str):
        raise _expected("a string", value, pointer)


def _text(value: Any, pointer: str) -> None:
    if not isinstance(value, str) or not value:
        raise _expected("a string that is not empty", value, pointer)


def _flag(value: Any, pointer: str) -> None:
    if not isinstance(value, bool):
        raise _expected("true or false", value, pointer)


def _count(value: Any, pointer: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise _expected(f"an integer from 0 to {MAX_COUNT}", value, pointer)


def _count_or_none(value: Any, pointer: str) -> None:
    if value is not None:
        _count(value, pointer)


def _most(value: Any, pointer: str) -> None:
    if value != -1 or type(value) is not int:
        _count(value, pointer)


def _token(value: Any, pointer: str) -> None:
    if not (type(value) is int and 0 <= value <= MAX_COUNT) and not (isinstance(value, str) and value):
        raise _expected("a token: its id, or its name", value, pointer)


def _style(value: Any, pointer: str) -> None:
    known = ("json", *STYLES)
    if value not in known:
        near = did_you_mean(value, known) if isinstance(value, str) else ""
        raise _expected(f"one of {', '.join(known)}", value, pointer, near)


def _exactly(kind: str) -> Check:
    def check(value: Any, pointer: str) -> None:
        if value != kind:
            raise _expected(repr(kind), value, pointer)

    return check


def _list(check: Check, least: int = 0) -> Check:
    def check_all(value: Any, pointer: str) -> None:
        if not isinstance(value, list) or len(value) < least:
            raise _expected("a list" if not least else "a list that is not empty", value, pointer)
        for index, item in enumerate(value):
            check(item, f"{pointer}/{index}")

    return check_all


def _expected(what: str, value: Any, pointer: str, near: str = "") -> InvalidConstraint:
    return _refused(f"expected {what}, got {shorten(repr(value))[1:-1]}{near}", pointer)


def _refused(message: str, pointer: str) -> InvalidConstraint:
    return InvalidConstraint(f"StructuralTag: at {pointer or '/'}: {message}", pointers=[pointer])
