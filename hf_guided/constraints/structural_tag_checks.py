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

from ..errors import InvalidConstraint, UnsupportedConstraint, shown
from .suggestions import did_you_mean
from .tool_xml import STYLES

MAX_COUNT = 2**31 - 1  # limit for characters, tokens and repetitions: engines keep counts in 32 bits
MAX_FORMATS = 64  # inside each other
# Arguments of JsonSchema, which a json_schema may have in its field "options": xgrammar has no such field.
_SCHEMA_OPTIONS = ("whitespace", "extra", "max_depth", "registry", "indent", "spelling", "key_order")

Check = Callable[[Any, str], None]


def _is(expected: str, holds: Callable[[Any], Any]) -> Check:
    def check(value: Any, pointer: str) -> None:
        if not holds(value):
            raise _expected(expected, value, pointer)

    return check


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_COUNT


_STRING = _is("a string", lambda value: isinstance(value, str))
_TEXT = _is("a string that is not empty", lambda value: isinstance(value, str) and value)
_FLAG = _is("true or false", lambda value: isinstance(value, bool))
_COUNT = _is(f"an integer from 0 to {MAX_COUNT}", _is_count)
_COUNT_OR_NONE = _is(f"an integer from 0 to {MAX_COUNT}, or null", lambda value: value is None or _is_count(value))
_MOST = _is(
    f"an integer from 0 to {MAX_COUNT}, or -1", lambda value: _is_count(value) or (type(value) is int and value == -1)
)
_TOKEN = _is("a token: its id, or its name", lambda value: _is_count(value) or (isinstance(value, str) and value))
# What a format may leave out; all its other fields are required.
OPTIONAL = frozenset(
    "type excludes exclude_tokens max_chars max_tokens max_whitespace_cnt style options any_order at_least_one "
    "stop_after_first loop".split()
)


@contextmanager
def inside_tag(pointer: str) -> Iterator[None]:
    """Put the JSON pointer of a part of a structural tag before the errors that this part alone would have."""
    try:
        yield
    except InvalidConstraint as error:
        pointers = [pointer + inner for inner in error.pointers or ("",)]
        raise InvalidConstraint(f"StructuralTag: at {pointer}: {error}", pointers=pointers) from None
    except UnsupportedConstraint as error:
        losses = [loss._replace(pointer=pointer + loss.pointer) for loss in error.losses]
        raise UnsupportedConstraint(str(error).partition("\n")[0], losses) from None


class TagChecker:
    """Checks one structural tag.

    Args:
        pattern: makes the constraint that a regular expression alone would be.
        schema: makes the constraint that a JSON Schema alone would be, with its options.
    """

    def __init__(self, pattern: Callable[[Any], Any], schema: Callable[..., Any]):
        self._pattern, self._schema = pattern, schema
        self._depth = 0
        tags, tokens, schemas = _list(self._tag, 1), _list(_TOKEN), self._json_schema
        flags: dict[str, Check] = {"at_least_one": _FLAG, "stop_after_first": _FLAG}
        elements: dict[str, Check] = {"elements": _list(self._format, 1)}
        content: dict[str, Check] = {"content": self._format}
        excludes: dict[str, Check] = {"excludes": _list(_TEXT)}
        # The fields of each format, with their checks.
        self.fields: dict[str, dict[str, Check]] = {
            "const_string": {"value": _STRING},
            "regex": {"pattern": self._regex},
            "grammar": {"grammar": _TEXT},
            "any_text": {**excludes, "max_tokens": _COUNT_OR_NONE, "max_chars": _COUNT_OR_NONE},
            "json_schema": {
                "json_schema": schemas,
                "style": self._style,
                "any_order": _FLAG,
                "max_whitespace_cnt": _COUNT_OR_NONE,
                "options": self._options,
                **excludes,
            },
            "qwen_xml_parameter": {"json_schema": schemas},
            "sequence": elements,
            "or": elements,
            "optional": content,
            "plus": content,
            "star": content,
            "repeat": {"min": _COUNT, "max": _MOST, **content},
            "tag": {"begin": self._begin, **content, "end": self._end},
            "triggered_tags": {"triggers": _list(_TEXT, 1), "tags": tags, **flags, **excludes},
            "tags_with_separator": {"tags": tags, "separator": _STRING, **flags},
            "dispatch": {"rules": _list(self._rule(_TEXT), 1), "loop": _FLAG, **excludes},
            "token": {"token": _TOKEN},
            "exclude_token": {"exclude_tokens": tokens},
            "any_tokens": {"exclude_tokens": tokens, "max_tokens": _COUNT_OR_NONE},
            "token_triggered_tags": {
                "trigger_tokens": _list(_TOKEN, 1),
                "tags": tags,
                **flags,
                "exclude_tokens": tokens,
            },
            "token_dispatch": {"rules": _list(self._rule(_TOKEN), 1), "loop": _FLAG, "exclude_tokens": tokens},
        }

    def check(self, tag: Mapping[str, Any]) -> None:
        """Check a tag of plain JSON values, in either of its two forms.

        Raises:
            InvalidConstraint: with the JSON pointer of the first thing that is wrong.
        """
        if "format" in tag or "structures" not in tag:
            self._object(tag, "", {"type": _STRING, "format": self._format})
            return
        structure = {"begin": _TEXT, "schema": self._json_schema, "end": _STRING}
        structures = _list(lambda value, pointer: self._object(value, pointer, structure), 1)
        self._object(tag, "", {"type": _STRING, "structures": structures, "triggers": _list(_TEXT, 1)})
        _check_triggers(tag["triggers"], tag["structures"], "", "structures")

    def _object(self, value: Any, pointer: str, fields: Mapping[str, Check]) -> None:
        if not isinstance(value, Mapping):
            raise _expected("an object", value, pointer)
        for name, content in value.items():
            at = f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in fields:
                known = f"one of the fields {', '.join(fields)}"
                raise _refused(f"expected {known}, got {shown(name)}{did_you_mean(name, fields)}", at)
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
        self._object(value, pointer, {"type": _STRING, **self.fields[kind]})
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
        _TEXT(value, pointer)
        with inside_tag(pointer):
            self._pattern(value)

    def _json_schema(self, value: Any, pointer: str) -> None:
        older = pointer.endswith("/schema")  # also takes the text of a schema
        if not isinstance(value, (Mapping, bool)) and not (older and isinstance(value, str)):
            raise _expected("a JSON Schema: an object, true or false", value, pointer)
        with inside_tag(pointer):
            self._schema(value)

    def _options(self, value: Any, pointer: str) -> None:
        if not isinstance(value, Mapping):
            raise _expected("an object", value, pointer)
        for name in value:
            if name not in _SCHEMA_OPTIONS:
                raise _expected(f"one of the options {', '.join(_SCHEMA_OPTIONS)}", name, pointer)
        with inside_tag(pointer):
            self._schema(True, **value)

    def _style(self, value: Any, pointer: str) -> None:
        known = ("json", *STYLES)
        if value not in known:
            near = did_you_mean(value, known) if isinstance(value, str) else ""
            raise _expected(f"one of {', '.join(known)}", value, pointer, near)

    def _tag(self, value: Any, pointer: str, kind: str = "tag") -> None:
        self._format(value, pointer, kind)
        if value.get("type", kind) != kind:
            raise _expected(f"a {kind}", value["type"], f"{pointer}/type")

    def _begin(self, value: Any, pointer: str) -> None:
        if isinstance(value, Mapping):
            self._tag(value, pointer, "token")
        elif not isinstance(value, str):
            raise _expected("a string or a token", value, pointer)

    def _end(self, value: Any, pointer: str) -> None:
        check = _list(_STRING, 1) if isinstance(value, list) else self._begin
        check(value, pointer)

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
        begin = tag["begin"]  # beginnings are looked up: there may be thousands of tags and of triggers
        matching = [begin[:length] for length in lengths if length <= len(begin) and begin[:length] in times]
        if (many := sum(times[trigger] for trigger in matching)) != 1:
            found = f"begins with {many or 'none'} of them"
            what = f"expected a tag that begins with exactly one of the triggers, got {shown(begin)}, which"
            raise _refused(f"{what} {found}", f"{pointer}/{name}/{index}/begin")
        used.update(matching)
    for index, trigger in enumerate(triggers):
        if trigger not in used:
            raise _expected("a trigger that one of the tags begins with", trigger, f"{pointer}/triggers/{index}")


def _list(check: Check, least: int = 0) -> Check:
    def check_all(value: Any, pointer: str) -> None:
        if not isinstance(value, list) or len(value) < least:
            raise _expected("a list" if not least else "a list that is not empty", value, pointer)
        for index, item in enumerate(value):
            check(item, f"{pointer}/{index}")

    return check_all


def _expected(what: str, value: Any, pointer: str, near: str = "") -> InvalidConstraint:
    return _refused(f"expected {what}, got {shown(value)}{near}", pointer)


def _refused(message: str, pointer: str) -> InvalidConstraint:
    return InvalidConstraint(f"StructuralTag: at {pointer or '/'}: {message}", pointers=[pointer])
