"""Transformers' asynchronous batching on the CPU: its order of steps, with copies that arrive only if waited for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from transformers.generation.continuous_batching import (
    continuous_api,
    input_outputs,
    model_runner,
    offloading_manager,
)


class _Event:
    """An event that completes when it is waited for, with the copies that were queued before it."""

    def __init__(self, *_: Any, **__: Any):
        self.queued: list[Callable[[], None]] = []

    def synchronize(self) -> None:
        for copy in self.queued:
            copy()
        self.queued = []


class _Stream:
    def __init__(self) -> None:
        self.queued: list[Callable[[], None]] = []

    def record_event(self, event: _Event) -> None:
        event.queued, self.queued = self.queued, []

    def wait_event(self, event: _Event) -> None:
        event.synchronize()

    def synchronize(self) -> None:
        for copy in self.queued:
            copy()
        self.queued = []


def allow_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let managers on the CPU batch asynchronously; their outputs reach the host only when an event is waited for."""

    def send(pair: input_outputs.HostDeviceIOPair, stream: _Stream) -> None:
        sent = pair.device_io.output_ids.clone()
        pair.host_io.output_ids.fill_(-77)
        stream.queued.append(lambda: pair.host_io.output_ids.copy_(sent))

    monkeypatch.setattr(torch, "Event", _Event)
    monkeypatch.setattr(input_outputs.ContinuousBatchingAsyncIOs, "_supported_device_types", ("cpu",))
    monkeypatch.setattr(input_outputs.HostDeviceIOPair, "transfer_outputs_d2h", send)
    monkeypatch.setattr(input_outputs, "create_device_stream", lambda device: _Stream())
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory=False, **kwargs: empty(*shape, **kwargs))
    for module in (input_outputs, model_runner, continuous_api, offloading_manager):
        monkeypatch.setattr(module, "stream_context", lambda stream: nullcontext())
