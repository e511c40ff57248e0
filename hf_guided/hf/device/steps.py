"""One step of the device's loop, a forward pass and the choice behind it: queued op by op, or captured as a whole.

A captured step is one CUDA graph: what it reads and writes stays where it is, so lengths, positions and states are
counted on the device, and the cache is a static one. Capturing takes a moment in every call, so it pays for long
outputs of small models, whose steps take longer to queue than to run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from ..decode.cache_slots import CacheSlots
from ..decode.static_forward import StaticForward
from .rows import DeviceRows


class Steps(Protocol):
    """What runs the model on the tokens chosen last, and lets every row choose another."""

    def next(self, place: int) -> Tensor:
        """Queue a step.

        Args:
            place: how many tokens each row has.

        Returns:
            As ``DeviceRows.take``.
        """
        ...

    def end(self) -> None:
        """There are no more steps."""
        ...


class EagerSteps:
    """Queues each step as it is.

    Args:
        slots: the model and its cache.
        rows: the rows.
    """

    def __init__(self, slots: CacheSlots, rows: DeviceRows):
        self._slots = slots
        self._rows = rows

    def next(self, place: int) -> Tensor:
        """See ``Steps``."""
        return self._rows.take(self._slots.run_on_device(self._rows.last()), place)

    def end(self) -> None:
        """Nothing is left."""


class FixedSteps:
    """Steps over tensors that stay where they are; on a GPU captured, and replayed from then on.

    Args:
        forward: the model over a static cache.
        rows: the rows; no processor in front of the masks may look at their tokens.
        device: where they are.
    """

    def __init__(self, forward: StaticForward, rows: DeviceRows, device: torch.device):
        self._forward = forward
        self._rows = rows
        self._captured = CapturedStep(self._step, device) if device.type == "cuda" else None

    def next(self, place: int) -> Tensor:
        """See ``Steps``."""
        return self._step() if self._captured is None else self._captured()

    def end(self) -> None:
        """Wait for what is queued: a graph must not be taken apart while it runs."""
        if self._captured is not None:
            self._captured.end()

    def _step(self) -> Tensor:
        return self._rows.take(self._forward(self._rows.last()), 0)


class CapturedStep:
    """A function over fixed tensors that is run as it is the first time, then captured in a CUDA graph, and replayed.

    Args:
        step: writes in place, never asks the device for a number, and returns a tensor.
        device: of CUDA.
    """

    def __init__(self, step: Callable[[], Tensor], device: torch.device):
        self._step = step
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result = torch.empty(0, device=device)

    def __call__(self) -> Tensor:
        """Queue the function on the current stream.

        Returns:
            What it returns; a tensor that no later call writes.
        """
        if not self._warm:
            return self._run_once()
        if self._graph is None:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self._stream):  # records the step and runs nothing
                self._result = self._step()
            self._graph = graph
        self._graph.replay()
        return self._result.clone()

    def end(self) -> None:
        """Wait for the last one."""
        torch.cuda.current_stream(self._device).record_event().synchronize()

    def _run_once(self) -> Tensor:
        """As it is, on the stream to be captured: libraries allocate what they need there in their first call."""
        current = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            result = self._step()
        current.wait_stream(self._stream)
        result.record_stream(current)
        self._warm = True
        return result
