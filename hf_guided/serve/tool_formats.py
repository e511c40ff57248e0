"""How a model writes tool calls, and how transformers' server reads them back."""

from __future__ import annotations

import copy
import re
from types import SimpleNamespace
from typing import Any

from transformers.cli.serving.utils import get_response_template

from .refusals import RequestRefused

DEFAULT = "qwen_3"
# For models that transformers reads the calls of by their type: the format that this type writes.
_BY_TYPE = {"qwen2": "qwen_3", "qwen3_5": "qwen_3_5", "qwen3": "qwen_3", "gemma4": "gemma_4"}
# Of one text only; templates that transformers has serve the formats above.
_TAGGED = {"qwen_3": ("<tool_call>", "</tool_call>")}


def format_for(model: Any, asked: str) -> str:
    """The format of ``ToolCalls`` for a model.

    Args:
        model: a transformers model.
        asked: "auto", or the format that the server was told.
    """
    if asked != "auto":
        return asked
    kind = str(model.config.model_type)
    prefixes = sorted((prefix for prefix in _BY_TYPE if kind.startswith(prefix)), key=len)
    return _BY_TYPE[prefixes[-1]] if prefixes else DEFAULT


def template_for(processor: Any, model: Any, tool_format: str) -> dict[str, Any]:
    """What transformers takes an answer with tool calls apart by: its own template, or one for the format.

    Args:
        processor: the model's processor or tokenizer.
        model: the model.
        tool_format: how it writes its calls.

    Raises:
        RequestRefused: neither is there, so that the calls would be handed out as text.
    """
    own = get_response_template(processor, model)
    if own is not None:
        return dict(own)
    if tool_format not in _TAGGED:
        raise RequestRefused(
            f"tool calls in the format {tool_format!r} cannot be read back for a model of the type "
            f"{model.config.model_type!r}; start the server with --tool-format {DEFAULT}, or give the tokenizer a "
            "response_template",
            code="unsupported_tools",
            param="tools",
        )
    begin, end = _TAGGED[tool_format]
    specials = getattr(processor, "tokenizer", processor).all_special_tokens
    return {
        "defaults": {"role": "assistant"},
        "start_anchor_pattern": r"\Z",  # everything behind the prompt
        "fields": {
            "tool_calls": {
                "open_pattern": rf"\s*{re.escape(begin)}",
                "close": end,
                "repeats": True,
                "content": "json",
                "transform": {"type": "function", "function": "{content}"},
            },
            "content": {"close_pattern": rf"\s*(?:{'|'.join(map(re.escape, specials))})", "content": "text"},
        },
    }


def reading_with(processor: Any, template: dict[str, Any] | None) -> Any:
    """A processor like this one, whose answers transformers takes apart by a template; None: leaves as they are."""
    reader = copy.copy(processor)
    tokenizer = getattr(processor, "tokenizer", None)
    if tokenizer is None:
        reader.response_template = template
    else:
        reader.tokenizer = copy.copy(tokenizer)
        reader.tokenizer.response_template = template
    return reader


def config_of_no_type(config: Any) -> Any:
    """A stand-in for a config by which transformers finds no template of its own."""
    return SimpleNamespace(**{**vars(config), "model_type": ""})
