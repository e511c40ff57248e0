"""A structural tag as text for a prompt: its marks as they are written, and in brackets what stands between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..constraints import json_text
from ..constraints.tool_xml import STYLES
from ..schema.sketch import sketch_of

Format = Mapping[str, Any]


def tag_sketch(tag: Format) -> str:
    """The text that a structural tag describes, with brackets around what varies."""
    return _Writer(every=True).write(tag["format"] if "format" in tag else {**tag, "type": "triggered_tags"})


def call_sketch(tag: Format) -> str:
    """One call in a structural tag of tool calls: the first way to write it, without the text around it."""
    return _Writer(every=False).write(tag["format"])


class _Writer:
    """Writes one tag.

    Args:
        every: whether to write all alternatives and repetitions, or the first one of each.
    """

    def __init__(self, *, every: bool):
        self._every = every

    def write(self, one: Format) -> str:
        kind = one.get("type")
        if kind == "const_string":
            return str(one["value"])
        if kind == "regex":
            return f"[text that matches /{one['pattern']}/]"
        if kind == "any_text":
            limit = one.get("max_chars")
            return "[text]" if limit is None else f"[text, <= {limit} chars]"
        if kind == "grammar":
            return f"[text of this grammar: {one['grammar']}]"
        if kind in ("json_schema", "qwen_xml_parameter"):
            return _arguments(one)
        if kind == "sequence":
            return "".join(map(self.write, one["elements"]))
        if kind == "or":
            return self._any_of(one["elements"], "")
        if kind == "tag" or "begin" in one:
            content = one["content"] if "content" in one else {"type": "json_schema", "json_schema": one["schema"]}
            return f"{_mark(one['begin'])}{self.write(content)}{_mark(one['end'])}"
        if kind in ("optional", "plus", "star", "repeat"):
            return self._times(one)
        if kind in ("triggered_tags", "tags_with_separator"):
            return self._tags(one)
        return f"[{json_text.dumps(dict(one), 'structural tag')}]"

    def _any_of(self, ways: Sequence[Format], says: str) -> str:
        """One of several ways, with words before them that say how often; the first way alone without ``every``."""
        if not self._every:
            return self.write(ways[0])
        texts = list(dict.fromkeys(map(self.write, ways)))
        return texts[0] if len(texts) == 1 and not says else f"[{says}{' OR '.join(texts)}]"

    def _times(self, one: Format) -> str:
        if not self._every:
            return self.write(one["content"])
        words = {"optional": "optional", "plus": "once or more", "star": "any number of times"}.get(one["type"])
        if words is None:
            words = f"{one['min']} or more times" if one["max"] < 0 else f"{one['min']}..{one['max']} times"
        return f"[{words}: {self.write(one['content'])}]"

    def _tags(self, one: Format) -> str:
        tags = one["tags"] if "tags" in one else one["structures"]
        if one.get("stop_after_first"):
            count = "one" if one.get("at_least_one") else "at most one"
        else:
            count = "one or more" if one.get("at_least_one") else "any number"
        if one["type"] == "tags_with_separator":
            separator = f", with {one['separator']!r} between them" if one["separator"] else ""
            return self._any_of(tags, f"{count} of these{separator}: ")
        return self._any_of(tags, f"text with {count} of these in it: ")


def _mark(mark: Any) -> str:
    if isinstance(mark, list):
        mark = mark[0] if mark else ""
    return mark if isinstance(mark, str) else f"[{json_text.dumps(mark, 'mark')}]"


def _arguments(one: Format) -> str:
    """What stands for a schema: JSON, or in some formats an element for each of its keys."""
    schema = one["json_schema"]
    text = sketch_of(json_text.dumps(schema, "JSON Schema"), {})
    style = "qwen_xml" if one["type"] == "qwen_xml_parameter" else one.get("style") or "json"
    if style not in STYLES:
        return f"[{'JSON' if style == 'json' else style}: {text}]"
    known = STYLES[style]
    opening = known.opening.replace("{name}", "KEY").replace("{kind}", "TYPE")
    return f"[each key of {text} as {opening}VALUE{known.after('KEY')}]"
