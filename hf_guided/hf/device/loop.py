"""The loop without waits: the device chooses the tokens, and the host receives them one step later.

1 forward    queued after the choice of its input tokens, which the host has not received yet (steps.py)
2 choose     processors, automaton step, masks, greedy or sampling (token_choice.py); written in place (rows.py)
3 send       start to copy the choice to the host, on a side stream
4 receive    wait for the choice of the previous step, while the device works on this one: states, listeners, the end
             (host_rows.py)

So the host waits only for work that was queued at least one step ago. It learns one step late that all rows have ended.
The one step queued meanwhile is rolled back, and does not appear in output, statistics or cache. The maximum length is
known in advance and costs no surplus step. A row that takes a stop token continues with padding; a row that only the
host ends keeps generating, and its tokens are discarded.

The automata on the host follow, for the session's information about its rows. They also check that they agree with the
device, because an error in a kernel would otherwise go unnoticed.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from torch import Tensor

from ...session.cuda_copies import HostCopies, HostCopy
from ...session.stats import SessionStats
from .host_rows import HostRows
from .overrun import CacheRollback
from .rows import DeviceRows
from .steps import Steps


class _Sent(NamedTuple):
    """The copies of one step: its tokens, and its log probabilities if they are recorded."""

    tokens: HostCopy
    logprobs: HostCopy | None


class DeviceLoop:
    """One generate() call.

    Args:
        rows: the rows on the device.
        on_host: the same rows on the host.
        steps: what runs the model for them.
        copies: brings tokens to the host.
        rollback: undoes the surplus forward pass.
        stats: counts the forward passes.
    """

    def __init__(
        self,
        rows: DeviceRows,
        on_host: HostRows,
        steps: Steps,
        copies: HostCopies,
        rollback: CacheRollback,
        stats: SessionStats,
    ):
        self._rows = rows
        self._on_host = on_host
        self._steps = steps
        self._copies = copies
        self._rollback = rollback
        self._stats = stats

    def run(self, logits: Tensor) -> None:
        """Generate until all rows are finished.

        Args:
            logits: (rows, vocab) float32 after the prompts; written.
        """
        self._rollback.begin()
        try:
            sent = self._send(self._rows.take(logits, 0))
            for position in range(1, self._rows.capacity):
                start = time.perf_counter_ns()
                chosen = self._steps.next(position)
                queueing_ns = time.perf_counter_ns() - start
                following = self._send(chosen)
                self._receive(sent)
                if not self._on_host.num_running:
                    self._rollback.undo()
                    return
                self._rollback.keep()
                self._count_forward(queueing_ns)
                sent = following
            self._receive(sent)
        finally:
            self._rollback.end()
            self._steps.end()

    def _send(self, chosen: Tensor) -> _Sent:
        """Start to copy the tokens of one step, (rows,) int64, and their log probabilities."""
        logprobs = self._rows.logprobs
        return _Sent(self._copies.to_host(chosen), None if logprobs is None else self._copies.to_host(logprobs))

    def _receive(self, sent: _Sent) -> None:
        """Receive a step."""
        tokens, logprobs = sent
        tokens.synchronize()
        if logprobs is None:
            self._on_host.receive(tokens.tensor.tolist())
        else:
            logprobs.synchronize()
            self._on_host.receive(tokens.tensor.tolist(), logprobs.tensor.tolist())

    def _count_forward(self, queueing_ns: int) -> None:
        """Count the forward pass of a step that is not rolled back."""
        stats = self._stats
        stats.forwards += 1
        stats.row_forwards += self._on_host.num_running
        stats.forward_ns += queueing_ns
