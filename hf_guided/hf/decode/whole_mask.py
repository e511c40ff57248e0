"""Attention masks as the layers of a model take them, so that transformers does not wait for the device.

Given a mask with two dimensions, transformers looks for padding in it before it makes these.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import create_causal_mask


def whole_mask(model: Any, mask: Tensor, width: int) -> Tensor:
    """The mask that transformers would make if it found padding: a token attends to itself and to all earlier ones.

    Args:
        model: a decoder with full attention in every layer.
        mask: (rows, slots) int64, 0 for slots that no token attends to.
        width: the number of slots, from the last on, whose tokens run now.

    Returns:
        (rows, 1, width, slots), bool or floating point; ``mask`` itself if the model needs this one.
    """
    dtype = _dtype(model)
    if dtype is None:
        return mask
    whole = mask.bool()[:, None, None, :]  # (rows, 1, 1, slots)
    if width > 1:
        slots = torch.arange(whole.shape[-1], device=whole.device)
        whole = whole & (slots <= slots[-width:, None])  # (rows, 1, width, slots)
    if dtype is torch.bool:
        return whole
    return torch.where(whole, torch.zeros((), dtype=dtype, device=whole.device), torch.finfo(dtype).min)


def _dtype(model: Any) -> torch.dtype | None:
    """The type of a mask that the model takes as it is; None if it takes none.

    The function of transformers that makes masks passes on a finished one; but biases by distance are computed from
    masks with two dimensions.
    """
    module = sys.modules[type(model.base_model).__module__]
    if getattr(module, "create_causal_mask", None) is not create_causal_mask:
        return None
    if getattr(model.config.get_text_config(), "alibi", False):
        return None
    dtypes: dict[str, torch.dtype] = {"sdpa": torch.bool, "eager": model.dtype}
    return dtypes.get(model.config._attn_implementation)
