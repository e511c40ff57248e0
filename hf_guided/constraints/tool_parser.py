"""Parses an answer with tool calls by the structural tag that constrained it.

A tag leaves no doubt about where its parts begin and end: free text ends where a trigger begins, JSON where its value
is complete, elements at their marks. The one thing that may be open is the type of an argument without quotes, "5" or
5; there the first reading that the tool's schema takes is right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import cache
from typing import Any, NamedTuple

from .json_text import shorten
from .tool_xml import NAME, STYLES, XmlStyle

Tag = dict[str, Any]


class ReadCall(NamedTuple):
    """A call, whose arguments may hold ``Options`` still."""

    name: str
    arguments: Any


class Options(tuple[Any, ...]):
    """An argument that has more than one reading, the likeliest first."""

    __slots__ = ()


_Plan = dict[int, int]  # of options by their identity: which of their readings is taken, if it is not the first
_MAX_TRIED = 2000  # readings of one call


def read_answer(tag: Tag, text: str) -> tuple[str, list[ReadCall]]:
    """The text between the calls, and the calls.

    Args:
        tag: as ``call_tag`` gives it, with tools' names for schemas.
        text: an answer that matches the tag.

    Raises:
        ValueError: the text does not match the tag.
    """
    reader = _Reader(text)
    end = reader.read(tag["format"], 0)
    if end != len(text):
        raise ValueError(f"not an answer with tool calls in this format: {shorten(text)}")
    return "".join(reader.text), reader.calls


def closed_calls(tag: Tag, text: str) -> tuple[str, list[ReadCall]]:
    """The calls that are complete in the beginning of an answer, and the text before the last of them.

    Args:
        tag: the tag, see ``read_answer``.
        text: the beginning of an answer.
    """
    reader = _Reader(text)
    reader.read(tag["format"], 0)
    return "".join(reader.complete.text), reader.complete.calls


class BegunCall(NamedTuple):
    """A call whose arguments are JSON, as soon as they begin.

    Args:
        name: of the tool.
        start: index of the first character of its arguments.
        end: index after the last one; None while they are not complete.
    """

    name: str
    start: int
    end: int | None


def begun_calls(tag: Tag, text: str) -> list[BegunCall]:
    """The calls in the beginning of an answer whose arguments have begun, in order; only of formats that write JSON.

    Args:
        tag: the tag, see ``read_answer``.
        text: the beginning of an answer.
    """
    reader = _Reader(text)
    reader.read(tag["format"], 0)
    begun = reader.complete.begun
    return [begun[number] for number in range(len(begun)) if number in begun]


def ends_of(part: Any) -> Iterator[str]:
    """The end marks of the tags in a format."""
    if isinstance(part, dict):
        if part.get("type") == "tag":
            yield from [part["end"]] if isinstance(part["end"], str) else part["end"]
        for inner in part.values():
            yield from ends_of(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from ends_of(inner)


def settled(arguments: Any, validator: Any) -> Any:
    """The arguments with every option resolved, so that they are valid if possible.

    What is wrong with one reading says which options to settle otherwise; where that leads nowhere, others are tried.

    Args:
        arguments: of a ``ReadCall``.
        validator: of jsonschema, for the tool's schema.

    Raises:
        ValueError: they are not valid, or no valid reading was found.
    """
    plans: list[_Plan] = [{}]
    tried: set[frozenset[tuple[int, int]]] = set()
    first: Any = None
    while plans and len(tried) < _MAX_TRIED:
        plan = plans.pop()
        if (key := frozenset(plan.items())) in tried:
            continue
        tried.add(key)
        value = _with_options(arguments, plan)
        errors = list(validator.iter_errors(value))
        if not errors:
            return _floats(value)
        first = first or errors[0]
        plans += reversed(_next_plans(arguments, plan, errors))
    raise ValueError(f"arguments are not valid at {first.json_path}: {first.message}")


def _next_plans(arguments: Any, plan: _Plan, errors: Sequence[Any]) -> list[_Plan]:
    """The plans to try next, the likeliest first: all surely wrong options at once, then each suspect one."""
    undecided = [
        (path, options)
        for path, options in _options(arguments, plan, ())
        if plan.get(id(options), 0) + 1 < len(options)
    ]
    holds_others = {path[:n] for path, _ in undecided for n in range(len(path))}
    wrong = {tuple(error.absolute_path) for error in errors}
    sure = [options for path, options in undecided if path in wrong and path not in holds_others]
    paths = {tuple(cause.absolute_path) for error in errors for cause in _with_causes(error)}

    def shared(path: tuple[str | int, ...]) -> int:
        """How many steps of the path to this option an error names."""
        along_path = [other for other in paths if path[: len(other)] == other[: len(path)]]
        return max((min(len(path), len(other)) for other in along_path), default=-1)

    ranked = [(shared(path), path, options) for path, options in undecided]
    each = [
        options for steps, _, options in sorted(ranked, key=lambda entry: (-entry[0], -len(entry[1]))) if steps >= 0
    ]
    return [
        _settled_otherwise(plan, changed)
        for changed in ([sure] if len(sure) > 1 else []) + [[options] for options in each]
    ]


def _settled_otherwise(plan: _Plan, changed: Sequence[Options]) -> _Plan:
    return plan | {id(options): plan.get(id(options), 0) + 1 for options in changed}


class _Complete:
    """The result up to the end of the last complete call, on the path that led furthest, and the calls begun."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.calls: list[ReadCall] = []
        self.begun: dict[int, BegunCall] = {}  # by the number of calls before it


class _Reader:
    def __init__(self, whole: str, parent: _Reader | None = None):
        self._whole = whole
        self._parent = parent
        self.text: list[str] = []
        self.calls: list[ReadCall] = []
        self.complete: _Complete = _Complete() if parent is None else parent.complete

    def read(self, part: Tag, start: int) -> int | None:
        """The end of a format that begins here; None if it does not begin here, and then the state is unchanged."""
        marks = len(self.text), len(self.calls)
        end = self._READERS[part["type"]](self, part, start)
        if end is None:
            del self.text[marks[0] :], self.calls[marks[1] :]
        return end

    def _const(self, part: Tag, start: int) -> int | None:
        return self._past(part["value"], start)

    def _regex(self, part: Tag, start: int) -> int | None:
        match = re.compile(part["pattern"]).match(self._whole, start)
        return match.end() if match else None

    def _any_text(self, part: Tag, start: int) -> int | None:
        self.text.append(self._whole[start:])
        return len(self._whole)

    def _call(self, part: Tag, start: int) -> int | None:
        style = part.get("style") or "json"
        reading = (
            _json_at(self._whole, start) if style == "json" else _Elements(STYLES[style], self._whole).members(start)
        )
        name = part["json_schema"]["title"]
        if style == "json" and self._whole.startswith("{", start):
            begun = BegunCall(name, start, None if reading is None else reading[1])
            self.complete.begun[len(self.calls) + self._calls_before()] = begun
        if reading is None:
            return None
        self.calls.append(ReadCall(name, reading[0]))
        return reading[1]

    def _calls_before(self) -> int:
        """The calls that the readers have found of which this one is a twin."""
        return 0 if self._parent is None else len(self._parent.calls) + self._parent._calls_before()

    def _sequence(self, part: Tag, start: int) -> int | None:
        end: int | None = start
        for element in part["elements"]:
            if end is not None:
                end = self.read(element, end)
        return end

    def _or(self, part: Tag, start: int) -> int | None:
        """The path that leads furthest."""
        best: tuple[int, list[str], list[ReadCall]] | None = None
        for element in part["elements"]:
            twin = _Reader(self._whole, self)
            end = twin.read(element, start)
            if end is not None and (best is None or end > best[0]):
                best = end, twin.text, twin.calls
        if best is None:
            return None
        self.text += best[1]
        self.calls += best[2]
        return best[0]

    def _optional(self, part: Tag, start: int) -> int | None:
        end = self.read(part["content"], start)
        return start if end is None else end

    def _tag(self, part: Tag, start: int) -> int | None:
        inside = self._past(part["begin"], start)
        if inside is None:
            return None
        ends = [part["end"]] if isinstance(part["end"], str) else part["end"]
        if part["content"]["type"] == "any_text":
            first_end = min(((at, end) for end in ends if (at := self._whole.find(end, inside)) >= 0), default=None)
            if first_end is None:
                return None
            self.text.append(self._whole[inside : first_end[0]])
            return first_end[0] + len(first_end[1])
        content_end = self.read(part["content"], inside)
        if content_end is None:
            return None
        past = next((past for end in ends if (past := self._past(end, content_end)) is not None), None)
        if past is not None:
            self._note_complete()
        return past

    def _note_complete(self) -> None:
        """A tag has ended: its calls stay, even where the answer is not complete."""
        text, calls, parent = self.text, self.calls, self._parent
        while parent is not None:
            text, calls, parent = parent.text + text, parent.calls + calls, parent._parent
        if len(calls) > len(self.complete.calls):
            self.complete.text, self.complete.calls = list(text), list(calls)

    def _triggered(self, part: Tag, start: int) -> int | None:
        at_least_one, once = part.get("at_least_one"), part.get("stop_after_first")
        number = 0
        while not (once and number):
            if at_least_one and not number:
                at = start
            else:
                at = min((at for mark in part["triggers"] if (at := self._whole.find(mark, start)) >= 0), default=-1)
            if at < 0:
                self.text.append(self._whole[start:])
                return len(self._whole)
            self.text.append(self._whole[start:at])
            end = self._one_of(part["tags"], at)
            if end is None:
                return None
            start, number = end, number + 1
        return start

    def _separated(self, part: Tag, start: int) -> int | None:
        end = self._one_of(part["tags"], start)
        if end is None:
            return None if part.get("at_least_one") else start
        while not part.get("stop_after_first"):
            separator_end = self._past(part["separator"], end)
            following = None if separator_end is None else self._one_of(part["tags"], separator_end)
            if following is None:
                return end
            end = following
        return end

    def _one_of(self, tags: Sequence[Tag], start: int) -> int | None:
        return next((end for tag in tags if (end := self.read(tag, start)) is not None), None)

    def _past(self, mark: str, start: int) -> int | None:
        return start + len(mark) if self._whole.startswith(mark, start) else None

    _READERS: dict[str, Callable[[_Reader, Tag, int], int | None]] = {
        "const_string": _const,
        "regex": _regex,
        "any_text": _any_text,
        "json_schema": _call,
        "sequence": _sequence,
        "or": _or,
        "optional": _optional,
        "tag": _tag,
        "triggered_tags": _triggered,
        "tags_with_separator": _separated,
    }


class _Elements:
    """Arguments of one style."""

    def __init__(self, style: XmlStyle, whole: str):
        self._style = style
        self._whole = whole
        self._values: dict[tuple[int, str | None], tuple[Any, int] | None] = {}  # an array reads as an object too

    def members(self, start: int) -> tuple[dict[str, Any], int]:
        """The elements that begin here, by name, and where they end."""
        values: dict[str, Any] = {}
        while (opened := _opening(self._style.opening).match(self._whole, start)) is not None:
            name = opened["name"]
            value = self._value(opened, name)
            if value is None:
                break
            values[name], start = value
        return values, start

    def _items(self, start: int) -> tuple[list[Any], int]:
        assert self._style.item is not None, "only nested styles have items"
        values = []
        while (opened := _opening(self._style.item).match(self._whole, start)) is not None:
            value = self._value(opened, None)
            if value is None:
                break
            values.append(value[0])
            start = value[1]
        return values, start

    def _value(self, opened: re.Match[str], name: str | None) -> tuple[Any, int] | None:
        """The value after an opening mark, and where its closing mark ends."""
        key = opened.end(), name
        if key not in self._values:
            self._values[key] = self._parse_value(opened, name)
        return self._values[key]

    def _parse_value(self, opened: re.Match[str], name: str | None) -> tuple[Any, int] | None:
        inside, closing = opened.end(), self._style.after(name)
        kinds, kind_name = self._style.kinds, opened.groupdict().get("kind")
        readings: list[tuple[Any, int]] = []
        if self._style.item is not None:
            for kind, read in (("array", self._items), ("object", self.members)):
                if kinds is None or kinds[kind] == kind_name:
                    value, end = read(inside)
                    if self._whole.startswith(closing, end):
                        readings.append((value, end + len(closing)))
            if kinds is not None and kind_name in (kinds["array"], kinds["object"]):
                return readings[0] if readings else None
        end = self._whole.find(closing, inside)
        if end >= 0:
            raw = self._whole[inside:end]
            if kinds is None or kind_name != kinds["string"]:
                reading = _json_at(raw, 0)
                # Strings have no quotes here.
                if reading and reading[1] == len(raw) and not isinstance(reading[0], str):
                    readings.append((reading[0], end + len(closing)))
            if (kinds is None or kind_name == kinds["string"]) and not any(mark in raw for mark in self._style.marks):
                readings.append((raw, end + len(closing)))
        if not readings:
            return None
        first = readings[0][1]
        values = [value for value, end in readings if end == first]
        return (values[0] if len(values) == 1 else Options(values)), first


@cache
def _opening(pattern: str) -> re.Pattern[str]:
    escaped = re.escape(pattern).replace(r"\{name\}", f"(?P<name>{NAME})").replace(r"\{kind\}", "(?P<kind>[a-z]+)")
    return re.compile(escaped)


def _json_at(text: str, start: int) -> tuple[Any, int] | None:
    try:
        return _DECODER.raw_decode(text, start)
    except ValueError:
        return None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(
    parse_float=Decimal, parse_constant=_no_constant
)  # as a float, 19.99 is no multiple of 0.01


def _with_options(value: Any, plan: _Plan) -> Any:
    """With one reading for every option."""
    if isinstance(value, Options):
        return _with_options(value[plan.get(id(value), 0)], plan)
    if isinstance(value, dict):
        return {name: _with_options(item, plan) for name, item in value.items()}
    return [_with_options(item, plan) for item in value] if isinstance(value, list) else value


def _options(value: Any, plan: _Plan, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Options]]:
    """Every option in the readings that are taken, and where."""
    if isinstance(value, Options):
        yield path, value
        yield from _options(value[plan.get(id(value), 0)], plan, path)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _options(item, plan, (*path, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _options(item, plan, (*path, index))


def _with_causes(error: Any) -> Iterator[Any]:
    yield error
    for cause in error.context:
        yield from _with_causes(cause)


def _floats(value: Any) -> Any:
    """With fractions as Python's json reads them."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, dict):
        return {name: _floats(item) for name, item in value.items()}
    return [_floats(item) for item in value] if isinstance(value, list) else value
