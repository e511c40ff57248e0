"""The small tensors of a call's start: written on the host, and copied to the device together, without waiting."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

_CHUNK = 1 << 16  # bytes; a call of 64 rows needs a tenth
_ALIGNED = 16  # bytes, for kernels that load vectors


class Staging:
    """Makes tensors on a device out of numbers on the host.

    Args:
        device: of the tensors. For a GPU the host's buffer is pinned, and torch keeps it until it has been copied.
        direct: whether tensors on the host are made one by one; None: if the device is the host.
    """

    def __init__(self, device: torch.device, *, direct: bool | None = None):
        self._device = device
        self._direct = device.type == "cpu" if direct is None else direct
        self._host = self._target = torch.empty(0, dtype=torch.uint8)
        self._used = self._sent = 0

    def put(self, values: ArrayLike, dtype: torch.dtype) -> Tensor:
        """A tensor of these numbers on the device, contiguous; it has them after ``send``."""
        array = torch.as_tensor(np.array(values), dtype=dtype)
        if self._direct:
            return array
        start = -(-self._used // _ALIGNED) * _ALIGNED
        if start + array.nbytes > len(self._host):
            self.send()
            size = max(_CHUNK, array.nbytes)
            self._host = torch.empty(size, dtype=torch.uint8, pin_memory=self._device.type == "cuda")
            self._target = torch.empty(size, dtype=torch.uint8, device=self._device)
            start = self._sent = 0
        self._used = start + array.nbytes
        self._host[start : self._used].view(dtype).copy_(array.flatten())
        return self._target[start : self._used].view(dtype).view(array.shape)

    def full(self, shape: tuple[int, ...], value: int, dtype: torch.dtype = torch.int32) -> Tensor:
        """As ``put``, with one number everywhere."""
        return self.put(np.full(shape, value), dtype)

    def send(self) -> None:
        """Queue the copy of what was put since the last call, on the current stream."""
        if self._sent < self._used:
            part = slice(self._sent, self._used)
            self._target[part].copy_(self._host[part], non_blocking=True)
        self._sent = self._used
