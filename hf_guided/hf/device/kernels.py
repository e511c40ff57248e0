"""The functions that advance a lane, as plain torch or as CUDA kernels."""

from __future__ import annotations

from typing import Any, Protocol

import torch
from torch import Tensor

from . import reference, sampling
from .lane import Lane
from .launches import sample_parts


class Kernels(Protocol):
    """Masks and samples on one kind of device; all on the current stream."""

    name: str

    def apply_slots_(
        self, logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        """See ``reference.apply_slots_``."""
        ...

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        """See ``reference.step_``."""
        ...

    def fill_pool_(self, lane: Lane) -> None:
        """See ``reference.fill_pool_``."""
        ...

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        """See ``sampling.masked_sample``."""
        ...


class TorchKernels:
    """The reference; runs on every device, and waits for it."""

    name = "torch"
    apply_slots_ = staticmethod(reference.apply_slots_)
    step_ = staticmethod(reference.step_)
    fill_pool_ = staticmethod(reference.fill_pool_)
    masked_sample = staticmethod(sampling.masked_sample)


class OpKernels:
    """Operators that launch the CUDA kernels; the host never waits.

    Args:
        name: how they were found.
        ops: has ``apply_bitmask_``, ``automaton_step_``, ``build_masks_`` and ``masked_sample_``.
    """

    def __init__(self, name: str, ops: Any):
        self.name = name
        self._ops = ops

    def apply_slots_(
        self, logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        """See ``reference.apply_slots_``."""
        self._ops.apply_bitmask_(logits, masks, row_slots, alive)

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        """See ``reference.step_``."""
        self._ops.automaton_step_(logits, *lane.buffers, alive=alive)

    def fill_pool_(self, lane: Lane) -> None:
        """See ``reference.fill_pool_``."""
        work = lane.claim_all()
        count = torch.full((1,), len(work), dtype=torch.int32, device=work.device)
        vocabulary = lane.vocabulary
        texts = vocabulary.token_bytes, vocabulary.token_start, vocabulary.token_length, vocabulary.stops
        self._ops.build_masks_(work, count, lane.descriptors, *texts, lane.masks)

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        """See ``sampling.masked_sample``."""
        rows, vocab = logits.shape
        parts = sample_parts(rows, vocab, processors_of(logits.device))
        best = torch.empty(rows, parts, dtype=torch.int64, device=logits.device)
        tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
        seed = torch.zeros_like(tokens) if seed is None else seed
        self._ops.masked_sample_(tokens, best, logits, masks, row_slots, temperature, seed, position)
        return tokens


def processors_of(device: torch.device) -> int:
    """Multiprocessors of a GPU; 1 of anything else."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1
