"""The marks of a structural tag: its literal texts, and the free text that they end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..automaton.limits import count
from ..constraints.tool_formats import objects_in
from ..constraints.tool_xml import STYLES

_IN_ESCAPES = frozenset('"\\bfnrtu0123456789abcdef')
_OUTSIDE_STRINGS = frozenset('{}[],:"+-.0123456789eEtrufalsn \t\n\r')  # characters of JSON outside of its strings


def literals(tag: Any) -> list[str]:
    """The texts that a tag writes as they stand."""
    written: dict[str, None] = {}
    for part in objects_in(tag):
        texts = [part.get(key) for key in ("value", "begin", "separator")]
        ends = part.get("end")
        texts += ends if isinstance(ends, list) else [ends]
        if (style := STYLES.get(part.get("style") or "")) is not None:
            texts += [style.opening, style.closing, style.item]
        written |= dict.fromkeys(text for text in texts if isinstance(text, str))
    return list(written)


def overlap(ends: Iterable[str]) -> bool:
    """Whether one end may be complete inside another one, as ``aa`` is in ``a`` + ``aa``.

    The work grows with the square of the number of ends, and is counted: there are few.
    """
    ends = list(dict.fromkeys(filter(None, ends)))
    count(sum(map(len, ends)) * (len(ends) + max(map(len, ends), default=0)) // 16)
    beginnings = (end[:length] for end in ends for length in range(1, len(end)))
    return any(begin.endswith(end) or end.endswith(begin) for begin in beginnings for end in ends)


def is_inside_strings(mark: str) -> bool:
    """Whether JSON can hold this mark in its strings only."""
    return '"' not in mark and not _OUTSIDE_STRINGS.issuperset(mark)


def have_escapes(marks: tuple[str, ...]) -> bool:
    """Whether every string has one text without these: the first character of a mark in it is an escape there."""
    plain = all(
        mark[0] not in _IN_ESCAPES and mark[0] <= "\uffff" and "\\" not in mark and min(mark) >= " " for mark in marks
    )
    return plain and not overlap(marks)


def runs_on(part: dict[str, Any]) -> bool:
    """Whether the end of a format may be free text, which continues until a mark after it."""
    kind = part.get("type", "tag")
    if kind == "sequence":
        return runs_on(part["elements"][-1])
    if kind == "or":
        return any(map(runs_on, part["elements"]))
    if kind in ("optional", "plus", "star", "repeat"):
        return runs_on(part["content"])
    if kind == "tag":
        return part["end"] in ("", [""]) and runs_on(part["content"])
    if kind == "triggered_tags" and part.get("at_least_one") and part.get("stop_after_first"):
        return any(map(runs_on, part["tags"]))
    if kind == "tags_with_separator":
        return any(map(runs_on, part["tags"]))
    return kind in ("any_text", "triggered_tags")
