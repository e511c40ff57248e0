"""One step of the device's loop, a forward pass and the choice after it: queued op by op, or captured as a whole.

A captured step is one CUDA graph: its inputs and outputs have fixed addresses, so the device counts lengths, positions
and states, and the cache is static. Capturing takes time in every call, so it pays for long outputs of small models,
whose steps take longer to queue than to run.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Protocol

import torch
from torch import Tensor

from ..decode.cache_slots import CacheSlots
from ..decode.static_forward import StaticForward
from .rows import DeviceRows


class Steps(Protocol):
    """Runs the model on the last tokens, and lets every row choose another."""

    def next(self, position: int) -> Tensor:
        """Queue a step.

        Args:
            position: how many tokens each row has.

        Returns:
            See ``DeviceRows.take``.
        """
        ...

    def end(self) -> None:
        """Finish after the last step."""
        ...


class EagerSteps:
    """Queues each step op by op.

    Args:
        slots: the model and its cache.
        rows: the rows.
    """

    def __init__(self, slots: CacheSlots, rows: DeviceRows):
        self._slots = slots
        self._rows = rows

    def next(self, position: int) -> Tensor:
        """See ``Steps``."""
        return self._rows.take(self._slots.run_on_device(self._rows.last()), position)

    def end(self) -> None:
        """There is nothing to finish."""


class FixedSteps:
    """Steps over tensors with fixed addresses; on a GPU the first step is captured, and replayed from then on.

    Args:
        forward: the model over a static cache.
        rows: the rows; no processor before the masks may read their tokens.
        device: where they are.
    """

    def __init__(self, forward: StaticForward, rows: DeviceRows, device: torch.device):
        self._forward = forward
        self._rows = rows
        self._captured = CapturedStep(self._step, device) if device.type == "cuda" else None

    def next(self, position: int) -> Tensor:
        """See ``Steps``."""
        return self._step() if self._captured is None else self._captured()

    def end(self) -> None:
        """Wait for the queued steps: a graph must not be destroyed while it runs."""
        if self._captured is not None:
            self._captured.end()

    def _step(self) -> Tensor:
        return self._rows.take(self._forward(self._rows.last()), 0)


class _CaptureStream:
    """The stream of a device on which all calls capture, one at a time.

    Libraries keep a workspace for each stream that they have run on. What another thread queued on this stream during a
    capture would become a part of the graph, so a thread holds the lock while it uses the stream.
    """

    def __init__(self, device: torch.device):
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.lock = Lock()


_streams: dict[torch.device, _CaptureStream] = {}
_streams_lock = Lock()


def _capture_stream(device: torch.device) -> _CaptureStream:
    with _streams_lock:
        if device not in _streams:
            _streams[device] = _CaptureStream(device)
        return _streams[device]


class CapturedStep:
    """A function over tensors with fixed addresses: runs normally once, then is captured in a CUDA graph and replayed.

    Other threads may use the device during the capture.

    Args:
        step: writes in place, never reads numbers from the device, and returns a tensor.
        device: a CUDA device.
    """

    def __init__(self, step: Callable[[], Tensor], device: torch.device):
        self._step = step
        self._device = device
        self._capture = _capture_stream(device)
        self._warm = False
        self._graph: torch.cuda.CUDAGraph | None = None
        self._result = torch.empty(0, device=device)

    def __call__(self) -> Tensor:
        """Queue the function on the current stream.

        Returns:
            Its result, in a tensor that no later call writes.
        """
        if not self._warm:
            return self._run_once()
        if self._graph is None:
            graph, stream = torch.cuda.CUDAGraph(), self._capture.stream
            # It records the step and runs nothing. In the default mode, a call of another thread that may wait, such as
            # one for memory, would fail.
            with self._capture.lock, torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                self._result = self._step()
            self._graph = graph
        self._graph.replay()
        return self._result.clone()

    def end(self) -> None:
        """Wait for the last call."""
        torch.cuda.current_stream(self._device).record_event().synchronize()

    def _run_once(self) -> Tensor:
        """Run the function on the stream that is captured later: libraries allocate memory in their first call."""
        current = torch.cuda.current_stream(self._device)
        stream = self._capture.stream
        with self._capture.lock:
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                result = self._step()
            current.wait_stream(stream)
        result.record_stream(current)
        self._warm = True
        return result
