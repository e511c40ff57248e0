"""What moves between the host and a GPU: copies on a side stream, an event after each, and the buffers of masks.

The only module that knows CUDA streams, so that code which depends on late copies can be tested without a GPU.

While the masks in one buffer are copied to the GPU, the next masks are filled into the other. A buffer is written again
only after its last copy is done: an earlier write would change a mask during its copy.

Both buffers are halves of one bitmask, because matchers remember the bitmask that they filled last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..vocabulary.bitmask import allocate_bitmask


def to_device(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Numbers of the host, or equally long lists of them, as a tensor on a device; the host does not wait for a GPU.

    Streams: the copy is queued on the current stream. Torch reuses the pinned memory only after it is done.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype, device="cpu", pin_memory=True).to(device, non_blocking=True)


def sent_to(tensor: Tensor, device: torch.device) -> Tensor:
    """A copy of a tensor of the host on a device; the host does not wait for a GPU."""
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


@dataclass(eq=False)
class Transfer:
    """A copy, to or from a GPU, that may still be running."""

    tensor: Tensor  # the copy; read it only after ``join`` on a GPU, and after ``synchronize`` on the host
    copied: torch.cuda.Event  # the event after it

    def join(self) -> None:
        """Make the current stream wait for the copy; the host does not wait."""
        stream = torch.cuda.current_stream(self.tensor.device)
        stream.wait_event(self.copied)
        self.tensor.record_stream(stream)  # the tensor was allocated on the side stream

    def synchronize(self) -> None:
        """Make the host wait until the source has been read and the copy is complete."""
        self.copied.synchronize()


class CudaTransfers:
    """Copies to and from one CUDA device (with an index), in order, on a stream of their own. Thread safe."""

    def __init__(self, device: torch.device):
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def to_device(self, pieces: Sequence[Tensor]) -> Transfer:
        """Stack tensors (rows, ...) of equal width into a new one on the device.

        The pieces are pinned memory of the host; do not write them before ``synchronize``.
        """
        with torch.cuda.stream(self._stream):
            rows = sum(map(len, pieces))
            tensor = torch.empty((rows, *pieces[0].shape[1:]), dtype=pieces[0].dtype, device=self.device)
            first = 0
            for piece in pieces:
                tensor[first : first + len(piece)].copy_(piece, non_blocking=True)
                first += len(piece)
            return Transfer(tensor, self._stream.record_event())

    def to_host(self, source: Tensor) -> Transfer:
        """Copy a tensor from the device, in its state after all work queued on the current stream so far.

        Do not write it in place before the copy is done.
        """
        written = torch.cuda.current_stream(self.device).record_event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(written)
            tensor = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=True)
            tensor.copy_(source, non_blocking=True)
            source.record_stream(self._stream)  # keeps its memory from being reused before it is read
            return Transfer(tensor, self._stream.record_event())


class StreamOrder:
    """Puts the uses of some memory into one order, also if they are queued on several streams of a GPU."""

    def __init__(self, device: torch.device):
        self._device = device
        self._stream: torch.cuda.Stream | None = None
        self._used: torch.cuda.Event | None = None

    def enter(self) -> None:
        """Make the current stream wait for the last use."""
        stream = torch.cuda.current_stream(self._device)
        if self._used is not None and stream != self._stream:
            stream.wait_event(self._used)
        self._stream = stream

    def leave(self) -> torch.cuda.Event:
        """The event after what was queued since ``enter``."""
        assert self._stream is not None
        self._used = self._stream.record_event()
        return self._used


class PinnedBuffers:
    """Bitmask positions to fill, and their transfer to the device. Used by one thread at a time.

    Args:
        vocab_size: tokens per position (the padded vocab size).
        transfers: copies masks to a device; None keeps them on the host until ``serve`` is called.
    """

    def __init__(self, vocab_size: int, transfers: CudaTransfers | None = None):
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

    def send(self, positions: Sequence[int]) -> Transfer:
        """Start to copy positions of the buffer taken last, counted from its first one and ascending, to the device."""
        assert self.transfers is not None
        first = self._half * (len(self._bitmask) // 2)
        transfer = self.transfers.to_device([self._bitmask[first + a : first + b] for a, b in _runs(positions)])
        self._transfers[self._half] = transfer
        return transfer


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Ascending numbers as half-open ranges of consecutive ones."""
    starts = [i for i, number in enumerate(numbers) if i == 0 or numbers[i - 1] != number - 1]
    ends = [*starts[1:], len(numbers)]
    return [(numbers[a], numbers[b - 1] + 1) for a, b in zip(starts, ends, strict=True)]
