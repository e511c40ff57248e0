"""The loop without waits: the device chooses the tokens, and the host receives them one step later.

1 forward    queued after the choice of its input tokens, which the host has not received yet (steps.py)
2 choose     processors, automaton step, masks, greedy or sampling (token_choice.py); written in place (rows.py)
3 send       start to copy the choice to the host, on a side stream
4 receive    wait for the choice of the previous step, while the device works on this one: matchers, listeners, the end

So the host waits only for work that was queued at least one step ago. It learns one step late that all rows have ended.
The one step queued meanwhile is rolled back, and does not appear in output, statistics or cache. The maximum length is
known in advance and costs no surplus step. A row that takes a stop token continues with padding; a row that only the
host ends keeps generating, and its tokens are discarded.

The matchers on the host follow, for the session's information about its rows. They also check that they agree with the
device, because an error in a kernel would otherwise go unnoticed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from torch import Tensor

from ...errors import GenerationError, InternalError
from ...session.cuda_copies import HostCopies, HostCopy
from ...session.session import Session
from ..decode.sequence_state import SequenceState
from ..decode.stopping import RowStops
from .overrun import CacheRollback
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
        rollback: undoes the surplus forward pass.
        do_sample: whether tokens are sampled.
    """

    def __init__(
        self,
        session: Session,
        rows: DeviceRows,
        steps: Steps,
        stops: RowStops,
        copies: HostCopies,
        rollback: CacheRollback,
        *,
        do_sample: bool,
    ):
        self._session = session
        self._rows = rows
        self._steps = steps
        self._stops = stops
        self._copies = copies
        self._rollback = rollback
        self._do_sample = do_sample

    def run(self, sequences: Sequence[SequenceState], logits: Tensor) -> None:
        """Generate until all rows are finished.

        Args:
            sequences: the rows after their prompts; written.
            logits: (rows, vocab) float32 after the prompts; written.
        """
        self._rollback.begin()
        try:
            copy = self._copies.to_host(self._rows.take(logits, 0))
            for position in range(1, self._rows.capacity):
                start = time.perf_counter_ns()
                chosen = self._steps.next(position)
                queueing_ns = time.perf_counter_ns() - start
                following = self._copies.to_host(chosen)
                self._receive(sequences, copy)
                if all(sequence.finished for sequence in sequences):
                    self._rollback.undo()
                    return
                self._rollback.keep()
                self._count_forward(sequences, queueing_ns)
                copy = following
            self._receive(sequences, copy)
        finally:
            self._rollback.end()
            self._steps.end()

    def _receive(self, sequences: Sequence[SequenceState], copy: HostCopy) -> None:
        """Receive the tokens of one step, (rows,) int64."""
        copy.synchronize()
        stats = self._session.stats
        stats.device_steps += 1
        stats.calls += 1
        for i, (sequence, token_id) in enumerate(zip(sequences, copy.tensor.tolist(), strict=True)):
            if not sequence.finished:
                stats.masked_rows += sequence.row.matcher is not None
                stats.tokens += self._take(i, sequence, token_id)

    def _take(self, i: int, sequence: SequenceState, token_id: int) -> int:
        """Append the token that a row has chosen; returns how many were appended."""
        if token_id < 0 and sequence.row.matcher is not None:
            self._session.record_dead_end(i, self._session.nothing_left(i, sequence.row, sequence.num_generated))
            return self._append(sequence, self._session.fallback_stop_token_id)
        if token_id < 0 and self._do_sample:
            raise GenerationError(f"row {i}: no token has a finite score, so none can be sampled; are the logits NaN?")
        token_id = max(token_id, 0)  # like argmax over only -inf elsewhere
        if not sequence.row.advance(token_id):
            raise InternalError(
                f"row {i}: the device lane chose {self._session.vocabulary.token_text(token_id)} ({token_id}), which "
                "its matcher refuses; please report it, and use device_lane=False"
            )
        if sequence.row.dead_end:  # its engine failed: the device could continue, but the host knows no more of it
            self._session.record_dead_end(i, sequence.row.dead_end)
            sequence.finished = True
        return self._append(sequence, token_id)

    def _append(self, sequence: SequenceState, token_id: int) -> int:
        added = sequence.append([token_id], self._stops)
        sequence.report()
        return added

    def _count_forward(self, sequences: Sequence[SequenceState], queueing_ns: int) -> None:
        """Count the forward pass of a step that is not rolled back."""
        stats = self._session.stats
        stats.forwards += 1
        stats.row_forwards += sum(not sequence.finished for sequence in sequences)
        stats.forward_ns += queueing_ns
