"""The loop without waits: the device chooses the tokens, and the host hears of them a step later.

1 forward    queued behind the choice of the tokens it runs: nobody has seen them yet
2 choose     processors, automaton step, masks, greedy or sampling (device_choice.py); written in place on the device
3 send       the choice starts on its way to the host, on a side stream
4 hear       the choice of the step before arrives, while the device works on this one: matchers, streamer, the end

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
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..device.lane import Lane
from ..errors import GenerationError, InternalError
from ..session import Session
from ..transfers import HostCopies, HostCopy
from .cache_slots import CacheSlots
from .device_choice import DeviceChoice
from .extra_step import ExtraStep
from .line import Line
from .stopping import RowStops


@dataclass(frozen=True)
class _Sent:
    """A step's choice on its way to the host.

    Args:
        tokens: (rows,) int64; -1 where there was nothing to choose.
        forward_ns: what queueing its forward pass took.
    """

    tokens: HostCopy
    forward_ns: int


class DeviceLoop:
    """One generate() call.

    Args:
        session: the constraints.
        slots: the model and its cache.
        lane: the rows on the device, at their beginning.
        ids: (rows, prompt + capacity) int64, the prompts, and behind them the lane's tokens.
        choice: chooses tokens for the lane.
        stops: when a row ends.
        copies: brings tokens to the host.
        extra: undoes the forward pass too many.
        do_sample: whether the choice samples.
        streamer: gets every token of a single row; or None.
    """

    def __init__(
        self,
        session: Session,
        slots: CacheSlots,
        lane: Lane,
        ids: Tensor,
        choice: DeviceChoice,
        stops: RowStops,
        copies: HostCopies,
        extra: ExtraStep,
        *,
        do_sample: bool,
        streamer: Any,
    ):
        self._session = session
        self._slots = slots
        self._lane = lane
        self._ids = ids
        self._choice = choice
        self._stops = stops
        self._copies = copies
        self._extra = extra
        self._do_sample = do_sample
        self._streamer = streamer
        device = ids.device
        self._eos = torch.tensor(sorted(stops.eos_token_ids), dtype=torch.int64, device=device)
        self._pad = torch.full((lane.rows,), slots.pad_token_id, device=device)
        self._ended = torch.zeros(lane.rows, dtype=torch.bool, device=device)

    def run(self, lines: Sequence[Line], logits: Tensor) -> None:
        """Generate until all rows are over.

        Args:
            lines: the rows behind their prompts; written.
            logits: (rows, vocab) float32 behind the prompts; written.
        """
        self._extra.begin()
        try:
            sent = self._step(0, logits, 0)
            for place in range(1, self._lane.capacity):
                start = time.perf_counter_ns()
                logits = self._slots.run_on_device(self._lane.tokens[:, place - 1 : place])
                following = self._step(place, logits, time.perf_counter_ns() - start)
                self._hear(lines, sent)
                if all(line.over for line in lines):
                    self._extra.undo()
                    return
                self._extra.keep()
                self._count_forward(lines, following)
                sent = following
            self._hear(lines, sent)
        finally:
            self._extra.end()

    def _step(self, place: int, logits: Tensor, forward_ns: int) -> _Sent:
        """Choose the tokens of one place, given (rows, vocab) float32 logits, and send them."""
        lane = self._lane
        chosen = self._choice(self._ids[:, : self._ids.shape[1] - lane.capacity + place], logits)
        tokens = torch.where(self._ended, self._pad, chosen.clamp(min=0))
        lane.tokens[:, place] = tokens
        lane.length.add_(1)
        self._ended.logical_or_((tokens.unsqueeze(1) == self._eos).any(1))
        return _Sent(self._copies.to_host(chosen), forward_ns)

    def _hear(self, lines: Sequence[Line], sent: _Sent) -> None:
        """Take the tokens of one step."""
        sent.tokens.synchronize()
        stats = self._session.stats
        stats.device_steps += 1
        stats.calls += 1
        for i, (line, token_id) in enumerate(zip(lines, sent.tokens.tensor.tolist(), strict=True)):
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
        if self._streamer is not None:
            line.stream(self._streamer)
        return added

    def _count_forward(self, lines: Sequence[Line], sent: _Sent) -> None:
        """Count the forward pass of a step that is not undone."""
        stats = self._session.stats
        stats.forwards += 1
        stats.row_forwards += sum(not line.over for line in lines)
        stats.forward_ns += sent.forward_ns
