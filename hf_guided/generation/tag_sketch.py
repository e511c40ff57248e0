"""A structural tag as text for a prompt: literal marks, and between them descriptions in brackets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..constraints import json_text
from ..constraints.tool_xml import STYLES
from ..schema.sketch import sketch_of

Format = Mapping[str, Any]


def tag_sketch(tag: Format) -> str:
    """The text that a structural tag describes, with brackets around variable parts."""
    return _Writer(every=True).write(tag["format"] if "format" in tag else {**tag, "type": "triggered_tags"})


def call_sketch(tag: Format) -> str:
    """One call in a structural tag of tool calls: its first form, without the text around it."""
    return _Writer(every=False).write(tag["format"])


class _Writer:
    """Writes one tag.

    Args:
        every: whether to write all alternatives and repetitions, or only the first of each.
    """

    def __init__(self, *, every: bool):
        self._every = every

    def write(self, node: Format) -> str:
        kind = node.get("type")
        if kind == "const_string":
            return str(node["value"])
        if kind == "regex":
            return f"[text that matches /{node['pattern']}/]"
        if kind == "any_text":
            limit = node.get("max_chars")
            return "[text]" if limit is None else f"[text, <= {limit} chars]"
        if kind == "grammar":
            return f"[text of this grammar: {node['grammar']}]"
        if kind in ("json_schema", "qwen_xml_parameter"):
            return _arguments(node)
        if kind == "sequence":
            return "".join(map(self.write, node["elements"]))
        if kind == "or":
            return self._any_of(node["elements"], "")
        if kind == "tag" or "begin" in node:
            content = node["content"] if "content" in node else {"type": "json_schema", "json_schema": node["schema"]}
            return f"{_mark(node['begin'])}{self.write(content)}{_mark(node['end'])}"
        if kind in ("optional", "plus", "star", "repeat"):
            return self._times(node)
        if kind in ("triggered_tags", "tags_with_separator"):
            return self._tags(node)
        return f"[{json_text.dumps(dict(node), 'structural tag')}]"

    def _any_of(self, alternatives: Sequence[Format], count: str) -> str:
        """Several alternatives after the words for their number; without ``every`` only the first alternative."""
        if not self._every:
            return self.write(alternatives[0])
        texts = list(dict.fromkeys(map(self.write, alternatives)))
        return texts[0] if len(texts) == 1 and not count else f"[{count}{' OR '.join(texts)}]"

    def _times(self, node: Format) -> str:
        if not self._every:
            return self.write(node["content"])
        words = {"optional": "optional", "plus": "once or more", "star": "any number of times"}.get(node["type"])
        if words is None:
            words = f"{node['min']} or more times" if node["max"] < 0 else f"{node['min']}..{node['max']} times"
        return f"[{words}: {self.write(node['content'])}]"

    def _tags(self, node: Format) -> str:
        tags = node["tags"] if "tags" in node else node["structures"]
        if node.get("stop_after_first"):
            count = "one" if node.get("at_least_one") else "at most one"
        else:
            count = "one or more" if node.get("at_least_one") else "any number"
        if node["type"] == "tags_with_separator":
            separator = f", with {node['separator']!r} between them" if node["separator"] else ""
            return self._any_of(tags, f"{count} of these{separator}: ")
        return self._any_of(tags, f"text with {count} of these in it: ")


def _mark(mark: Any) -> str:
    if isinstance(mark, list):
        mark = mark[0] if mark else ""
    return mark if isinstance(mark, str) else f"[{json_text.dumps(mark, 'mark')}]"


def _arguments(node: Format) -> str:
    """The arguments of a schema: JSON, or in some formats an element for each of its keys."""
    schema = node["json_schema"]
    text = sketch_of(json_text.dumps(schema, "JSON Schema"), {})
    style = "qwen_xml" if node["type"] == "qwen_xml_parameter" else node.get("style") or "json"
    if style not in STYLES:
        return f"[{'JSON' if style == 'json' else style}: {text}]"
    known = STYLES[style]
    opening = known.opening.replace("{name}", "KEY").replace("{kind}", "TYPE")
    return f"[each key of {text} as {opening}VALUE{known.after('KEY')}]"
