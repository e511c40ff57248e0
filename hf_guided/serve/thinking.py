"""Whether a model thinks before it answers, and between which markers."""

from __future__ import annotations

from typing import Any

from transformers.cli.serving.utils import get_response_template

from ..session.reasoning import Reasoning

_USUAL = Reasoning()
_FIELDS = ("reasoning_content", "thinking", "reasoning")  # names of the thinking in response schemas


def reasoning_of(processor: Any, model: Any, max_tokens: int | None) -> Reasoning | None:
    """How a model thinks, by the response schema that transformers reads its answers with, or by its chat template.

    A prompt that already holds the end marker leaves nothing to think, so a template that is set not to let the model
    think needs nothing more.

    Args:
        processor: the model's processor or tokenizer.
        model: the model.
        max_tokens: of thinking; None: no limit but that of the whole answer.

    Returns:
        None if it does not think.
    """
    fields = (get_response_template(processor, model) or {}).get("fields", {})
    for name in _FIELDS:
        field = fields.get(name, {})
        if isinstance(field.get("open"), str) and isinstance(field.get("close"), str):
            template = _chat_template(processor)
            # The same fields describe a family, of which some models do not think: their templates do not mention
            # thinking.
            if template is None or field["close"] in template:
                return Reasoning(field["open"], field["close"], max_tokens)
    template = _chat_template(processor)
    if template is not None and _USUAL.start in template and _USUAL.end in template:
        return Reasoning(max_tokens=max_tokens)
    return None


def _chat_template(processor: Any) -> str | None:
    try:
        return str(getattr(processor, "tokenizer", processor).get_chat_template())
    except (AttributeError, NotImplementedError, ValueError):
        return None
