"""The rows of a manager's requests, and their masks, for transformers' continuous batching.

A manager's processor is given one int32 for each row of logits. Ours is a *slot*, as in session/mask_kernel.py: of the
table of masks that stay on the device, or of a buffer for those that are in no table. Both keep their address as long
as the manager's tensors, so that a CUDA graph that has captured ``__call__`` reads the masks of each batch it is
replayed for. Free requests are not masked, nor are rows of logits that only pad a graph's shape.

The generation thread requests the slots of a batch before its forward pass. Then each request's row takes its new
tokens, and its mask is filled. That happens after the forward pass is queued, while the device works on it; or before,
if the pass is a CUDA graph, which contains the sampling and calls no Python. With asynchronous batching, the batch
before still runs when this one is prepared: a batch that continues guided requests waits for its tokens, and a batch of
free requests does not. The running batch may still read its masks: slots alternate between two halves of the buffer,
and rows of the table are leased until the second next batch.

Rows belong to request states: made with a request's first token, and deleted with its state. A request that has lost
its cache returns with a new state, and a new row takes all of its output. The rows of requests that have ended or were
cancelled are deleted together with their states, because the manager reports neither.

An error in one request ends only that request: its mask then allows only stop tokens, and its output has the reason
(``GenerationOutput.error``). An exception here would end the generation thread, and with it all requests; so would
sampling from a row without a score above -inf: where the model's own scores are NaN, or other processors have forbidden
all allowed tokens, a guided row can only end.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...constraints.values import Constraint
from ...errors import cause
from ...session.mask_kernel import NOT_MASKED, MaskKernel, mask_kernel
from ...session.mask_table import Lease, MaskTable, MaskTables
from ...session.masks import fill_or_find
from ...session.row import Row, RowState
from ...session.session import Session
from ...session.stats import SessionStats
from ...session.transfers import to_device
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from .compat import (
    ContinuousBatchingLogitsProcessor,
    called_after_forward,
    new_tokens,
    num_generated,
    tokens_in_flight,
    tokens_left,
)


@dataclass(frozen=True)
class RequestConstraint:
    """The constraint of a request: one of its keyword arguments, copied for forks and sent between processes."""

    constraint: Constraint
    backend: str  # "auto", or the name of a backend
    prefix: str | None  # the beginning of the answer that its prompt already contains
    stop_token_ids: tuple[int, ...]
    max_new_tokens: int | None  # its text closes within this many tokens; None sets no limit
    # At the start of its output, for this process; forked, never advanced.
    row: Row | None = field(default=None, compare=False, repr=False)

    def first_row(self, new_session: Callable[..., Session]) -> Row:
        """A new row at the start of the output; compiles the constraint, or waits for its compilation."""
        session = new_session(
            self.constraint,
            prefix=self.prefix,
            backend=self.backend,
            stop_token_ids=self.stop_token_ids,
            max_new_tokens=self.max_new_tokens,
            overlap=False,
        )
        return session.begin(1)[0]

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestConstraint:
        return self  # it is immutable, so forks share the compiled constraint

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the row: compiled grammars stay in their process, and another one compiles its own.
        return RequestConstraint, (self.constraint, self.backend, self.prefix, self.stop_token_ids, self.max_new_tokens)


@dataclass
class _FollowedRow:
    """A request state, its row, and how much of its output the row has taken."""

    state: weakref.ref[Any]
    row: Row
    taken: int = 0

    def take(self, *token_ids: int) -> None:
        """Advance the row by the next tokens of the output."""
        for token_id in token_ids:
            self.row.advance(token_id)
        self.taken += len(token_ids)


class _Unfilled(NamedTuple):
    """A mask to find."""

    row: int  # row of the logits
    state: Any
    request: RequestConstraint


class RequestMasks(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every guided request of a manager inside its constraint; free ones are returned bit for bit.

    Args:
        new_session: ``Guide.session``, for a request without a row, because another process has added it.
        manager: calls it; its ``max_requests_per_batch`` is final when the first tensors are made.

    Thread: the manager's generation thread, one at a time.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"response_format": RequestConstraint}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocabulary: Vocabulary, tables: MaskTables, new_session: Callable[..., Session], manager: Any):
        self.vocabulary = vocabulary
        self.stats = SessionStats()
        self._manager = weakref.proxy(manager)  # the manager owns this object
        self._new_session = new_session
        self._rows: dict[str, _FollowedRow] = {}  # by the id of their request
        self._tables = tables
        self._table: MaskTable | None = None
        self._shared: Tensor | None = None  # (rows, words) of the table, on the device
        self._own = self._host = allocate_bitmask(0, vocabulary.padded_size)  # (2 * slots, words) on device and host
        self._leases: list[Lease | None] = [None, None]  # leases of the last two batches
        self._half = 0
        self._slots: list[int] = []  # slots of the batch that is being prepared, for each row of logits and of padding
        self._unfilled: list[_Unfilled] = []
        self._kernel: MaskKernel | None = None
        self._stops: Tensor | None = None  # (stops,) int64 of the vocabulary, on the device

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """Allocate the masks of two batches, on the device of the logits, and try out the kernel.

        Args:
            int32_tensor: (1,) int32 on that device, or on the host where the manager keeps a copy of its tensors;
                written: the slot of a row of logits without a constraint.
        """
        int32_tensor.fill_(NOT_MASKED)
        device, size = int32_tensor.device, 2 * self._manager.continuous_batching_config.max_requests_per_batch
        if device.type != self._manager.model.device.type or (len(self._own), self._own.device) == (size, device):
            return  # the masks keep their address
        self._host = allocate_bitmask(size, self.vocabulary.padded_size, pin_memory=device.type == "cuda")
        self._own = self._host if device.type == "cpu" else self._host.to(device)
        self._table = self._tables.of(device)
        self._shared = self._own[:0]
        if self._table is not None:
            with self._table.on_device(()) as self._shared:
                pass
        self._kernel, self._stops = mask_kernel(device), to_device(self.vocabulary.stop_token_ids, device)
        # Here, in the shape of the logits: a compilation during graph capture is an error.
        scores = torch.zeros(2, self.vocabulary.padded_size, device=device)
        slots = torch.full((2,), NOT_MASKED, dtype=torch.int32, device=device)
        self._kernel(scores, self._shared, slots, self._own, self._stops)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Note the requests of one batch, and find their masks unless ``__call__`` can do it.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each row of logits.

        Returns:
            (max_requests_per_batch,) int32 on CPU: their slots, if the masks are found, and those of padding.

        Streams: if it finds masks, it waits until they are on the device, and with asynchronous batching for the tokens
            of the running batch.
        """
        self._half = 1 - self._half
        self._leases[self._half] = None  # also before batches of free requests, however many
        states = [future.state for future in requests_with_new_token]
        asked = [state.logit_processor_kwargs.get("response_format") for state in states]
        self._slots = [NOT_MASKED] * (len(self._own) // 2)
        self._unfilled = [
            _Unfilled(row, state, request)
            for row, (state, request) in enumerate(zip(states, asked, strict=True))
            if request is not None
        ]
        self.stats.calls += 1
        self.stats.masked_rows += len(self._unfilled)
        if not called_after_forward(self._manager):
            self._fill_batch(non_blocking=False)  # the graph runs on another stream
            if self._table is not None:
                self._table.send([slot for slot in self._slots if slot >= 0])
        return torch.tensor(self._slots, dtype=torch.int32, device="cpu")

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """A copy of the scores with -inf for every token that a request's constraint forbids.

        Args:
            scores: (rows, vocab) float32, on the masks' device; read only.
            tensor_arg: (>= rows,) int32 on the same device: slots.

        Streams: runs on the current stream. Waits only for the tokens of a batch before this one; if the masks are
            found already, for nothing, so that it can be captured in a CUDA graph.
        """
        assert self._kernel is not None and self._shared is not None, "fill_defaults comes first"
        if not self._unfilled:
            return self._kernel(scores, self._shared, tensor_arg, self._own, self._stops)[0]
        self._fill_batch(non_blocking=True)
        slots = to_device(self._slots, scores.device, dtype=torch.int32)
        if self._table is None:
            return self._kernel(scores, self._shared, slots, self._own, self._stops)[0]
        with self._table.on_device([slot for slot in self._slots if slot >= 0]) as shared:
            return self._kernel(scores, shared, slots, self._own, self._stops)[0]

    def _fill_batch(self, *, non_blocking: bool) -> None:
        """Find the masks of the batch, and copy those that are in no table to the device on the current stream."""
        unfilled, self._unfilled = self._unfilled, []
        in_flight = tokens_in_flight(self._manager, (one.state for one in unfilled)) if unfilled else {}
        start = time.perf_counter_ns()
        lease = self._leases[self._half] = None if self._table is None else Lease(self._table)
        first = last = self._half * (len(self._own) // 2)
        for one in unfilled:
            slot = self._filled(one, last, lease, in_flight.get(id(one.state)))
            self._slots[one.row] = -2 - last if slot is None else slot
            last += slot is None
        if self._own is not self._host and last > first:
            self._own[first:last].copy_(self._host[first:last], non_blocking=non_blocking)
        self.stats.fill_ns += time.perf_counter_ns() - start

    def _filled(self, unfilled: _Unfilled, index: int, lease: Lease | None, in_flight: int | None) -> int | None:
        """The slot of a request's mask in the table; None if it was written into the buffer.

        Args:
            unfilled: the request; only stop tokens are allowed if it has ended by itself.
            index: where it is written in the buffer.
            lease: keeps rows of the table.
            in_flight: its token that the manager has not read yet.
        """
        state, request = unfilled.state, unfilled.request
        try:
            followed = self._up_to_date(state, request)
            ahead = followed.taken - num_generated(state)  # tokens of the row that the manager has not read yet
            if in_flight is not None and not ahead:
                followed.take(in_flight)
                ahead = 1
            row = followed.row
            left = tokens_left(state)
            left = None if left is None else left - ahead
            # A row may have ended in the running batch: then the manager discards what this batch writes.
            if not (ahead and (row.state is RowState.STOPPED or (left is not None and left <= 0))):
                slot = fill_or_find(row, self._host, index, left, lease)
                if slot is not None or row.is_open:
                    return slot
                reason = "its constraint forbids the chosen token: another logits processor has changed the scores"
                reason = f"dead end: {row.dead_end}" if row.dead_end else reason
                state.error = f"{request.constraint} was not finished: {reason}"
        except Exception as error:  # making its first row may raise any error
            self._rows.pop(state.request_id, None)  # its matcher may be at a wrong position
            state.error = f"{request.constraint} was not finished: {cause(error)}"
        stops = self.vocabulary.stops_with_logits(request.stop_token_ids)
        self._host.numpy()[index] = self.vocabulary.bitmask_of(stops)
        return None

    def _up_to_date(self, state: Any, request: RequestConstraint) -> _FollowedRow:
        """The row of a request, after the output that its state has; may raise any error if it makes a row."""
        rows, request_id = self._rows, state.request_id
        followed = rows.get(request_id)
        if followed is None or followed.state() is not state:

            def gone(reference: weakref.ref[Any]) -> None:
                # The id may belong to a new state by now.
                if request_id in rows and rows[request_id].state is reference:
                    del rows[request_id]

            row = request.first_row(self._new_session) if request.row is None else request.row.fork()
            followed = rows[request_id] = _FollowedRow(weakref.ref(state, gone), row)
        followed.take(*new_tokens(state, followed.taken))
        return followed
