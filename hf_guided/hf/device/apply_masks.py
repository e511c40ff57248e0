"""Applies masks that the host has filled, with the kernels: the host waits for nothing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...session.cuda_copies import to_device
from ...session.masks import FALLBACK_SCORE
from .kernels import Kernels, TorchKernels
from .lane import FORBID_ALL, LEAVE_ALONE

assert FORBID_ALL + 1 == LEAVE_ALONE
_OF_KERNELS = (torch.float32, torch.float16, torch.bfloat16)


class AppliedMasks:
    """Masks the scores of one session; see ``session.apply.ApplyOnDevice``.

    Args:
        kernels: of the device of the scores.
    """

    def __init__(self, kernels: Kernels):
        self._kernels = kernels
        self._slots: tuple[tuple[int, ...], Tensor] | None = None  # the last call's; the rows rarely change

    def __call__(
        self, scores: Tensor, bitmask: Tensor, rows: Sequence[int], stop_token_ids: Sequence[int]
    ) -> tuple[Tensor, Tensor]:
        """See ``ApplyOnDevice``. Seven launches with one stop token, one copy of the scores, and one pass over it."""
        kernels = self._kernels if scores.dtype in _OF_KERNELS else TorchKernels()
        masked = scores.detach().clone(memory_format=torch.contiguous_format)
        alive = torch.zeros(len(scores), dtype=torch.int32, device=scores.device)
        kernels.apply_slots_(masked, bitmask, self._slots_of(rows, scores), alive)
        # A row without an allowed score only has to end. Its scores may be NaN: they have to go before a softmax.
        dead = alive == 0
        if isinstance(kernels, TorchKernels):
            masked.masked_fill_(dead.unsqueeze(1), -torch.inf)
        else:  # writes only the dead rows: 0 becomes FORBID_ALL, and 1 LEAVE_ALONE
            kernels.apply_slots_(masked, bitmask, alive + FORBID_ALL)
        for token_id in stop_token_ids:  # few; an index of several columns would have to be copied to the device
            masked[:, token_id].masked_fill_(dead, FALLBACK_SCORE)
        return masked, alive

    def _slots_of(self, rows: Sequence[int], scores: Tensor) -> Tensor | None:
        """(positions,) int32: the mask of each row of scores, or ``LEAVE_ALONE``; None: one to one."""
        if len(rows) == len(scores):
            return None
        slots = [LEAVE_ALONE] * len(scores)
        for slot, row in enumerate(rows):
            slots[row] = slot
        key = tuple(slots)
        if self._slots is None or self._slots[0] != key or self._slots[1].device != scores.device:
            self._slots = key, to_device(slots, scores.device, dtype=torch.int32)
        return self._slots[1]
