"""The two slots of host memory that masks are filled into, in turn.

While one slot's masks are still being copied to the GPU, the next are filled into the other. A slot is written
again only when its last copy is done: before that, the host would change a mask on its way.

Both slots are halves of one bitmask, because matchers remember the bitmask they filled last.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..vocabulary.bitmask import allocate_bitmask
from .cuda_copies import CudaTransfers, Transfer, Transfers


class MaskSlots:
    """Bitmask lines to fill, and their way to the device. Used by one thread at a time.

    Args:
        vocab_size: tokens per line (the padded vocab size).
        transfers: where masks go; None keeps them on the host until ``serve`` finds a GPU.
    """

    def __init__(self, vocab_size: int, transfers: Transfers | None = None):
        self.transfers = transfers
        self._vocab_size = vocab_size
        self._bitmask = allocate_bitmask(0, vocab_size)  # (2 * lines, words)
        self._pinned = False
        self._slot = 0
        self._sent: list[Transfer | None] = [None, None]

    def serve(self, device: torch.device) -> None:
        """Send masks to this GPU from the next ones on."""
        if self.transfers is None or self.transfers.device != device:
            self.transfers = CudaTransfers(device)

    def take(self, lines: int) -> tuple[Tensor, int]:
        """The slot whose turn it is, when nothing reads it any more.

        Returns:
            The bitmask (lines of both slots, words) int32 on CPU, and the number of the slot's first line.
        """
        self._slot = 1 - self._slot
        sent = self._sent[self._slot]
        if sent is not None:
            sent.synchronize()
            self._sent[self._slot] = None
        pinned = self.transfers is not None and self.transfers.device.type == "cuda"
        if len(self._bitmask) < 2 * lines or self._pinned != pinned:
            # Masks handed out before, and copies under way, keep the old one.
            self._bitmask = allocate_bitmask(2 * lines, self._vocab_size, pin_memory=pinned)
            self._pinned = pinned
        return self._bitmask, self._slot * (len(self._bitmask) // 2)

    def send(self, governed: Sequence[int], transfers: Transfers) -> Transfer:
        """Start copying lines of the slot taken last; the others cost nothing.

        Args:
            governed: lines, counted from the slot's first, ascending; one at least.
            transfers: what copies them.
        """
        first = self._slot * (len(self._bitmask) // 2)
        sent = transfers.to_device([self._bitmask[first + a : first + b] for a, b in _runs(governed)])
        self._sent[self._slot] = sent
        return sent


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges of neighbours."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or numbers[i - 1] != number - 1]
    ends = [*starts[1:], len(numbers)]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in zip(starts, ends, strict=True)]
