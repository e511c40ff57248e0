"""Masks of structured generation on an NVIDIA GPU: scores are copied, with -inf for forbidden tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ._ops import add_op_namespace_prefix, ops


def apply_masks(
    scores: Tensor,
    masks: Tensor,
    slots: Tensor,
    own: Tensor | None = None,
    stops: Tensor | None = None,
    log_sums: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A copy of the scores with -inf for every token that the row's mask forbids.

    Args:
        scores: (rows, vocab) float32 | float16 | bfloat16 on a CUDA device, any strides; read only.
        masks: (masks, words) int32, contiguous; bit ``j % 32`` of word ``j // 32`` allows token j. A mask that is
            shorter than a row forbids the tokens beyond its end; the rest of a longer one is not read.
        slots: (>= rows,) int32, contiguous: s >= 0 masks the row by ``masks[s]``; -1 leaves it as it is, bit for bit;
            s <= -2 masks it by ``own[-2 - s]``. Their range is not checked.
        own: (any, words) int32, contiguous; None if no slot is below -1.
        stops: (any,) int64, contiguous: the tokens that a masked row without an allowed score above -inf can only end
            with: they get -1e4, and the others -inf, also where the scores are NaN. None leaves such rows as they are
            masked.
        log_sums: (rows, 2) float32, contiguous, written: the log-sum-exp of each row before and after its mask. The
            difference is the logarithm of the probability that the mask leaves. None leaves it out.

    Returns:
        A new contiguous tensor like ``scores``; (rows,) int32, 1 for rows that are not masked or have an allowed score
        above -inf (NaN is not above it), else 0.

    Raises:
        RuntimeError: another shape, dtype, device or stride.

    Streams: runs on the current stream and never waits for the device; can be captured in a CUDA graph.
    """
    return ops.apply_masks(scores, masks, slots, own, stops, log_sums)


@torch.library.register_fake(add_op_namespace_prefix("apply_masks"))
def _apply_masks_fake(scores, masks, slots, own=None, stops=None, log_sums=None):
    return scores.new_empty(scores.shape), scores.new_empty(scores.shape[:1], dtype=torch.int32)


__all__ = ["apply_masks"]
