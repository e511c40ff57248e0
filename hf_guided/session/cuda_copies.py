"""Asynchronous copies between host and GPU: a side stream, and an event after each copy.

The only module that knows CUDA streams. Its protocols are small, so that code which depends on late copies is tested
without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor


class HostCopy(Protocol):
    """A copy to the host that may still be running.

    Args:
        tensor: the copy; read it only after ``synchronize``.
    """

    @property
    def tensor(self) -> Tensor:
        """The copy."""
        ...

    def synchronize(self) -> None:
        """Make the host wait until the source has been read and the copy is complete."""
        ...


class Transfer(HostCopy, Protocol):
    """A copy, to or from a device, that may still be running.

    Args:
        tensor: the copy; read it only after ``join`` on a GPU, and after ``synchronize`` on the host.
    """

    def join(self) -> None:
        """Make the current stream wait for the copy; the host does not wait."""
        ...


class HostCopies(Protocol):
    """Starts copies from one device to the host, in order."""

    def to_host(self, source: Tensor) -> HostCopy:
        """Copy a tensor from the device, in its state after all work queued on the current stream so far.

        Args:
            source: any shape; do not write it in place before the copy is done.
        """
        ...


class Transfers(HostCopies, Protocol):
    """Starts copies between the host and one device, in order."""

    @property
    def device(self) -> torch.device:
        """The device."""
        ...

    def to_device(self, pieces: Sequence[Tensor]) -> Transfer:
        """Stack tensors on the host into a new tensor on the device.

        Args:
            pieces: (rows, ...) each, pinned, of equal width; do not write them before ``synchronize``.
        """
        ...


def to_device(numbers: Sequence[Any], device: torch.device, dtype: torch.dtype = torch.int64) -> Tensor:
    """Numbers of the host as a tensor on a device; the host does not wait for a GPU.

    Args:
        numbers: a list of numbers, or of equally long lists of them.
        device: any.
        dtype: of the tensor.

    Streams: the copy is queued on the current stream. Torch reuses the pinned memory only after it is done.
    """
    if device.type != "cuda":
        return torch.tensor(numbers, dtype=dtype, device=device)
    return torch.tensor(numbers, dtype=dtype, pin_memory=True).to(device, non_blocking=True)


@dataclass(frozen=True)
class _Arrived:
    tensor: Tensor

    def synchronize(self) -> None:
        """The copy is complete."""


class DirectCopies:
    """Synchronous copies, for devices without streams."""

    def to_host(self, source: Tensor) -> HostCopy:
        """See ``HostCopies``."""
        return _Arrived(source.detach().to("cpu", copy=True))


class CudaTransfers:
    """Copies to and from one CUDA device on a stream of their own. Thread safe.

    Args:
        device: with an index.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def to_device(self, pieces: Sequence[Tensor]) -> Transfer:
        """See ``Transfers``."""
        with torch.cuda.stream(self._stream):
            rows = sum(map(len, pieces))
            tensor = torch.empty((rows, *pieces[0].shape[1:]), dtype=pieces[0].dtype, device=self.device)
            first = 0
            for piece in pieces:
                tensor[first : first + len(piece)].copy_(piece, non_blocking=True)
                first += len(piece)
            return _CudaTransfer(tensor, self._stream.record_event())

    def to_host(self, source: Tensor) -> Transfer:
        """See ``Transfers``."""
        written = torch.cuda.current_stream(self.device).record_event()
        with torch.cuda.stream(self._stream):
            self._stream.wait_event(written)
            tensor = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
            tensor.copy_(source, non_blocking=True)
            source.record_stream(self._stream)  # keeps its memory from being reused before it is read
            return _CudaTransfer(tensor, self._stream.record_event())


class StreamOrder:
    """Puts the uses of some memory into one order, also if they are queued on several streams of a GPU.

    Args:
        device: with an index.
    """

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


class _CudaTransfer:
    def __init__(self, tensor: Tensor, copied: torch.cuda.Event):
        self.tensor = tensor
        self._copied = copied

    def join(self) -> None:
        stream = torch.cuda.current_stream(self.tensor.device)
        stream.wait_event(self._copied)
        self.tensor.record_stream(stream)  # it was allocated on the side stream

    def synchronize(self) -> None:
        self._copied.synchronize()
