"""What the layers of a cache allow: blocks of tokens, holes between them, or one token a pass."""

from __future__ import annotations

import inspect
from typing import Any

from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
    EncoderDecoderCache,
    StaticCache,
)

from ..drafts.full_attention import other_layers


def takes_holes(model: Any, cache: Any, position_ids: Tensor | None) -> bool:
    """Whether every layer attends to all slots, given only the attention mask and explicit positions.

    Args:
        model: a decoder of transformers.
        cache: of the call.
        position_ids: of the prompts, if generate() passes them.
    """
    return (
        type(cache) is DynamicCache
        and all(type(layer) is DynamicLayer for layer in cache.layers)
        and not other_layers(model)
        and position_ids is not None
        and position_ids.ndim == 2
        and "position_ids" in inspect.signature(model.forward).parameters
    )


def counts_slots(model: Any) -> bool:
    """Whether a model's masks depend on how many slots there are, and not only on what they hold.

    Doge keeps the best few slots of each pass; GIT shifts every mask by the slots of an image.
    """
    config = model.config.get_text_config(decoder=True)
    return bool(getattr(config, "keep_window_size", 0)) or model.config.model_type == "git"


def grows(cache: Any) -> bool:
    """Whether every layer keeps only keys and values of tokens, and grows with them."""
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    return type(cache) is DynamicCache and all(
        type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in cache.layers
    )


def is_empty(cache: Any) -> bool:
    """Whether a cache holds no tokens; False for a model's own kind of state, which does not tell."""
    if not isinstance(cache, Cache):
        return False
    try:
        return cache.get_seq_length() == 0
    except ValueError:  # no layer counts tokens, for instance in Mamba
        return not cache.has_previous_state()


def cache_reason(cache: Any) -> str:
    """What is unusual about a cache, so that it may not keep every token as it is; empty for the usual kinds."""
    if isinstance(cache, EncoderDecoderCache):
        return cache_reason(cache.self_attention_cache) or cache_reason(cache.cross_attention_cache)
    if not isinstance(cache, Cache):
        return ""  # a model's own state, which it makes and updates in every pass
    if type(cache) not in (Cache, DynamicCache, StaticCache):
        return f"its cache is a {type(cache).__name__}"
    if cache.offloading:
        return "its cache is offloaded"
    kinds = {type(layer) for layer in cache.layers}
    return next((f"its cache has a {kind.__name__}" for kind in kinds if _may_lose(kind)), "")


def _may_lose(kind: type) -> bool:
    """Whether a layer keeps less than it is given, or is not of transformers."""
    return kind.__module__ != Cache.__module__ or any("Quantized" in base.__name__ for base in kind.__mro__)
