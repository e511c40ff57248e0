"""The fields of a structural tag: which each format has, and which values they take.

The formats are those of xgrammar's `structural_tag.py`, in the same words. What is refused here would otherwise be
dropped in silence by one engine, or fail in the middle of another. What needs a vocabulary (tokens by name) or time
(a schema against its metaschema) is checked when the tag is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..errors import InvalidConstraint
from .json_text import shorten
from .suggestions import did_you_mean
from .tool_xml import STYLES

MAX_COUNT = 2**31 - 1  # of characters, tokens and repetitions: engines keep them in 32 bits
MAX_FORMATS = 64  # inside each other

Check = Callable[[Any, str], None]


class _Field(NamedTuple):
    check: Check
    required: bool = False


def check_tag(tag: Mapping[str, Any], check_pattern: Check, check_schema: Check) -> None:
    """Check a structural tag in either of its two forms.

    Args:
        tag: plain JSON values.
        check_pattern: checks a regular expression, with its JSON pointer.
        check_schema: checks a JSON Schema, with its JSON pointer.

    Raises:
        InvalidConstraint: with the JSON pointer of the first thing that is wrong.
    """
    _Checker(check_pattern, check_schema).root(tag)


@contextmanager
def inside_tag(pointer: str) -> Iterator[None]:
    """Put the JSON pointer of a part of a structural tag before the errors that this part alone would have."""
    try:
        yield
    except InvalidConstraint as error:
        pointers = [pointer + inner for inner in error.pointers or ("",)]
        raise InvalidConstraint(f"StructuralTag: at {pointer}: {error}", pointers=pointers) from None


class _Checker:
    def __init__(self, check_pattern: Check, check_schema: Check):
        self._depth = 0
        names = _list(_text)
        patterns, schemas = _then(_text, check_pattern), _then(_schema, check_schema)
        tags, tokens = _list(self._tag, 1), _list(_token)
        flags = {"at_least_one": _Field(_flag), "stop_after_first": _Field(_flag)}
        excludes, exclude_tokens = {"excludes": _Field(names)}, {"exclude_tokens": _Field(tokens)}
        max_tokens = {"max_tokens": _Field(_optional(_count))}
        elements = {"elements": _Field(_list(self._format, 1), True)}
        content = {"content": _Field(self._format, True)}
        loop = {"loop": _Field(_flag)}
        self._fields: dict[str, dict[str, _Field]] = {
            "const_string": {"value": _Field(_any_text, True)},
            "regex": {"pattern": _Field(patterns, True)},
            "grammar": {"grammar": _Field(_text, True)},
            "any_text": {**excludes, **max_tokens, "max_chars": _Field(_optional(_count))},
            "json_schema": {
                "json_schema": _Field(schemas, True),
                "style": _Field(_style),
                "any_order": _Field(_flag),
                "max_whitespace_cnt": _Field(_optional(_count)),
                **excludes,
            },
            "qwen_xml_parameter": {"json_schema": _Field(schemas, True)},
            "sequence": elements,
            "or": elements,
            "optional": content,
            "plus": content,
            "star": content,
            "repeat": {"min": _Field(_count, True), "max": _Field(_most, True), **content},
            "tag": {"begin": _Field(self._begin, True), **content, "end": _Field(self._end, True)},
            "triggered_tags": {
                "triggers": _Field(_list(_text, 1), True),
                "tags": _Field(tags, True),
                **flags,
                **excludes,
            },
            "tags_with_separator": {"tags": _Field(tags, True), "separator": _Field(_any_text, True), **flags},
            "dispatch": {"rules": _Field(_list(self._rule(_text), 1), True), **loop, **excludes},
            "token": {"token": _Field(_token, True)},
            "exclude_token": exclude_tokens,
            "any_tokens": {**exclude_tokens, **max_tokens},
            "token_triggered_tags": {
                "trigger_tokens": _Field(_list(_token, 1), True),
                "tags": _Field(tags, True),
                **flags,
                **exclude_tokens,
            },
            "token_dispatch": {"rules": _Field(_list(self._rule(_token), 1), True), **loop, **exclude_tokens},
        }
        structure = {"begin": _Field(_text, True), "schema": _Field(schemas, True), "end": _Field(_any_text, True)}
        structures = _list(lambda value, pointer: self._object(value, pointer, structure), 1)
        kind = {"type": _Field(_exactly("structural_tag"))}
        self._newer = {**kind, "format": _Field(self._format, True)}
        self._older = {**kind, "structures": _Field(structures, True), "triggers": _Field(_list(_text, 1), True)}

    def root(self, tag: Mapping[str, Any]) -> None:
        older = "format" not in tag and "structures" in tag
        self._object(tag, "", self._older if older else self._newer)
        if older:
            _check_triggers(tag["triggers"], tag["structures"], "", "structures")

    def _object(self, value: Any, pointer: str, fields: Mapping[str, _Field]) -> None:
        if not isinstance(value, Mapping):
            raise _expected("an object", value, pointer)
        for name, content in value.items():
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in fields:
                known = f"one of the fields {', '.join(fields)}"
                raise _refused(f"expected {known}, got {shorten(name)}{did_you_mean(name, fields)}", at)
            fields[name].check(content, at)
        for name, field in fields.items():
            if field.required and name not in value:
                raise _refused("expected a value, got nothing", f"{pointer}/{name}")

    def _format(self, value: Any, pointer: str, default: str | None = None) -> None:
        if not isinstance(value, Mapping):
            raise _expected("a format, which is an object", value, pointer)
        kind = value.get("type", default)
        if not isinstance(kind, str) or kind not in self._fields:
            near = did_you_mean(kind, self._fields) if isinstance(kind, str) else ""
            raise _expected(f"one of the formats {', '.join(self._fields)}", kind, f"{pointer}/type", near)
        if self._depth == MAX_FORMATS:
            raise _refused(f"expected at most {MAX_FORMATS} formats inside each other", pointer)
        self._depth += 1
        self._object(value, pointer, {"type": _Field(_exactly(kind)), **self._fields[kind]})
        self._depth -= 1
        if (check := _RELATIONS.get(kind)) is not None:
            check(value, pointer)

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


def _repeat(part: Mapping[str, Any], pointer: str) -> None:
    if 0 <= part["max"] < part["min"]:
        raise _expected(f"at least min, which is {part['min']}, or -1 for no bound", part["max"], f"{pointer}/max")


def _triggered(part: Mapping[str, Any], pointer: str) -> None:
    for index, tag in enumerate(part["tags"]):
        if not isinstance(tag["begin"], str):
            at = f"{pointer}/tags/{index}/begin"
            raise _expected("a string; tokens begin the tags of token_triggered_tags", tag["begin"], at)
    _check_triggers(part["triggers"], part["tags"], pointer, "tags")


def _token_triggered(part: Mapping[str, Any], pointer: str) -> None:
    for index, tag in enumerate(part["tags"]):
        if isinstance(tag["begin"], str):
            at = f"{pointer}/tags/{index}/begin"
            raise _expected("a token; strings begin the tags of triggered_tags", tag["begin"], at)


_RELATIONS: dict[str, Check] = {
    "repeat": _repeat,
    "triggered_tags": _triggered,
    "token_triggered_tags": _token_triggered,
}


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


def _schema(value: Any, pointer: str) -> None:
    older = pointer.endswith("/schema")  # also takes the text of a schema
    if not isinstance(value, (Mapping, bool)) and not (older and isinstance(value, str)):
        raise _expected("a JSON Schema: an object, true or false", value, pointer)


def _exactly(kind: str) -> Check:
    def check(value: Any, pointer: str) -> None:
        if value != kind:
            raise _expected(repr(kind), value, pointer)

    return check


def _optional(check: Check) -> Check:
    return lambda value, pointer: None if value is None else check(value, pointer)


def _then(first: Check, second: Check) -> Check:
    def check(value: Any, pointer: str) -> None:
        first(value, pointer)
        second(value, pointer)

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
