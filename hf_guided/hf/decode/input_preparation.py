"""Who prepares the inputs of a model's forward pass: transformers' common code, the model's class, or an adapter."""

from __future__ import annotations

import sys
from typing import Any

from transformers import GenerationMixin

from ..compat import adds_virtual_tokens

_COMMON = ("prepare_inputs_for_generation", "_update_model_kwargs_for_generation", "_prefill")


def is_common(model: Any) -> bool:
    """Whether transformers' common code prepares the inputs and masks of a model.

    That code is known to give several tokens of one pass the positions and masks that they have one by one.
    """
    return (
        type(model).__module__.startswith("transformers.")
        and preparation(model) == tuple(getattr(GenerationMixin, name) for name in _COMMON)
        and hasattr(sys.modules[type(decoder_of(model)).__module__], "create_causal_mask")
    )


def preparation(model: Any) -> tuple[Any, ...]:
    """The functions that prepare the inputs of the model's passes."""
    return tuple(_function(model, name) for name in _COMMON)


def decoder_of(model: Any) -> Any:
    """The decoder inside a model with a language head, or with an encoder."""
    return model.get_decoder() if hasattr(model, "get_decoder") else model.base_model


def has_virtual_tokens(model: Any) -> bool:
    """Whether an adapter of PEFT adds tokens that only the model sees (prompt tuning, prefix tuning).

    They shift positions, and PEFT cuts every pass after the first down to its last token.
    """
    return adds_virtual_tokens(_adapter(model))


def _adapter(model: Any) -> Any:
    """The wrapper of PEFT that prepares the inputs of a model inside it during ``generate``; None if there is none."""
    owner = getattr(model.prepare_inputs_for_generation, "__self__", None)
    return owner if hasattr(owner, "active_peft_config") else None


def _function(model: Any, name: str) -> Any:
    """The function behind a method of the model; of its class, where an adapter stands in between."""
    method = getattr(model, name)
    if name == "prepare_inputs_for_generation" and (adapter := _adapter(model)) is not None:
        method = adapter.base_model_prepare_inputs_for_generation
    return getattr(method, "__func__", method)
