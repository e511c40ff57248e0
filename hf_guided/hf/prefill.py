"""How both loops begin: the prompts run, and their rows stand at the beginning of their constraints."""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from ..session import Session
from .cache_slots import CacheSlots
from .line import Line


def prefill(session: Session, slots: CacheSlots, prompts: Sequence[Sequence[int]]) -> tuple[list[Line], Tensor]:
    """Run the prompts, while constraints still compile.

    Args:
        session: the constraints.
        slots: the model and its cache.
        prompts: token ids of each row, padding included.

    Returns:
        The rows; (rows, vocab) float32 logits behind them.
    """
    start = time.perf_counter_ns()
    logits = slots.prefill()
    stats = session.stats
    stats.forward_ns += time.perf_counter_ns() - start
    rows = session.begin(len(prompts))
    stats.forwards += 1
    stats.row_forwards += len(prompts)
    return [Line(row, list(ids), len(ids), streamed=len(ids)) for row, ids in zip(rows, prompts, strict=True)], logits
