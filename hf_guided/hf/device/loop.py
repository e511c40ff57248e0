"""The loop without waits: the device chooses the tokens, and the host hears of them a step later.

1 forward    queued behind the choice of the tokens it runs: nobody has seen them yet (steps.py)
2 choose     processors, automaton step, masks, greedy or sampling (token_choice.py); written in place (rows.py)
3 send       the choice starts on its way to the host, on a side stream
4 hear       the choice of the step before arrives, while the device works on this one: matchers, listeners, the end

So the host waits only for what was queued at least one step ago. That all rows have ended it learns one step late; the
step that was queued meanwhile is undone, and nothing of it is seen in output, statistics or cache. The greatest length
is known ahead and costs no extra step. A row that takes a stop token goes on with padding; one that is ended by
something else, which only the host knows, goes on as it likes, and what it writes is nobody's.

The matchers on the host follow, for what a session says of its rows. That they agree with the device is believed and
checked, for a kernel is far away.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from ...errors import GenerationError, InternalError
from ...session.cuda_copies import HostCopies, HostCopy
from ...session.session import Session
from ..decode.sequence_state import Line
from ..decode.stopping import RowStops
from .overrun import ExtraStep
from .rows import DeviceRows
from .steps import Steps


class DeviceLoop:
    """One generate() call.

    Args:
        session: the constraints.
        rows: the rows on the device.
        steps: what runs the model for them.
        stops: when a row ends.
        copies: brings tokens to the host.
        extra: undoes the forward pass too many.
        do_sample: whether tokens are sampled.
    """

    def __init__(
        self,
        session: Session,
        rows: DeviceRows,
        steps: Steps,
        stops: RowStops,
        copies: HostCopies,
        extra: ExtraStep,
        *,
        do_sample: bool,
    ):
        self._session = session
        self._rows = rows
        self._steps = steps
        self._stops = stops
        self._copies = copies
        self._extra = extra
        self._do_sample = do_sample

    def run(self, lines: Sequence[Line], logits: Tensor) -> None:
        """Generate until all rows are over.

        Args:
            lines: the rows behind their prompts; written.
            logits: (rows, vocab) float32 behind the prompts; written.
        """
        self._extra.begin()
        try:
            sent = self._copies.to_host(self._rows.take(logits, 0))
            for place in range(1, self._rows.capacity):
                start = time.perf_counter_ns()
                chosen = self._steps.next(place)
                queueing_ns = time.perf_counter_ns() - start
                following = self._copies.to_host(chosen)
                self._hear(lines, sent)
                if all(line.over for line in lines):
                    self._extra.undo()
                    return
                self._extra.keep()
                self._count_forward(lines, queueing_ns)
                sent = following
            self._hear(lines, sent)
        finally:
            self._extra.end()
            self._steps.end()

    def _hear(self, lines: Sequence[Line], sent: HostCopy) -> None:
        """Take the tokens of one step, (rows,) int64."""
        sent.synchronize()
        stats = self._session.stats
        stats.device_steps += 1
        stats.calls += 1
        for i, (line, token_id) in enumerate(zip(lines, sent.tensor.tolist(), strict=True)):
            if not line.over:
                stats.masked_rows += line.row.matcher is not None
                stats.tokens += self._take(i, line, token_id)

    def _take(self, i: int, line: Line, token_id: int) -> int:
        """Add the token that a row has chosen; returns how many are added."""
        if token_id < 0 and line.row.matcher is not None:
            raise self._session.nothing_left(i, line.row, line.num_generated)
        if token_id < 0 and self._do_sample:
            raise GenerationError(f"row {i}: no token has a finite score, so none can be sampled; are the logits NaN?")
        token_id = max(token_id, 0)  # what the best of nothing is elsewhere
        if not line.row.advance(token_id):
            raise InternalError(
                f"row {i}: the device lane chose {self._session.vocabulary.token_text(token_id)} ({token_id}), which "
                "its matcher refuses; device_lane=False goes on without it"
            )
        added = line.append([token_id], self._stops)
        line.tell()
        return added

    def _count_forward(self, lines: Sequence[Line], queueing_ns: int) -> None:
        """Count the forward pass of a step that is not undone."""
        stats = self._session.stats
        stats.forwards += 1
        stats.row_forwards += sum(not line.over for line in lines)
        stats.forward_ns += queueing_ns
