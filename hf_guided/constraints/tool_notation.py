"""Notations of tool calls that are described by the texts around a call's name and arguments.

``ToolFormat`` is what users write; ``FAMILIES`` has the notations that chat templates write, and one for models whose
template knows no tools.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ..errors import InvalidConstraint, reading, shown
from .base import expect_utf8, set_fields

Tag = dict[str, Any]
"""A format of a structural tag, or a whole one."""
JSON = "json"
"""The name of the notation for models whose template knows no tools."""

_PLACES = re.compile(r"(\{name\}|\{arguments\}|\{number\})")
_KEY = re.compile(r'[^"\\{}\x00-\x1f]+')
_INDENTED = re.compile(r"\n +[^\n]*\{arguments\}")
_BETWEEN = "\n"  # two calls that other text may separate
_MAX_SPACE = 40  # characters in a row, in arguments that are indented with their call
_FIRST_MARK = re.compile(r"<[^<>\s]+>")


@dataclass(frozen=True)
class ToolFormat:
    """The notation in which a model writes tool calls, for ``ToolCalls.format``.

    A call is the texts ``begin``, ``name``, ``arguments`` and ``end``, one after another. The white space before an
    answer's first call may be left out.

    Args:
        begin: before each call.
        name: a text with ``{name}`` in place of the tool's name; or a key: with keys for name and arguments, a call is
            a JSON object, as ``{"name": "get_weather", "arguments": {"city": "Rome"}}`` with the defaults.
        arguments: a text with ``{arguments}`` in place of the arguments, which are JSON; or a key.
        end: after each call.
        first: before the first of an answer's calls. With ``first``, ``between`` or ``last``, calls follow each other
            without other text.
        between: between two calls.
        last: after the last call.
        text: a text with ``{text}`` in place of the text, if an answer without calls has marks of its own.

    ``{number}`` in ``begin`` or ``name`` stands for one to three digits.

    Raises:
        InvalidConstraint: a value that is no text; a place that is missing, or there twice; nothing that tells a call
            from text.
    """

    begin: str = ""
    name: str = "name"
    arguments: str = "arguments"
    end: str = ""
    first: str = ""
    between: str = ""
    last: str = ""
    text: str = "{text}"

    @reading("ToolFormat", InvalidConstraint)
    def __post_init__(self) -> None:
        for part in fields(self):
            value = getattr(self, part.name)
            if not isinstance(value, str):
                raise InvalidConstraint(f"ToolFormat.{part.name}: expected a str, got {shown(value)}")
            expect_utf8(value, f"ToolFormat.{part.name}")
        if _KEY.fullmatch(self.name) and _KEY.fullmatch(self.arguments):
            set_fields(self, name=f'{{"{self.name}": "{{name}}"', arguments=f', "{self.arguments}": {{arguments}}}}')
        call = self._call_text
        for name, value, whole in (
            ("name", self.name, call),
            ("arguments", self.arguments, call),
            ("text", self.text, self.text),
        ):
            if f"{{{name}}}" not in value or whole.count(f"{{{name}}}") != 1:
                keys = "" if name == "text" else "; or a key of a JSON object, as the other one of name and arguments"
                raise InvalidConstraint(
                    f"ToolFormat.{name}: expected a text that holds {{{name}}} once{keys}, got {shown(value)}"
                )
        if not (self.first + self._head + self.text.partition("{text}")[0]).strip():
            raise InvalidConstraint(
                "ToolFormat.begin: expected a text before the name of the tool, by which a call differs from other "
                f"text, got {shown(self.begin)}"
            )

    def tag(self, names: Sequence[str], *, required: bool, parallel: bool) -> Tag:
        """Text and calls as a format of a structural tag, in which ``{"title": name}`` is a tool's schema.

        Args:
            names: of the tools that may be called.
            required: whether the answer is a call at once.
            parallel: whether there may be more than one call.
        """
        if self.text != "{text}":
            if not names:
                return any_of(self._texts(None))
            mark = self.text.partition("{text}")[0]
            for name in names:
                if mark and (self.first + self._call(name, 0)["begin"]).startswith(mark):
                    raise InvalidConstraint(f"ToolCalls: in this format a call of {name!r} begins as text: {mark!r}")
            calls = self._section(names, parallel=parallel)
            # Calls come first: a reader, which does not look for their mark in text, takes the first that fits.
            return calls if required else any_of([calls, *self._texts(calls)])
        start = self.first or self._head
        begin = start.lstrip()
        trigger, space = _trigger(begin), start[: len(start) - len(begin)]
        if not names:
            return {"type": "any_text", "excludes": [trigger]}
        spaces = [space, ""] if space else [""]
        if self._is_section:
            section = self._section(names, parallel=parallel)
            tags = [{**section, "begin": lead + begin} for lead in spaces]
        else:
            tags = [self._call(name, len(space) - len(lead)) for name in names for lead in spaces]
        return {
            "type": "triggered_tags",
            "triggers": [lead + trigger for lead in spaces],
            "tags": tags,
            "at_least_one": required,
            "stop_after_first": not parallel or self._is_section,
            "excludes": [],
        }

    def written(self, calls: Sequence[tuple[str, str]]) -> str:
        """Calls as text: the name and the arguments of each, these as JSON."""
        texts = []
        for number, (name, arguments) in enumerate(calls):
            places = {"{name}": name, "{arguments}": arguments, "{number}": str(number)}
            texts.append("".join(places.get(piece, piece) for piece in _PLACES.split(self._call_text)))
        is_joined = self._is_section or self.text != "{text}"
        return f"{self.first}{(self.between if is_joined else _BETWEEN).join(texts)}{self.last}"

    def _section(self, names: Sequence[str], *, parallel: bool) -> Tag:
        """The calls of an answer, in their order."""
        shared = 0 if self.first else len(self._head)  # what the calls begin with alike, which is read before each
        calls = {
            "type": "tags_with_separator",
            "tags": [self._call(name, shared) for name in names],
            "separator": self.between + self._head[:shared],
            "at_least_one": True,
            "stop_after_first": not parallel,
        }
        return tagged(self.first or self._head, calls, self.last)

    def _texts(self, calls: Tag | None) -> list[Tag]:
        """An answer's text between its marks, of which the last one may be left out, and what may follow it."""
        begin, _, end = self.text.partition("{text}")
        ends = [_trigger((self.first or self.between or self._head).strip()), end]
        free = {"type": "any_text", "excludes": list(filter(None, ends))}
        texts = [in_order([literal(begin), free])]
        if end:
            texts.insert(0, tagged(begin, free, end))
        if calls is not None and self.between and not self.first:
            texts.insert(0, in_order([tagged(begin, free, self.between), calls]))
        return texts

    def _call(self, name: str, skipped: int) -> Tag:
        """A call without its first characters."""
        elements = [literal("")]
        for place in _PLACES.split(self._call_text):
            if place == "{number}":
                elements += [{"type": "regex", "pattern": "[0-9]{1,3}"}, literal("")]
            elif place == "{arguments}":
                elements += [self._arguments(name), literal("")]
            else:
                elements[-1]["value"] += name if place == "{name}" else place
        first, *content, last = elements
        return tagged(first["value"][skipped:], in_order(content), last["value"])

    def _arguments(self, name: str) -> Tag:
        return {
            "type": "json_schema",
            "json_schema": {"title": name},
            "style": "json",
            "excludes": [],
            "max_whitespace_cnt": _MAX_SPACE if _INDENTED.search(self.name + self.arguments) else None,
        }

    @property
    def after_name(self) -> str:
        """The text after the name of a tool, at whose first occurrence a reader ends the name."""
        pieces = _PLACES.split(self._call_text)
        return pieces[pieces.index("{name}") + 1] or "{"  # the arguments, which are an object

    @property
    def _call_text(self) -> str:
        return self.begin + self.name + self.arguments + self.end

    @property
    def _is_section(self) -> bool:
        """Whether calls follow each other without other text."""
        return bool(self.first or self.between or self.last)

    @cached_property
    def _head(self) -> str:
        """The text that all calls begin with, before the name or a number."""
        return _PLACES.split(self.begin + self.name)[0]


def _trigger(begin: str) -> str:
    """The part of a call's beginning that no other text holds: its first mark, if it begins with one."""
    mark = _FIRST_MARK.match(begin)
    return mark.group() if mark else begin


def tagged(begin: str, content: Tag, end: str) -> Tag:
    """A content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def literal(value: str) -> Tag:
    """A literal text."""
    return {"type": "const_string", "value": value}


def in_order(elements: Sequence[Tag]) -> Tag:
    """A sequence of the elements; a single element is itself."""
    return elements[0] if len(elements) == 1 else {"type": "sequence", "elements": [*elements]}


def any_of(elements: Sequence[Tag]) -> Tag:
    """A choice of the elements; a single element is itself."""
    return elements[0] if len(elements) == 1 else {"type": "or", "elements": [*elements]}


FAMILIES: dict[str, ToolFormat] = {
    JSON: ToolFormat("<tool_call>\n", end="\n</tool_call>"),
    "apertus": ToolFormat(
        name='{"{name}": ',
        arguments="{arguments}}",
        first="<|tools_prefix|>[",
        between=", ",
        last="]<|tools_suffix|>",
    ),
    "apriel": ToolFormat(first="<tool_calls>[", between=", ", last="]</tool_calls>"),
    "command_r": ToolFormat(
        begin="    {\n",
        name='        "tool_name": "{name}",\n',
        arguments='        "parameters": {arguments}\n',
        end="    }",
        first="\nAction:\n```json\n[\n",
        between=",\n",
        last="\n]```",
    ),
    "command_r7b": ToolFormat(
        begin="    ",
        name='{"tool_call_id": "{number}", "tool_name": "{name}", ',
        arguments='"parameters": {arguments}}',
        first="<|START_ACTION|>[\n",
        between=",\n",
        last="\n]<|END_ACTION|>",
        text="<|START_RESPONSE|>{text}<|END_RESPONSE|>",
    ),
    "firefunction": ToolFormat(first=" functools[", between=", ", last="]"),
    "functionary_v3_1": ToolFormat("<function=", "{name}>", "{arguments}", "</function>"),
    "functionary_v3_2": ToolFormat(name="{name}\n", arguments="{arguments}", between=">>>", text="all\n{text}"),
    "granite": ToolFormat(first="<|tool_call|>[", between=", ", last="]"),
    "nemotron": ToolFormat(first="<TOOLCALL>[", between=", ", last="]</TOOLCALL>"),
}
