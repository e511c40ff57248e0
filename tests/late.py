"""Copies that happen only when they are waited for: the worst case of a busy GPU, without a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hf_guided.session.transfers import CudaTransfers, Transfer


class LateTransfer(Transfer):
    """Reads its source at the last allowed moment, so that an earlier write to the source spoils the copy."""

    def __init__(self, pieces: Sequence[Tensor]):
        self._pieces: list[Tensor] | None = list(pieces)
        self.tensor = torch.full((sum(map(len, pieces)), *pieces[0].shape[1:]), 77, dtype=pieces[0].dtype)

    @property
    def done(self) -> bool:
        return self._pieces is None

    def synchronize(self) -> None:
        if self._pieces is not None:
            torch.cat(self._pieces, out=self.tensor)
            self._pieces = None

    join = synchronize


class LateTransfers(CudaTransfers):
    """Stands in for a CUDA stream; keeps every transfer for the test to look at."""

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self.to_device_started: list[LateTransfer] = []
        self.to_host_started: list[LateTransfer] = []

    def to_device(self, pieces: Sequence[Tensor]) -> LateTransfer:
        self.to_device_started.append(LateTransfer(pieces))
        return self.to_device_started[-1]

    def to_host(self, source: Tensor) -> LateTransfer:
        self.to_host_started.append(LateTransfer([source]))
        return self.to_host_started[-1]
