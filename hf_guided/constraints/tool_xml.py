"""How model families write a call's arguments as elements instead of JSON, and how these are read back.

A string is written between the marks unchanged, with no quotes and no escapes, so it can never hold the mark that ends
it. Everything else is JSON, or elements again in the families that nest them. Strings inside such JSON write that mark
with escapes, since a reader of an element looks for its mark first. So the type of an argument may be open ("5" or 5):
the first reading that the tool's schema takes is right.

The layout is that of the families' chat templates; names as in xgrammar's ``style``, and one more: "qwen_xml_lines",
with every value on lines of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

from .json_text import no_constant

NAME = r'[^"<>&\x00-\x1f]+'  # name of an argument; with other characters, the end of the name would be ambiguous


@dataclass(frozen=True)
class XmlStyle:
    """One family's elements.

    Args:
        opening: the mark before a value, with ``{name}`` and, where it shows the type, ``{kind}``.
        closing: the mark after it, with or without ``{name}``.
        marks: what no value holds as it is.
        kinds: the opening's name for each JSON type; None where it does not show the type.
        item: the opening of an array's items, where arrays and objects inside are elements too; their closing is that
            of the name "item".
    """

    opening: str
    closing: str
    marks: tuple[str, ...]
    kinds: Mapping[str, str] | None = None
    item: str | None = None

    def before(self, name: str | None, kind: str) -> str:
        """The opening mark of an argument, or with None of an array's item, for a value of this JSON type."""
        kind_name = "" if self.kinds is None else self.kinds[kind]
        pattern = self.item if name is None else self.opening
        assert pattern is not None, "only nested styles have items"
        return pattern.replace("{kind}", kind_name).replace("{name}", name or "")

    def after(self, name: str | None) -> str:
        """The closing mark."""
        return self.closing.replace("{name}", "item" if name is None else name)


_DSML = "｜DSML｜"
_SCOPE = "]<]minimax[>["
_IS_STRING = {"string": "true"} | dict.fromkeys(("null", "boolean", "number", "array", "object"), "false")
_OWN_NAMES = {kind: kind for kind in ("null", "boolean", "number", "string", "array", "object")}
_COFL = {"string": "raw", "array": "list", "object": "dict"} | dict.fromkeys(("null", "boolean", "number"), "json")


def _dsml(word: str) -> XmlStyle:
    closing = f"</{_DSML}{word}>"
    return XmlStyle(f'<{_DSML}{word} name="{{name}}" string="{{kind}}">', f"{closing}\n", (closing,), _IS_STRING)


STYLES: dict[str, XmlStyle] = {
    "qwen_xml": XmlStyle("<parameter={name}>", "</parameter>", ("</parameter>",)),
    "qwen_xml_lines": XmlStyle("<parameter={name}>\n", "\n</parameter>\n", ("</parameter>",)),
    "minimax_xml": XmlStyle('<parameter name="{name}">', "</parameter>\n", ("</parameter>",)),
    "minimax_m3_xml": XmlStyle(f"{_SCOPE}<{{name}}>", f"{_SCOPE}</{{name}}>", (_SCOPE,), item=f"{_SCOPE}<item>"),
    "deepseek_xml": _dsml("parameter"),
    "deepseek_v4_1_xml": _dsml(" parameter"),
    "glm_xml": XmlStyle("<arg_key>{name}</arg_key><arg_value>", "</arg_value>", ("</arg_value>",)),
    "cohere_xml": XmlStyle(
        '<cofl:value name="{name}" type="{kind}">',
        "</cofl:value>",
        ("</cofl:value>",),
        _COFL,
        item='<cofl:value type="{kind}">',
    ),
    "kimi_k3_xml": XmlStyle(
        '<|open|>argument key="{name}" type="{kind}"<|sep|>',
        "<|close|>argument<|sep|>",
        ("<|open|>", "<|close|>", "<|sep|>"),
        _OWN_NAMES,
    ),
}


class Options(tuple[Any, ...]):
    """An argument that has more than one reading, the likeliest first."""

    __slots__ = ()


class Elements:
    """Reads the elements of one style in a text."""

    def __init__(self, style: XmlStyle, whole: str):
        self._style = style
        self._whole = whole
        self._values: dict[tuple[int, str | None], tuple[Any, int] | None] = {}  # an array reads as an object too

    def members(self, start: int) -> tuple[dict[str, Any], int]:
        """The elements that begin here, by name, and where they end."""
        elements = [*self._elements(self._style.opening, start)]
        return {name: value for name, value, _ in elements}, elements[-1][2] if elements else start

    def _items(self, start: int) -> tuple[list[Any], int]:
        elements = [*self._elements(self._style.item or "", start)]
        return [value for _, value, _ in elements], elements[-1][2] if elements else start

    def _elements(self, opening: str, start: int) -> Iterator[tuple[Any, Any, int]]:
        """Name, value and end of each; the name of an array's item is None."""
        while (opened := _opening(opening).match(self._whole, start)) is not None:
            name = opened.groupdict().get("name")
            value = self._value(opened, name)
            if value is None:
                break
            start = value[1]
            yield name, *value

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
                reading = json_at(raw, 0)
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


def json_at(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value that begins here, and where it ends; None if there is none."""
    try:
        return _DECODER.raw_decode(text, start)
    except ValueError:
        return None


# As a float, 19.99 is no multiple of 0.01.
_DECODER = json.JSONDecoder(parse_float=Decimal, parse_constant=no_constant)

_Path = tuple[str | int, ...]
_Plan = dict[_Path, int]  # the reading of each option that is taken, if it is not the first
_MAX_TRIED = 2000  # readings of one call


def settled(arguments: Any, validator: Any) -> Any:
    """The arguments with every option resolved, so that they are valid if possible.

    The errors of one reading say which options to settle otherwise; where that leads nowhere, others are tried.

    Args:
        arguments: values that may hold ``Options``.
        validator: of jsonschema, for the tool's schema.

    Raises:
        ValueError: they are not valid, or no valid reading was found.
    """
    plans: list[_Plan] = [{}]
    tried: set[frozenset[tuple[_Path, int]]] = set()
    first: Any = None
    while plans and len(tried) < _MAX_TRIED:
        plan = plans.pop()
        if (key := frozenset(plan.items())) in tried:
            continue
        tried.add(key)
        undecided: list[_Path] = []
        value = _resolved(arguments, plan, (), undecided)
        errors = list(validator.iter_errors(value))
        if not errors:
            return _with_floats(value)
        first = first or errors[0]
        for paths in reversed(_suspects(undecided, errors)):
            plans.append(plan | {path: plan.get(path, 0) + 1 for path in paths})
    raise ValueError(f"arguments are not valid at {first.json_path}: {first.message}")


def _resolved(value: Any, plan: _Plan, path: _Path, undecided: list[_Path]) -> Any:
    """Take one reading for every option; collect the paths of those that have more."""
    if isinstance(value, Options):
        number = plan.get(path, 0)
        if number + 1 < len(value):
            undecided.append(path)
        return _resolved(value[number], plan, path, undecided)
    if isinstance(value, dict):
        return {name: _resolved(item, plan, (*path, name), undecided) for name, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, plan, (*path, index), undecided) for index, item in enumerate(value)]
    return value


def _suspects(undecided: Sequence[_Path], errors: Sequence[Any]) -> list[list[_Path]]:
    """The options to settle otherwise, the likeliest first: all surely wrong ones at once, then each one alone."""
    holds_others = {path[:n] for path in undecided for n in range(len(path))}
    wrong = {tuple(error.absolute_path) for error in errors}
    sure = [path for path in undecided if path in wrong and path not in holds_others]
    named = {tuple(cause.absolute_path) for error in errors for cause in _with_causes(error)}

    def shared(path: _Path) -> int:
        """Count the steps of the path to this option that an error names."""
        along_path = [other for other in named if path[: len(other)] == other[: len(path)]]
        return max((min(len(path), len(other)) for other in along_path), default=-1)

    ranked = sorted(undecided, key=lambda path: (-shared(path), -len(path)))
    return ([sure] if len(sure) > 1 else []) + [[path] for path in ranked if shared(path) >= 0]


def _with_causes(error: Any) -> Iterator[Any]:
    yield error
    for cause in error.context:
        yield from _with_causes(cause)


def _with_floats(value: Any) -> Any:
    """Turn fractions into floats, as Python's json reads them."""
    if isinstance(value, dict):
        return {name: _with_floats(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_floats(item) for item in value]
    return float(value) if isinstance(value, Decimal) else value
