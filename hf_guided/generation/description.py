"""``hg.describe``: the format of an answer, as text for a prompt.

A mask alone makes a model write the right format; a model that knows the format also chooses the right content for it.
The text is short, to cost few tokens: a compact type instead of a JSON Schema. A structural tag becomes its literal
marks, and between them descriptions in brackets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ..constraints import json_text
from ..constraints.argument_advice import DESCRIBE, explains_its_arguments
from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCalls
from ..constraints.tool_formats import AUTO
from ..constraints.tool_xml import STYLES
from ..constraints.values import DEFAULT_ROOT, Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from ..errors import InvalidConstraint, reading, shown
from ..schema.sketch import sketch_of

_BRACKETS = "where [...] stands for what it describes"


@explains_its_arguments(DESCRIBE)
@reading("describe")
def describe(constraint: Any, tokenizer: Any = None) -> str:
    """Describe for a model the format that its answer has to have.

    ``hg.generate(..., describe=True)`` puts it into the prompt.

    Args:
        constraint: a constraint, or a plain form of one; None gives an empty text.
        tokenizer: for ``ToolCalls`` without a ``format``: the tokenizer whose chat template defines the form of a call.
            Without it the text names the tools, but not the form of a call.

    Raises:
        InvalidConstraint: the constraint is malformed.
    """
    required = coerce(constraint)
    if required is None:
        return ""
    if tokenizer is not None:
        required = required.for_tokenizer(tokenizer)
    if isinstance(required, ToolCalls):
        return _tools(required)
    if isinstance(required, JsonSchema):
        required.check()
        schema_json = required.described_json or required.schema_json
        type_text = sketch_of(schema_json, required.registry, open_objects=required.extra == "allow")
        return f"Answer only with JSON of this type:\n{type_text}"
    if isinstance(required, StructuralTag):
        tag = required.tag
        whole = tag["format"] if "format" in tag else {**tag, "type": "triggered_tags"}
        return f"Answer exactly like this, {_BRACKETS}:\n{_TagWriter(every=True).write(whole)}"
    return _plain(required)


def describe_choice(constraint: ToolCalls) -> str:
    """The text for a model that sees the tools already: whether it has to call one, and the format of an answer."""
    if constraint.choice == "auto":
        return f"If you call no tool: {describe(constraint.answer)}" if constraint.answer is not None else ""
    if constraint.choice == "none":
        return describe(constraint.answer) or "Answer without calling a tool."
    if constraint.choice == "required":
        return "Call one tool." if not constraint.parallel else "Call at least one tool."
    return f"Call the tool {constraint.choice}."


_WORDS = ("format", "grammar", "pattern", "regex", "regular expression")


def names_format(constraint: Constraint, text: str) -> bool:
    """Whether a prompt tells a model anything of its answer's format, as far as words show it."""
    text = text.casefold()
    if isinstance(constraint, Choice):
        return all(option.casefold() in text for option in constraint.options)
    if isinstance(constraint, (JsonObject, JsonSchema)):
        schema = constraint.schema if isinstance(constraint, JsonSchema) else {}
        names = schema.get("properties", {}) if isinstance(schema, dict) else {}
        return "json" in text or "schema" in text or (bool(names) and all(name.casefold() in text for name in names))
    return any(word in text for word in _WORDS) or describe(constraint).casefold() in text


def _plain(constraint: Constraint) -> str:
    if isinstance(constraint, JsonObject):
        return "Answer only with JSON: one object."
    if isinstance(constraint, Regex):
        return f"Answer only with text that fully matches this regular expression:\n{constraint.pattern}"
    if isinstance(constraint, Choice):
        options = ", ".join(json.dumps(option, ensure_ascii=False) for option in constraint.options)
        return f"Answer with exactly one of these, without the quotes: {options}"
    if isinstance(constraint, Grammar):
        name = {"lark": "Lark", "gbnf": "GBNF"}[constraint.syntax]
        start = "" if constraint.root in DEFAULT_ROOT.values() else f", from its rule {constraint.root}"
        return f"Answer only with text of this {name} grammar{start}:\n{constraint.text.strip()}"
    raise InvalidConstraint(f"describe: expected a constraint of this package, got {shown(constraint)}")


def _tools(constraint: ToolCalls) -> str:
    names = constraint.allowed if constraint.choice in ("auto", "required") else (constraint.choice,)
    tools = [tool for tool in constraint.tools if tool["function"]["name"] in names]
    if not tools:
        return describe_choice(constraint)
    if constraint.choice == "auto":
        first = "You may call these tools" if constraint.parallel else "You may call one of these tools"
    else:
        first = describe_choice(constraint).rstrip(".")
    known = constraint.format != AUTO
    head = f"{first}, each call written exactly like this, {_BRACKETS}:" if known else f"{first}:"
    lines = [head, *(_tool(constraint, tool) for tool in tools)]
    if constraint.choice == "auto" and constraint.answer is not None:
        lines.append(describe_choice(constraint))
    return "\n".join(lines)


def _tool(constraint: ToolCalls, tool: dict[str, Any]) -> str:
    function = tool["function"]
    text = " ".join(str(function.get("description") or "").split())
    name = f"- {function['name']}: {text}" if text else f"- {function['name']}"
    if constraint.format == AUTO:
        schema = json.dumps(function.get("parameters") or {}, ensure_ascii=False)
        is_open = function.get("strict") is False
        return f"{name}\n  arguments: {sketch_of(schema, {}, open_objects=is_open)}"
    call = ToolCalls([tool], constraint.format, function["name"], parallel=False)
    # One call in its first form, without the text around it.
    return f"{name}\n{_TagWriter(every=False).write(call.structural_tag().tag['format'])}"


Format = Mapping[str, Any]


class _TagWriter:
    """Writes a structural tag, with brackets around its variable parts.

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
    options = node.get("options") or {}
    schema_json, is_open = json_text.dumps(schema, "JSON Schema"), options.get("extra") == "allow"
    text = sketch_of(schema_json, options.get("registry") or {}, open_objects=is_open)
    style = "qwen_xml" if node["type"] == "qwen_xml_parameter" else node.get("style") or "json"
    if style not in STYLES:
        return f"[{'JSON' if style == 'json' else style}: {text}]"
    known = STYLES[style]
    opening = known.opening.replace("{name}", "KEY").replace("{kind}", "TYPE")
    return f"[each key of {text} as {opening}VALUE{known.after('KEY')}]"
