"""The literal texts of a structural tag."""

from __future__ import annotations

from typing import Any

from ..constraints.tool_formats import objects_in
from ..constraints.tool_xml import STYLES


def closing_marks(tag: Any) -> list[str]:
    """The texts that end a segment of free text in a structural tag: ends of tags, and of arguments as elements."""
    marks: dict[str, None] = {}
    for part in objects_in(tag):
        if (style := STYLES.get(part.get("style") or "")) is not None and "{name}" not in style.closing:
            marks[style.closing] = None
        ends = part.get("end", ())
        marks |= dict.fromkeys(end for end in ([ends] if isinstance(ends, str) else ends) if isinstance(end, str))
    return [mark for mark in marks if mark]


def literals(tag: Any) -> list[str]:
    """The literal texts of a structural tag: its marks, and the texts between them."""
    written: dict[str, None] = {}
    for part in objects_in(tag):
        texts = [part.get(key) for key in ("value", "begin", "separator")]
        ends = part.get("end")
        texts += ends if isinstance(ends, list) else [ends]
        if (style := STYLES.get(part.get("style") or "")) is not None:
            texts += [style.opening, style.closing, style.item]
        written |= dict.fromkeys(text for text in texts if isinstance(text, str))
    return list(written)
