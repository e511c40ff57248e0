"""Copies between host and GPU that nobody waits for who does not need to: a side stream, and an event behind each.

The one place that knows CUDA streams, behind two small protocols, so that what depends on copies being late is
tested without a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class HostCopy(Protocol):
    """A copy to the host under way, and what it will have copied.

    Args:
        tensor: the copy, to be used behind ``synchronize``.
    """

    @property
    def tensor(self) -> Tensor:
        """The copy."""
        ...

    def synchronize(self) -> None:
        """Wait on the host until the source has been read and the copy is written."""
        ...


class Transfer(HostCopy, Protocol):
    """A copy under way, and what it will have copied.

    Args:
        tensor: the copy; on a GPU to be used behind ``join``, on the host behind ``synchronize``.
    """

    def join(self) -> None:
        """Make the current stream wait for the copy; the host goes on."""
        ...


class HostCopies(Protocol):
    """Starts copies from one device to the host, in order."""

    def to_host(self, source: Tensor) -> HostCopy:
        """Copy a tensor on the device, as it is behind what is queued on the current stream now.

        Args:
            source: any shape; not written in place before the copy is done.
        """
        ...


class Transfers(HostCopies, Protocol):
    """Starts copies between the host and one device, in order."""

    @property
    def device(self) -> torch.device:
        """The device's side of the copies."""
        ...

    def to_device(self, pieces: Sequence[Tensor]) -> Transfer:
        """Copy tensors on the host, one below the other, into a new one on the device.

        Args:
            pieces: (rows, ...) each, pinned, as wide as one another; not to be written before ``synchronize``.
        """
        ...


@dataclass(frozen=True)
class _Arrived:
    tensor: Tensor

    def synchronize(self) -> None:
        """It is there."""


class DirectCopies:
    """Copies of which each is done before the next thing is: for devices that offer nothing better."""

    def to_host(self, source: Tensor) -> HostCopy:
        """See ``HostCopies``."""
        return _Arrived(source.detach().to("cpu", copy=True))


class CudaTransfers:
    """Copies to and from one CUDA device on a stream of their own. Used by any thread.

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
            source.record_stream(self._stream)  # its memory is not given to others before it has been read
            return _CudaTransfer(tensor, self._stream.record_event())


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
