"""The tokenizer inside a processor of transformers."""

from __future__ import annotations

from typing import Any


def tokenizer_of(templates: Any) -> Any:
    """The tokenizer of a processor; a tokenizer is its own."""
    from transformers import PreTrainedTokenizerBase

    # The server's stand-in for a tokenizer has an attribute of this name too: itself.
    return templates if isinstance(templates, PreTrainedTokenizerBase) else getattr(templates, "tokenizer", templates)
