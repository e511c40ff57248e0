"""OpenAI's forms of ``tool_choice``, as a mode and the names of the tools that may be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InvalidConstraint
from .json_text import shorten
from .suggestions import did_you_mean

MODES = ("auto", "required", "none")
_PATH = "ToolCalls.choice"


def read_choice(choice: Any, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The mode, or the name of the one tool to call; and the names of the tools that may be called, in their order.

    Args:
        choice: a mode, a name, ``{"type": "function", "function": {"name": ...}}``, or ``{"type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required", "tools": [{"type": "function", "function": ...}, ...]}}``.
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
        raise InvalidConstraint(f"{_PATH}: expected {known}, got {choice!r}{near}")
    if choice == "required" and not names:
        raise InvalidConstraint("ToolCalls: choice 'required' needs at least one tool, got none")
    return choice, tuple(names)


def _allowed(choice: Mapping[str, Any], names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    path = f"{_PATH}.allowed_tools"
    inner = choice.get("allowed_tools")
    if not isinstance(inner, Mapping):
        raise InvalidConstraint(f'{path}: expected {{"mode": ..., "tools": [...]}}, got {shorten(repr(inner))[1:-1]}')
    _expect_keys(choice, ("type", "allowed_tools"), _PATH)
    _expect_keys(inner, ("mode", "tools"), path)
    mode, tools = inner.get("mode"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise InvalidConstraint(f"{path}.mode: expected 'auto' or 'required', got {mode!r}")
    if not isinstance(tools, (list, tuple)) or not tools:
        raise InvalidConstraint(f"{path}.tools: expected a list of at least one tool, got {tools!r}")
    allowed = set()
    for index, tool in enumerate(tools):
        name = _name(tool, f"{path}.tools[{index}]")
        if name not in names:
            expected = f"expected one of {list(names)}, got {name!r}{did_you_mean(name, names)}"
            raise InvalidConstraint(f"{path}.tools[{index}].function.name: {expected}")
        allowed.add(name)
    return mode, tuple(name for name in names if name in allowed)


def _name(tool: Any, path: str) -> str:
    function = tool.get("function") if isinstance(tool, Mapping) and tool.get("type") == "function" else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        shown = shorten(repr(dict(tool) if isinstance(tool, Mapping) else tool))[1:-1]
        raise InvalidConstraint(f'{path}: expected {{"type": "function", "function": {{"name": ...}}}}, got {shown}')
    return str(function["name"])


def _expect_keys(value: Mapping[str, Any], known: Sequence[str], path: str) -> None:
    for key in value:
        if key not in known:
            near = did_you_mean(str(key), known)
            raise InvalidConstraint(f"{path}: expected the keys {', '.join(known)}, got {key!r}{near}")
