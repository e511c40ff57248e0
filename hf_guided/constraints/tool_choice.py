"""OpenAI's tools and ``tool_choice``, nested as in chat completions or flat as in /v1/responses."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidConstraint, shown
from .suggestions import did_you_mean, expect_keys, got

MODES = ("auto", "required", "none")
_PATH = "ToolCalls.choice"


def read_tool(tool: Any, index: int) -> dict[str, Any]:
    """A tool, given as a dict or as a documented Python function, as a nested dict.

    Raises:
        InvalidConstraint: malformed, or a function that cannot be described.
    """
    where = f"tools[{index}]"
    if callable(tool):
        from transformers.utils import get_json_schema

        try:
            return get_json_schema(tool)  # type: ignore[no-any-return]
        except Exception as error:  # a docstring or type hint it cannot read; the reasons have no common class
            raise InvalidConstraint(f"{where}: {getattr(tool, '__name__', tool)!r} is no tool: {error}") from error
    if not isinstance(tool, Mapping):
        raise InvalidConstraint(f"{where}: expected a tool dict or a function, got {shown(tool)}")
    tool = _nested(tool)
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise InvalidConstraint(
            f'{where}: expected {{"type": "function", "function": {{...}}}}, got {shown(dict(tool))}'
        )
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidConstraint(f"{where}.function.name: expected a name, {got(function.get('name'))}")
    if re.search(r'["<>\\\x00-\x1f\x7f]', function["name"]):  # the name is written literally, between such marks
        raise InvalidConstraint(
            f"{where}.function.name: expected no quotes, angle brackets, backslashes and control characters, got "
            f"{function['name']!r}"
        )
    if function.get("strict") not in (None, True, False):
        raise InvalidConstraint(f"{where}.function.strict: expected true or false, got {function['strict']!r}")
    parameters = function.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidConstraint(f"{where}.function.parameters: expected a schema, got {shown(parameters)}")
    kind = parameters.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise InvalidConstraint(f"{where}.function.parameters.type: arguments are an object, got {shown(kind)}")
    return {**tool, "function": dict(function)}


def _nested(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool.get("type") != "function" or "function" in tool or len(tool) == 1:
        return tool
    return {"type": "function", "function": {key: value for key, value in tool.items() if key != "type"}}


def read_choice(choice: Any, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The mode, or the name of the one tool to call; and the names of the tools that may be called, in their order.

    Args:
        choice: a mode, a name, ``{"type": "function", "function": {"name": ...}}``, or ``{"type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required", "tools": [{"type": "function", "function": ...}, ...]}}``;
            or one of these objects flat, without its inner object.
        names: of all tools.

    Raises:
        InvalidConstraint: malformed, or a tool that does not exist.
    """
    if isinstance(choice, Mapping) and choice.get("type") == "allowed_tools":
        return _allowed(choice, names)
    if isinstance(choice, Mapping):
        choice = _name(choice, _PATH)
    if choice not in MODES and choice not in names:
        known = f"{', '.join(map(repr, MODES))} or one of {list(names)}"
        near = did_you_mean(choice, (*MODES, *names)) if isinstance(choice, str) else ""
        raise InvalidConstraint(f"{_PATH}: expected {known}, got {shown(choice)}{near}")
    if choice == "required" and not names:
        raise InvalidConstraint("ToolCalls: choice 'required' needs at least one tool, got none")
    return choice, tuple(names)


def _allowed(choice: Mapping[str, Any], names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    path = f"{_PATH}.allowed_tools"
    if "mode" in choice and "allowed_tools" not in choice:
        choice = {"type": "allowed_tools", "allowed_tools": {key: choice[key] for key in choice if key != "type"}}
    inner = choice.get("allowed_tools")
    if not isinstance(inner, Mapping):
        raise InvalidConstraint(f'{path}: expected {{"mode": ..., "tools": [...]}}, got {shown(inner)}')
    expect_keys(choice, ("type", "allowed_tools"), _PATH)
    expect_keys(inner, ("mode", "tools"), path)
    mode, tools = inner.get("mode"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidConstraint(f"{path}.mode: expected 'auto' or 'required', got {shown(mode)}")
    if not isinstance(tools, (list, tuple)) or not tools:
        raise InvalidConstraint(f"{path}.tools: expected a list of at least one tool, got {shown(tools)}")
    allowed = set()
    for index, tool in enumerate(tools):
        name = _name(tool, f"{path}.tools[{index}]")
        if name not in names:
            expected = f"expected one of {list(names)}, got {name!r}{did_you_mean(name, names)}"
            raise InvalidConstraint(f"{path}.tools[{index}].function.name: {expected}")
        allowed.add(name)
    return mode, tuple(name for name in names if name in allowed)


def _name(tool: Any, path: str) -> str:
    function = _nested(tool).get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        got = shown(dict(tool) if isinstance(tool, Mapping) else tool)
        raise InvalidConstraint(f'{path}: expected {{"type": "function", "function": {{"name": ...}}}}, got {got}')
    return str(function["name"])
