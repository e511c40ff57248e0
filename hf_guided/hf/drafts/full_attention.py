"""Which layers of a model do not look at all tokens so far: those count slots of the cache, and take no holes."""

from __future__ import annotations

from typing import Any


def other_layers(model: Any) -> list[str]:
    """Names of the kinds of layers that are no full attention; none where rows may have holes in the cache.

    Args:
        model: a decoder of transformers. Its configuration decides: a cache that its caller made need not know.
    """
    from transformers import DynamicCache
    from transformers.cache_utils import DynamicLayer

    config = model.config.get_text_config(decoder=True)
    found = {type(layer).__name__ for layer in DynamicCache(config=config).layers if type(layer) is not DynamicLayer}
    # GPT-Neo's window is in its attention, and unknown to caches.
    found |= {kind for kind in getattr(config, "attention_layers", ()) if kind != "global"}
    return sorted(found)
