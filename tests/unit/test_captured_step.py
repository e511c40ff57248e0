"""How steps are captured, with a stand-in for torch's CUDA graphs: mode, streams, and one capture at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.hf.device import steps
from hf_guided.hf.device.steps import CapturedStep

ONE, OTHER = torch.device("cuda", 0), torch.device("cuda", 1)


class FakeCuda:
    """Streams and graphs that only note what happens; a graph replays the step that was captured."""

    def __init__(self) -> None:
        self.streams: list[torch.device] = []
        self.captures: list[tuple[Any, str]] = []  # (stream, mode)
        self.replays = 0
        self.on_stream = threading.local()
        self.capturing: list[Any] = []  # streams

    def new_stream(self, device: torch.device) -> Any:
        cuda = self
        cuda.streams.append(device)

        class Stream:
            def wait_stream(self, other: Any) -> None:
                pass

            def record_event(self) -> Any:
                return type("Event", (), {"synchronize": lambda self: None})()

        return Stream()

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        assert stream not in self.capturing, "what runs now would become a part of another thread's graph"
        yield

    @contextmanager
    def graph(self, graph: Any, stream: Any, capture_error_mode: str = "global") -> Iterator[None]:
        assert stream not in self.capturing, "two captures on one stream"
        self.capturing.append(stream)
        self.captures.append((stream, capture_error_mode))
        yield
        self.capturing.remove(stream)

    def new_graph(self) -> Any:
        cuda = self

        class Graph:
            def replay(self) -> None:
                cuda.replays += 1

        return Graph()


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    fake = FakeCuda()
    current = fake.new_stream(ONE)
    fake.streams.clear()
    monkeypatch.setattr(torch.cuda, "Stream", fake.new_stream)
    monkeypatch.setattr(torch.cuda, "stream", fake.stream)
    monkeypatch.setattr(torch.cuda, "graph", fake.graph)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", fake.new_graph)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: current)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    monkeypatch.setattr(steps, "_streams", {})
    monkeypatch.setattr(torch, "empty", lambda *shape, device: torch.zeros(*shape))
    return fake


def test_steps_of_a_device_are_captured_on_one_stream_and_other_threads_may_go_on(cuda: FakeCuda) -> None:
    runs: list[int] = []

    def step() -> Tensor:
        runs.append(1)
        return torch.ones(2)

    for device in (ONE, ONE, OTHER, ONE):
        captured = CapturedStep(step, device)
        for _ in range(4):
            captured()
        captured.end()
    assert cuda.streams == [ONE, OTHER]
    assert len({id(stream) for stream, _ in cuda.captures}) == 2 and len(cuda.captures) == 4
    assert {mode for _, mode in cuda.captures} == {"thread_local"}
    assert len(runs) == 2 * 4 and cuda.replays == 3 * 4  # each step ran once, and was captured once


def test_two_threads_take_turns(cuda: FakeCuda) -> None:
    """The second thread begins while the first one captures."""
    inside, go_on = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def slow() -> Tensor:
        if cuda.capturing:
            inside.set()
            assert go_on.wait(10)
        return torch.ones(1)

    def run(step: Any) -> None:
        try:
            captured = CapturedStep(step, ONE)
            for _ in range(3):
                captured()
        except BaseException as error:
            errors.append(error)

    first = threading.Thread(target=run, args=(slow,))
    first.start()
    assert inside.wait(10)
    second = threading.Thread(target=run, args=(lambda: torch.ones(1),))
    second.start()
    second.join(0.2)
    assert second.is_alive() and not errors
    go_on.set()
    first.join(10)
    second.join(10)
    assert not errors and len(cuda.captures) == 2
