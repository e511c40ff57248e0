"""Tools, nested as in chat completions or flat as in /v1/responses."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from .parts import ANY, Part


class Function(Part):
    """What a model may call."""

    other_fields = {
        "defer_loading": (False,),
        "allowed_callers": (["direct"],),
        "async": (False,),
        "output_schema": (),
    }
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NestedTool(Part):
    """The form that chat templates read."""

    other_fields = {"defer_loading": (False,), "cache_control": ANY}
    type: Literal["function"]
    function: Function


def nested(tool: Any) -> Any:
    """A flat tool in the nested form; everything else as it is."""
    if not isinstance(tool, dict) or "function" in tool:
        return tool
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": tool.get("type"), "function": function}


def for_template(tool: NestedTool) -> dict[str, Any]:
    """A tool in the nested form, with what is given."""
    return {"type": "function", "function": _given(tool.function)}


def for_answer(tool: NestedTool) -> dict[str, Any]:
    """A tool as answers of /v1/responses repeat it."""
    return {"type": "function", "parameters": None, "strict": None, **_given(tool.function)}


def _given(function: Function) -> dict[str, Any]:
    return {name: value for name, value in function if value is not None}


Tool = Annotated[NestedTool, BeforeValidator(nested)]
