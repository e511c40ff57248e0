"""A forward pass of one token for each row, over tensors with fixed addresses, for a static cache."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import StaticCache
from transformers.cache_utils import StaticLayer

from ..compat import cache_in


class StaticForward:
    """Runs the model on one more token of every row; the device counts cache length and positions.

    Args:
        model: a decoder.
        kwargs: for ``model.prepare_inputs_for_generation`` after the prompts, as in generate().
        device: where ``input_ids`` are.
    """

    def __init__(self, model: Any, kwargs: dict[str, Any], device: torch.device):
        self._model = model
        self._device = device
        self._positions = kwargs["position_ids"][..., -1:].clone()  # of the previous token
        self._kwargs = {**kwargs, "position_ids": self._positions, "attention_mask": _whole_mask(kwargs)}
        if "logits_to_keep" in kwargs:
            self._kwargs["logits_to_keep"] = 1

    @staticmethod
    def why_not(model: Any, kwargs: dict[str, Any], cache: Any) -> str:
        """Why it cannot run a call; empty if it can."""
        if type(cache) is not StaticCache or any(type(layer) is not StaticLayer for layer in cache.layers):
            return "the cache is not static in every layer"  # sliding windows count in Python
        if model.config.is_encoder_decoder or kwargs.get("position_ids") is None:
            return "the model takes no positions"
        if any(kwargs.get(name) is not None for name in ("token_type_ids", "mm_token_type_ids")):
            return "each token needs a token type"
        return ""

    def __call__(self, tokens: Tensor) -> Tensor:
        """Run tokens (rows, 1) int64; returns (rows, vocab) float32 logits after them, a new tensor."""
        self._positions.add_(1)
        inputs = self._model.prepare_inputs_for_generation(tokens, next_sequence_length=1, **self._kwargs)
        logits: Tensor = self._model(**inputs, return_dict=True).logits[:, -1]
        return logits.to(copy=True, dtype=torch.float32, device=self._device)


def _whole_mask(kwargs: dict[str, Any]) -> Tensor | None:
    """(rows, slots of the cache) int64: the prompts' padding alone; what is still to come is not looked at anyway."""
    mask = kwargs.get("attention_mask")
    if mask is None:
        return None
    whole: Tensor = mask.new_ones(len(mask), cache_in(kwargs).layers[0].max_cache_len)
    whole[:, : mask.shape[1]] = mask
    return whole
