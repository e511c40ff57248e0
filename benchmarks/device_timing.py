"""Time of short device work: calls in a CUDA graph, each on the next of many buffers, so that caches do not hold them.

A call of a few microseconds cannot be timed alone: putting it on the stream takes longer. So at least 20 are in one
graph, which is replayed, and the time between two events around it is shared out. The GPU is kept busy for a moment
before, so that the graph is on the stream when the first event comes by. On a CPU the same calls run one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

NODES = 20
ROTATED_BYTES = 180 * 2**20  # more than any GPU's L2 cache
_BUSY, _BUSY_PER_CALL = 400_000, 2_000  # cycles: some 200 microseconds, and one more for each call
_WARM_UPS = 3

Call = Callable[[], None]


def buffers_needed(nbytes: int, rotated: int = ROTATED_BYTES) -> int:
    """How many buffers of this size hold so many bytes together."""
    return max(1, -(-rotated // max(nbytes, 1)))


def time_calls(calls: Sequence[Call], device: torch.device, *, replays: int, reset: Call | None = None) -> list[float]:
    """Microseconds a call, one entry for each replay of all of them.

    Args:
        calls: each on the next buffer.
        device: where they run.
        replays: how many are timed, after some that are not.
        reset: run before each replay, outside of the time.
    """
    again = reset or (lambda: None)
    timed = _graph_replays(calls) if device.type == "cuda" else _plain_replays(calls)
    found = []
    for number in range(_WARM_UPS + replays):
        again()
        taken = timed()
        if number >= _WARM_UPS:
            found.append(taken / len(calls))
    return found


def _plain_replays(calls: Sequence[Call]) -> Callable[[], float]:
    def replay() -> float:
        start = time.perf_counter_ns()
        for call in calls:
            call()
        return (time.perf_counter_ns() - start) / 1e3

    return replay


def _graph_replays(calls: Sequence[Call]) -> Callable[[], float]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:_WARM_UPS]:  # whatever is compiled at first use
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for call in calls:
            call()
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def replay() -> float:
        torch.cuda._sleep(_BUSY + _BUSY_PER_CALL * len(calls))
        first.record()
        graph.replay()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3

    return replay


def taken_columns(microseconds: Sequence[float]) -> dict[str, str]:
    """Columns of a row of results."""
    levels = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64)
    found = torch.quantile(torch.tensor(microseconds, dtype=torch.float64), levels).tolist()
    return {name: f"{value:.3f}" for name, value in zip(("p20_us", "p50_us", "p80_us"), found, strict=True)}
