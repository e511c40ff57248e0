"""Leaves a row's best tokens: temperature, top-k, top-p and min-p with the meaning of transformers' warpers.

The k highest scores determine each filter's threshold; every token is compared with it, and ``masked_sample`` picks
among the remaining ones. So exactly the tokens that the warpers leave may come, equal scores included, and a token's
noise is the same as without filters. No step reads numbers from the device, and all shapes follow from the arguments'
shapes: a CUDA graph can capture it.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .kernels import Kernels, TorchKernels

_NEVER = float("-inf")


def filtered(
    logits: Tensor,
    masks: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    *,
    top_k: int | None = 50,
    top_p: float | None = None,
    min_p: float | None = None,
    kernels: Kernels | None = None,
) -> Tensor:
    """Write -inf over the logits that the filters remove.

    Args:
        logits: (rows, vocab) float32 | float16 | bfloat16; read only.
        masks: (slots, words) int32.
        row_slots: (rows,) int32, or None; as for ``masked_sample``.
        temperature: (rows,) float32; 0 is greedy, and the filters ignore such a row.
        top_k: the k best tokens, and all with the score of the last of them; None or 0: all.
        top_p: the fewest best tokens with at least this probability together; if only some of several equal ones are
            needed, those with the higher ids (transformers leaves that to its sort). None or 1: all.
        min_p: tokens with at least this share of the best one's probability; None or 0: all.
        kernels: apply masks; None: plain torch.

    Returns:
        The logits for ``masked_sample``: a copy in float32, or the argument if there is no filter.

    Streams: runs on the current stream, never waits for the host.
    """
    kernels = TorchKernels() if kernels is None else kernels
    by_rank = top_p is not None and top_p < 1.0
    if top_k or by_rank or min_p:
        logits = logits.to(torch.float32, copy=True, memory_format=torch.contiguous_format)
        kernels.apply_slots_(logits, masks, row_slots)
        heat = temperature.unsqueeze(1)
        warm = logits / torch.where(heat > 0, heat, 1.0)
        warm.nan_to_num_(nan=_NEVER, posinf=-_NEVER, neginf=_NEVER)  # NaN would count as the maximum
        limit = min(top_k, warm.shape[1]) if top_k else None
        best = (
            warm.topk(limit).values if limit else warm.sort(descending=True).values if by_rank else warm.amax(1, True)
        )
        floor = best[:, -1:] if limit else torch.full_like(best[:, :1], _NEVER)
        may = _most_probable(warm, best, floor, top_p) if top_p is not None and by_rank else warm >= floor
        if min_p:
            may &= warm >= best[:, :1] + math.log(min_p)
        logits.masked_fill_(~may & (heat > 0), _NEVER)
    return logits


def _most_probable(scores: Tensor, best: Tensor, floor: Tensor, top_p: float) -> Tensor:
    """(rows, vocab) bool: the tokens that top-p leaves among the scores at or above the floor.

    Args:
        scores: (rows, vocab) float32, without NaN.
        best: (rows, k) float32, the highest of them in descending order.
        floor: (rows, 1) float32, the last of ``best``, or -inf if ``best`` has all scores. More scores may equal it
            than ``best`` has room for.
        top_p: from 0 to less than 1.
    """
    # A token stays while those ranked above it have less than top_p together. An infinite score outweighs all others.
    weights = torch.where(best == best[:, :1], 1.0, (best - best[:, :1]).double().exp())  # (rows, k)
    upto = weights.cumsum(1)
    last = weights[:, -1:]
    more = (scores == floor).sum(1, True) - (best == floor).sum(1, True)  # (rows, 1) equals of the last, not in best
    wanted = top_p * (upto[:, -1:] + more * last)
    inside = (upto - weights < wanted).sum(1, True).clamp(min=1)
    # Of the equals outside, the n-th stays if upto + n * last < wanted; if `last` is 0, none does.
    outside = torch.where(last > 0, ((wanted - upto[:, -1:]) / last).ceil(), 0.0).clamp(min=0).minimum(more).long()
    cut = best.gather(1, inside - 1)
    equals = scores == cut
    left = inside + outside - (best > cut).sum(1, True)  # of those that equal the cut, how many stay
    rank = equals.sum(1, True) - equals.cumsum(1)  # equals with a higher id
    return (scores > cut) | (equals & (rank < left))
