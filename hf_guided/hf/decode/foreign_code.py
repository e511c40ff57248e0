"""Code that runs inside a model's passes without belonging to the model: steering vectors, patched layers."""

from __future__ import annotations

from typing import Any

from .input_preparation import decoder_of


def foreign_code_reason(model: Any) -> str:
    """What runs inside the model's passes without belonging to it, such as a steering vector; empty if nothing does.

    It may treat the last token of a pass otherwise than the others. The whole model, or its decoder, may have such
    code: there it sees what goes in and out, as profilers and counters do.
    """
    outer = (model, model.base_model, decoder_of(model))
    for name, module in model.named_modules():
        if any(module is part for part in outer):
            continue
        if model.training and getattr(module, "gradient_checkpointing", False):
            return f"{name} computes activations again (gradient checkpointing), and keeps no cache"
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        if not all(map(_is_transformers, hooks)):
            return f"{name} has hooks"
        forward = vars(module).get("forward")
        if forward is not None and not (_is_bound(forward, module) or _is_transformers(forward)):
            return f"{name}.forward was replaced"
    return ""


def _is_bound(forward: Any, module: Any) -> bool:
    """Whether a replaced ``forward`` only moves weights (accelerate), or is a kernel bound to its module."""
    return hasattr(module, "_hf_hook") or getattr(forward, "__self__", None) is module


def _is_transformers(function: Any) -> bool:
    """Whether a function is written in transformers: it shares layers between processes, or keeps hidden states.

    Its globals say so: ``__module__`` is that of the wrapped function where ``functools.wraps`` was used.
    """
    return str(getattr(function, "__globals__", {}).get("__name__", "")).startswith("transformers.")
