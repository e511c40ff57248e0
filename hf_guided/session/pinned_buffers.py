"""Two alternating buffers of host memory for masks, pinned if there is a GPU.

While the masks in one buffer are copied to the GPU, the next masks are filled into the other. A buffer is written again
only after its last copy is done: an earlier write would change a mask during its copy.

Both buffers are halves of one bitmask, because matchers remember the bitmask that they filled last.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..vocabulary.bitmask import allocate_bitmask
from .cuda_copies import CudaTransfers, Transfer, Transfers


class PinnedBuffers:
    """Bitmask positions to fill, and their transfer to the device. Used by one thread at a time.

    Args:
        vocab_size: tokens per position (the padded vocab size).
        transfers: copies masks to a device; None keeps them on the host until ``serve`` is called.
    """

    def __init__(self, vocab_size: int, transfers: Transfers | None = None):
        self.transfers = transfers
        self._vocab_size = vocab_size
        self._bitmask = allocate_bitmask(0, vocab_size)  # (2 * positions, words)
        self._pinned = False
        self._half = 0
        self._transfers: list[Transfer | None] = [None, None]

    def serve(self, device: torch.device) -> None:
        """Copy masks to this GPU from the next ones on."""
        if self.transfers is None or self.transfers.device != device:
            self.transfers = CudaTransfers(device)

    def take(self, positions: int) -> tuple[Tensor, int]:
        """The next buffer, after its last copy is done.

        Returns:
            The bitmask (positions of both halves, words) int32 on CPU, and the index of the buffer's first position.
        """
        self._half = 1 - self._half
        transfer = self._transfers[self._half]
        if transfer is not None:
            transfer.synchronize()
            self._transfers[self._half] = None
        pinned = self.transfers is not None and self.transfers.device.type == "cuda"
        if len(self._bitmask) < 2 * positions or self._pinned != pinned:
            # Masks that were returned before, and copies in progress, keep the old bitmask.
            self._bitmask = allocate_bitmask(2 * positions, self._vocab_size, pin_memory=pinned)
            self._pinned = pinned
        return self._bitmask, self._half * (len(self._bitmask) // 2)

    def send(self, governed: Sequence[int], transfers: Transfers) -> Transfer:
        """Start copying positions of the buffer taken last.

        Args:
            governed: positions, relative to the buffer's first, ascending; at least one.
            transfers: copies them.
        """
        first = self._half * (len(self._bitmask) // 2)
        transfer = transfers.to_device([self._bitmask[first + a : first + b] for a, b in _runs(governed)])
        self._transfers[self._half] = transfer
        return transfer


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges of consecutive ones."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or numbers[i - 1] != number - 1]
    ends = [*starts[1:], len(numbers)]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in zip(starts, ends, strict=True)]
