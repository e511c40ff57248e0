"""Finds layers that do not attend to all earlier tokens: those count slots of the cache, so rows cannot have holes."""

from __future__ import annotations

from typing import Any


def other_layers(model: Any) -> list[str]:
    """Names of the kinds of layers without full attention; empty if rows may have holes in the cache.

    Args:
        model: a decoder of transformers. Its configuration decides: a caller's own cache need not know.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    config = model.config.get_text_config(decoder=True)
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config).layers if type(layer) is not DynamicLayer}
    # GPT-Neo's window is in its attention, and unknown to caches.
    kinds |= {kind for kind in getattr(config, "attention_layers", ()) if kind != "global"}
    return sorted(kinds)
