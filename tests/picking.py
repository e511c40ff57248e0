"""Filters and the choice after them, as the device lane takes its tokens."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from hf_guided.hf.device.candidates import filtered
from hf_guided.hf.device.kernels import Kernels, TorchKernels


def pick(
    logits: Tensor,
    masks: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    seed: Tensor | None,
    position: Tensor,
    *,
    kernels: Kernels | None = None,
    **filters: Any,
) -> Tensor:
    """(rows,) int64, the tokens; filters as for ``candidates.filtered``."""
    kernels = TorchKernels() if kernels is None else kernels
    scores = filtered(logits, masks, row_slots, temperature, kernels=kernels, **filters)
    return kernels.masked_sample(scores, masks, row_slots, temperature, seed, position)
