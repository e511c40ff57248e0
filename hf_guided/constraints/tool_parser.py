"""Parses an answer with tool calls by the structural tag that constrained it.

A tag leaves no doubt about where its parts begin and end: free text ends where a trigger begins, JSON where its value
is complete, elements at their marks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..errors import shown
from .tool_notation import Tag
from .tool_xml import STYLES, Elements, json_at

LINE_ENDS = "\r\n"
"""Characters that belong to the marks of a call, and not to the text, where they stand between the two."""


class ReadCall(NamedTuple):
    """A call, whose arguments may hold ``Options`` still."""

    name: str
    arguments: Any


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


class Part(NamedTuple):
    """The beginning of an answer: where it ends, the text between its calls, and the calls."""

    end: int = 0
    text: str = ""
    calls: tuple[ReadCall, ...] = ()


class Reading:
    """An answer, or the beginning of one, with what was found in it.

    Args:
        format: as ``call_tag`` gives it, with tools' names for schemas.
        text: the answer. Line ends beside calls are no part of what is read as its text.

    Attributes:
        complete: the part up to the end of the last complete call, on the path through the tag that led furthest.
    """

    def __init__(self, format: Tag, text: str):
        self._text = text
        self._begun: dict[int, BegunCall] = {}  # by the number of calls before it
        self.complete = Part()
        self._whole = self._read(format, Part())

    def whole(self) -> Part:
        """Return all of the answer; raises ValueError if the text does not match the tag."""
        if self._whole is None or self._whole.end != len(self._text):
            raise ValueError(f"not an answer with tool calls in this format: {shown(self._text)}")
        return self._whole

    def begun(self) -> list[BegunCall]:
        """Return the calls whose arguments have begun, in order; only of formats that write JSON."""
        return [self._begun[number] for number in range(len(self._begun)) if number in self._begun]

    def _read(self, part: Tag, before: Part) -> Part | None:
        """Read a format after ``before``; None if it does not begin there."""
        kind = part["type"]
        if kind == "const_string":
            return self._past(part["value"], before)
        if kind == "regex":
            match = re.compile(part["pattern"]).match(self._text, before.end)
            return before._replace(end=match.end()) if match else None
        if kind == "any_text":
            return self._with_text(before, len(self._text))
        if kind == "json_schema":
            return self._call(part, before)
        if kind == "sequence":
            after: Part | None = before
            for element in part["elements"]:
                after = after and self._read(element, after)
            return after
        if kind == "or":  # the path that leads furthest
            paths = [path for element in part["elements"] if (path := self._read(element, before))]
            return max(paths, key=lambda path: path.end, default=None)
        if kind == "optional":
            return self._read(part["content"], before) or before
        if kind == "star":
            while (following := self._read(part["content"], before)) is not None and following.end > before.end:
                before = following
            return before
        if kind == "tag":
            return self._tag(part, before)
        return self._triggered(part, before) if kind == "triggered_tags" else self._separated(part, before)

    def _call(self, part: Tag, before: Part) -> Part | None:
        style, name, start = part.get("style") or "json", part["json_schema"]["title"], before.end
        value = json_at(self._text, start) if style == "json" else Elements(STYLES[style], self._text).members(start)
        if style == "json" and self._text.startswith("{", start):
            self._begun[len(before.calls)] = BegunCall(name, start, value and value[1])
        return value and Part(value[1], before.text.rstrip(LINE_ENDS), (*before.calls, ReadCall(name, value[0])))

    def _tag(self, part: Tag, before: Part) -> Part | None:
        inside = self._past(part["begin"], before)
        ends = [part["end"]] if isinstance(part["end"], str) else part["end"]
        if inside is not None and part["content"]["type"] == "any_text":
            found = [(at, at + len(end)) for end in ends if (at := self._text.find(end, inside.end)) >= 0]
            return self._with_text(inside, min(found)[0])._replace(end=min(found)[1]) if found else None
        content = inside and self._read(part["content"], inside)
        after = content and next((after for end in ends if (after := self._past(end, content))), None)
        if after and len(after.calls) > len(self.complete.calls):
            self.complete = after  # calls so far stay, even where the answer is not complete
        return after

    def _triggered(self, part: Tag, before: Part) -> Part | None:
        at_once, after = part.get("at_least_one"), before
        while True:
            if not at_once:
                found = [at for mark in part["triggers"] if (at := self._text.find(mark, after.end)) >= 0]
                after = self._with_text(after, min(found, default=len(self._text)))
                if not found:
                    return after
            called = self._one_of(part["tags"], after)
            if called is None or part.get("stop_after_first"):
                return called
            at_once, after = False, called

    def _separated(self, part: Tag, before: Part) -> Part | None:
        after = self._one_of(part["tags"], before)
        if after is None:
            return None if part.get("at_least_one") else before
        while not part.get("stop_after_first"):
            separated = self._past(part["separator"], after)
            following = separated and self._one_of(part["tags"], separated)
            if following is None:
                break
            after = following
        return after

    def _one_of(self, tags: Sequence[Tag], before: Part) -> Part | None:
        return next((after for tag in tags if (after := self._read(tag, before))), None)

    def _past(self, mark: str, before: Part) -> Part | None:
        starts = self._text.startswith(mark, before.end)
        return before._replace(end=before.end + len(mark)) if starts else None

    def _with_text(self, before: Part, end: int) -> Part:
        text = self._text[before.end : end]
        if before.calls:
            text = text.lstrip(LINE_ENDS)
            text = f"\n{text}" if text and before.text else text
        return Part(end, before.text + text, before.calls)
