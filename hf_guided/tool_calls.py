"""Tool calls as a constraint: which tools there are, and how a model writes down that it calls one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from . import json_text
from .constraints import Constraint, StructuralTag, set_fields
from .errors import InvalidConstraint
from .json_text import shorten

TOOL_WHITESPACE = 20  # white space characters in a row inside a call's arguments; without a bound it may never end


@dataclass(frozen=True, init=False, repr=False)
class ToolCalls(Constraint):
    """Text in which every tool call names a given tool and has arguments valid against its schema.

    Args:
        tools: OpenAI tool dicts (``{"type": "function", "function": {...}}``) or documented Python functions, as
            `apply_chat_template(tools=...)` takes them.
        format: how the model writes its calls: a format name of xgrammar's `get_model_structural_tag`.
        choice: "auto" (text or calls), "required" (at least one call), "none" (no calls), or the name of one tool
            (also as ``{"type": "function", "function": {"name": ...}}``).
        parallel: whether there may be more than one call.

    Raises:
        InvalidConstraint: a tool that cannot be described, no tools where one is needed, or an unknown choice.
    """

    kind: ClassVar[str] = "tool_calls"

    tools_json: str
    format: str
    choice: str
    parallel: bool

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any] | Callable[..., Any]],
        format: str = "qwen_3",
        choice: str | Mapping[str, Any] = "auto",
        parallel: bool = True,
    ) -> None:
        if not isinstance(tools, (list, tuple)):
            raise InvalidConstraint(f"ToolCalls: expected a list of tools, got {type(tools).__name__}")
        dicts = [_tool_dict(tool, index) for index, tool in enumerate(tools)]
        names = [tool["function"]["name"] for tool in dicts]
        if len(set(names)) < len(names):
            raise InvalidConstraint(f"ToolCalls: expected every tool to have its own name, got {names}")
        if isinstance(choice, Mapping):
            choice = _chosen_name(choice)
        if choice not in ("auto", "required", "none") and choice not in names:
            raise InvalidConstraint(
                f"ToolCalls.choice: expected 'auto', 'required', 'none' or one of {names}, got {choice!r}"
            )
        if choice == "required" and not names:
            raise InvalidConstraint("ToolCalls: choice 'required' needs at least one tool, got none")
        set_fields(
            self, tools_json=json_text.dumps(dicts, "tools"), format=str(format), choice=choice, parallel=bool(parallel)
        )

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools as OpenAI dicts, a fresh copy."""
        return json.loads(self.tools_json)  # type: ignore[no-any-return]

    def structural_tag(self) -> StructuralTag:
        """The same language as a structural tag.

        Raises:
            InvalidConstraint: an unknown format, or a tool the format cannot write.
        """
        from xgrammar import get_model_structural_tag

        choice: Any = self.choice
        if choice not in ("auto", "required", "none"):
            choice = {"type": "function", "function": {"name": choice}}
        try:
            tag = get_model_structural_tag(
                self.format,
                # Without "strict" the library would drop the schema of a tool that says "strict": false.
                [{**tool, "function": {**tool["function"], "strict": True}} for tool in self.tools],
                choice,
                reasoning="disabled",  # it has a gate of its own, in front of every constraint
                max_whitespace_cnt=TOOL_WHITESPACE,
                parallel_tool_calls=self.parallel,
            )
        except ValueError as error:
            raise InvalidConstraint(f"ToolCalls: {error}") from None
        return StructuralTag(tag)

    def check(self) -> None:
        """Check that the format exists and can write these tools; raises InvalidConstraint."""
        self.structural_tag()

    def _identity(self) -> Sequence[Any]:
        return self.tools_json, self.format, self.choice, self.parallel

    def __repr__(self) -> str:
        names = [tool["function"]["name"] for tool in self.tools]
        return f"ToolCalls({names}, format={self.format!r}, choice={self.choice!r}, parallel={self.parallel})"


def _tool_dict(tool: Any, index: int) -> dict[str, Any]:
    where = f"tools[{index}]"
    if callable(tool):
        from transformers.utils import get_json_schema

        try:
            return get_json_schema(tool)  # type: ignore[no-any-return]
        except Exception as error:  # a docstring or type hint it cannot read; the reasons have no common class
            raise InvalidConstraint(f"{where}: {getattr(tool, '__name__', tool)!r} is no tool: {error}") from error
    if not isinstance(tool, Mapping):
        raise InvalidConstraint(f"{where}: expected a tool dict or a function, got {tool!r}")
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, Mapping):
        raise InvalidConstraint(
            f'{where}: expected {{"type": "function", "function": {{...}}}}, got {shorten(str(dict(tool)))}'
        )
    if not isinstance(function.get("name"), str) or not function["name"]:
        raise InvalidConstraint(f"{where}.function.name: expected a name, got {function.get('name')!r}")
    if not isinstance(function.get("parameters", {}), (dict, type(None))):
        raise InvalidConstraint(f"{where}.function.parameters: expected a schema, got {function['parameters']!r}")
    return {**tool, "function": dict(function)}


def _chosen_name(choice: Mapping[str, Any]) -> str:
    function = choice.get("function")
    if choice.get("type") != "function" or not isinstance(function, Mapping) or "name" not in function:
        raise InvalidConstraint(
            f'ToolCalls.choice: expected {{"type": "function", "function": {{"name": ...}}}}, got {dict(choice)!r}'
        )
    return str(function["name"])
