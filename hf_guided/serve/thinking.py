"""Whether a model thinks before it answers, and between which markers."""

from __future__ import annotations

from typing import Any

from ..session.reasoning import Reasoning

_MARKERS = (("<think>", "</think>"), ("<|channel>thought\n", "<channel|>"))
_FIELDS = ("reasoning_content", "thinking", "reasoning")  # names of the thinking in response templates


def reasoning_of(tokenizer: Any, max_tokens: int | None) -> Reasoning | None:
    """How a model thinks, by the response template that its tokenizer comes with, or by its chat template.

    A prompt that already holds the end marker leaves nothing to think, so a template that is set not to let the model
    think needs nothing more.

    Args:
        tokenizer: of the model.
        max_tokens: of thinking; None: no limit but that of the whole answer.

    Returns:
        None if it does not think.
    """
    template = _chat_template(tokenizer) or ""
    fields = (getattr(tokenizer, "response_template", None) or {}).get("fields", {})
    declared = [fields[name] for name in _FIELDS if name in fields]
    markers = [(field.get("open"), field.get("close")) for field in declared]
    for start, end in [*markers, *_MARKERS]:
        # A response template describes a family, of which some models do not think: their templates do not mention it.
        if isinstance(start, str) and isinstance(end, str) and end in template:
            return Reasoning(start, end, max_tokens)
    return None


def _chat_template(tokenizer: Any) -> str | None:
    try:
        return str(tokenizer.get_chat_template())
    except (AttributeError, NotImplementedError, ValueError):
        return None
