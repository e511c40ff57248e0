"""``hg.describe``: the format of an answer, as text for a prompt.

A mask alone makes a model write the right format; a model that knows the format also chooses the right content for it.
The text is short, to cost few tokens: a compact type instead of a JSON Schema.
"""

from __future__ import annotations

import json
from typing import Any

from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCalls
from ..constraints.tool_formats import AUTO
from ..constraints.values import (
    DEFAULT_ROOT,
    Choice,
    Constraint,
    Grammar,
    JsonObject,
    JsonSchema,
    Regex,
    StructuralTag,
)
from ..errors import InvalidConstraint, reading, shown
from ..schema.sketch import sketch_of
from .tag_sketch import call_sketch, tag_sketch

_BRACKETS = "where [...] stands for what it describes"


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
        return f"Answer exactly like this, {_BRACKETS}:\n{tag_sketch(required.tag)}"
    return _plain(required)


def describe_choice(constraint: ToolCalls) -> str:
    """The text for a model that sees the tools already: whether it has to call one."""
    if constraint.choice == "auto":
        return ""
    if constraint.choice == "none":
        return "Answer without calling a tool."
    if constraint.choice == "required":
        return "Call one tool." if not constraint.parallel else "Call at least one tool."
    return f"Call the tool {constraint.choice}."


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
    return "\n".join([head, *(_tool(constraint, tool) for tool in tools)])


def _tool(constraint: ToolCalls, tool: dict[str, Any]) -> str:
    function = tool["function"]
    text = " ".join(str(function.get("description") or "").split())
    name = f"- {function['name']}: {text}" if text else f"- {function['name']}"
    if constraint.format == AUTO:
        schema = json.dumps(function.get("parameters") or {}, ensure_ascii=False)
        return f"{name}\n  arguments: {sketch_of(schema, {})}"
    held = {**tool, "function": {**function, "strict": True}}  # also where any object is allowed
    call = ToolCalls([held], constraint.format, function["name"], parallel=False)
    return f"{name}\n{call_sketch(call.structural_tag().tag)}"
