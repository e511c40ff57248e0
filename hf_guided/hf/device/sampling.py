"""Picks allowed tokens in plain torch: greedy, or the maximum of logit / temperature + Gumbel noise.

The noise is that of philox.py: a row draws the same in any batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..philox import gumbel
from .reference import allowed_tokens


def masked_sample(
    logits: Tensor,
    masks: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    seed: Tensor | None,
    position: Tensor,
) -> Tensor:
    """Pick every row's next token.

    Args:
        logits: (rows, vocab) floating point; read only.
        masks: (slots, words) int32.
        row_slots: (rows,) int32, the slot of each row, or as for ``apply_slots_``; None: one to one.
        temperature: (rows,) float32; 0 is greedy, with the lowest id among equals.
        seed: (rows,) int64; None if all temperatures are 0, so that no row draws.
        position: (rows,) int32, which distinguishes the draws of a row.

    Returns:
        (rows,) int64; -1 if no allowed score is above -inf. NaN is never picked.
    """
    scores = logits.float()
    may = allowed_tokens(masks, row_slots, *logits.shape) & (scores > float("-inf"))
    if seed is not None:  # noise for a whole vocabulary takes fifty times as long as a greedy choice
        heat = temperature.unsqueeze(1)
        noisy = scores / heat + gumbel(seed, position, torch.arange(logits.shape[1], device=logits.device))
        # A score that overflows to -inf must still be above the scores of forbidden tokens.
        scores = torch.where(heat > 0, noisy, scores).clamp(min=torch.finfo(torch.float32).min)
    best = torch.where(may, scores, float("-inf")).argmax(1)
    return torch.where(may.any(1), best, -1)
