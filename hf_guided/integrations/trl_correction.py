"""Importance weights for a policy that is free, and whose completions were sampled under masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument


def importance_ratio(policy: Tensor, sampled: Tensor, mask: Tensor, args: Any) -> Tensor:
    """How much less likely the policy writes a completion than the sampler, as TRL computes it for vLLM.

    A mask only ever raises the probability of the tokens that it allows. So without top-k and the like, no ratio is
    above 1. It is the probability that the free policy gives to all allowed tokens together: at each token, or
    multiplied over the completion.

    Args:
        policy: (rows, tokens), the natural logarithms of the policy's probabilities, without gradient.
        sampled: (rows, tokens), those with which the tokens were sampled.
        mask: (rows, tokens), 1 for the tokens of a completion, 0 for padding.
        args: a ``GRPOConfig``: its ``vllm_importance_sampling_mode``, ``..._clip_min`` and ``..._clip_max``.

    Returns:
        (rows, tokens), or (rows, 1) for the modes of sequences.
    """
    level, _, treatment = args.vllm_importance_sampling_mode.partition("_")
    if level not in ("token", "sequence") or treatment not in ("truncate", "mask"):
        raise InvalidArgument(
            "vllm_importance_sampling_mode: expected token_truncate, token_mask, sequence_truncate or sequence_mask, "
            f"got {args.vllm_importance_sampling_mode!r}",
            name="vllm_importance_sampling_mode",
        )
    difference = (policy - sampled) * mask
    ratio = (difference.sum(-1, keepdim=True) if level == "sequence" else difference).exp()
    least, most = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
    least, most = 0.0 if least is None else least, torch.inf if most is None else most
    if treatment == "truncate":
        return ratio.clamp(least, most)
    return ratio.masked_fill((ratio < least) | (ratio > most), 0.0)
