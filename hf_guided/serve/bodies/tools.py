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
    if not isinstance(tool, dict) or tool.get("type") != "function" or "function" in tool:
        return tool
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def flat(tool: dict[str, Any]) -> dict[str, Any]:
    """A tool as answers of /v1/responses have it."""
    function = nested(tool)["function"]
    return {"type": "function", "parameters": None, "strict": None, **function}


Tool = Annotated[NestedTool, BeforeValidator(nested)]
