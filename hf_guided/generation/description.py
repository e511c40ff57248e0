"""``hg.describe``: the format of an answer, as text for a prompt.

A mask alone makes a model write the right format; a model that has been told the format also chooses the right content
for it. The text is meant for a model to read in few tokens: a compact type instead of a JSON Schema.
"""

from __future__ import annotations

import json
from typing import Any

from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCalls
from ..constraints.tool_formats import AUTO
from ..constraints.values import Choice, Constraint, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from ..errors import InvalidConstraint
from ..schema.sketch import sketch_of
from .tag_sketch import call_sketch, tag_sketch

_BRACKETS = "where [...] stands for what it describes"


def describe(constraint: Any, tokenizer: Any = None) -> str:
    """The text that tells a model which format its answer has to have.

    ``hg.generate(..., describe=True)`` puts it into the prompt.

    Args:
        constraint: a constraint, or a plain form of one; None gives an empty text.
        tokenizer: for ``ToolCalls`` without a ``format``: the tokenizer whose chat template says how calls are written.
            Without it the text names the tools, but not how a call is written.

    Raises:
        InvalidConstraint: the constraint is malformed.
    """
    asked = coerce(constraint)
    if asked is None:
        return ""
    if tokenizer is not None:
        asked = asked.for_tokenizer(tokenizer)
    if isinstance(asked, ToolCalls):
        return _tools(asked)
    if isinstance(asked, JsonSchema):
        asked.check()
        schema_json = asked.described_json or asked.schema_json
        type_text = sketch_of(schema_json, asked.registry, open_objects=asked.extra == "allow")
        return f"Answer only with JSON of this type:\n{type_text}"
    if isinstance(asked, StructuralTag):
        return f"Answer exactly like this, {_BRACKETS}:\n{tag_sketch(asked.tag)}"
    return _plain(asked)


def describe_choice(constraint: ToolCalls) -> str:
    """What a model that sees the tools already does not know: that it has to call one."""
    if constraint.choice == "auto":
        return ""
    if constraint.choice == "none":
        return "Answer without calling a tool."
    if constraint.choice == "required":
        return "Call one tool." if not constraint.parallel else "Call at least one tool."
    return f"Call the tool {constraint.choice}."


def _plain(asked: Constraint) -> str:
    if isinstance(asked, JsonObject):
        return "Answer only with JSON: one object."
    if isinstance(asked, Regex):
        return f"Answer only with text that fully matches this regular expression:\n{asked.pattern}"
    if isinstance(asked, Choice):
        options = ", ".join(json.dumps(option, ensure_ascii=False) for option in asked.options)
        return f"Answer with exactly one of these, without the quotes: {options}"
    if isinstance(asked, Grammar):
        name = {"lark": "Lark", "gbnf": "GBNF"}[asked.syntax]
        return f"Answer only with text of this {name} grammar:\n{asked.text.strip()}"
    raise InvalidConstraint(f"describe: expected a constraint of this package, got {asked!r}")


def _tools(asked: ToolCalls) -> str:
    tools = [tool for tool in asked.tools if asked.choice in ("auto", "required", tool["function"]["name"])]
    if not tools:
        return describe_choice(asked)
    if asked.choice == "auto":
        first = "You may call these tools" if asked.parallel else "You may call one of these tools"
    else:
        first = describe_choice(asked).rstrip(".")
    known = asked.format != AUTO
    head = f"{first}, each call written exactly like this, {_BRACKETS}:" if known else f"{first}:"
    return "\n".join([head, *(_tool(asked, tool) for tool in tools)])


def _tool(asked: ToolCalls, tool: dict[str, Any]) -> str:
    function = tool["function"]
    text = " ".join(str(function.get("description") or "").split())
    name = f"- {function['name']}: {text}" if text else f"- {function['name']}"
    if asked.format == AUTO:
        schema = json.dumps(function.get("parameters") or {}, ensure_ascii=False)
        return f"{name}\n  arguments: {sketch_of(schema, {})}"
    call = ToolCalls([tool], asked.format, function["name"], parallel=False)
    return f"{name}\n{call_sketch(call.structural_tag().tag)}"
