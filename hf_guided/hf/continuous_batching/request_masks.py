"""The masks of the requests in a batch, for transformers' continuous batching.

A manager's processor is given one int32 for each row of logits. Ours is a *slot*: a row of one mask buffer, which keeps
its address as long as the manager's tensors, so that a CUDA graph that has captured ``__call__`` reads the masks of
each batch it is replayed for. Free requests are not masked. Rows of logits that only pad a graph's shape may still hold
the slot of an earlier batch, therefore no slot ever forbids all tokens: sampling from it would be an error on the
device.

The generation thread requests the slots of a batch before its forward pass. Then each request's row takes its new
tokens, and its mask is filled. That happens after the forward pass is queued, while the device works on it; or before,
if the pass is a CUDA graph, which contains the sampling and calls no Python. With asynchronous batching, the batch
before still runs when this one is prepared: a batch that continues guided requests waits for its tokens, and a batch of
free requests does not. Slots alternate between two halves of the buffer, because the running batch may still read its
own.

An error in one request ends only that request: its mask then allows only stop tokens, and its output has the reason
(``GenerationOutput.error``). An exception here would end the generation thread, and with it all requests.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import cause
from ...session.mask_kernel import NOT_MASKED, MaskKernel, mask_kernel
from ...session.row import Row, RowState
from ...session.stats import SessionStats
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from .compat import (
    ContinuousBatchingLogitsProcessor,
    called_after_forward,
    num_generated,
    tokens_in_flight,
    tokens_left,
)
from .followed_rows import FollowedRow, FollowedRows, RequestConstraint


@dataclass(frozen=True)
class _Unfilled:
    """A mask to fill: its slot, and the state and constraint of its request."""

    slot: int
    state: Any
    request: RequestConstraint


class RequestMasks(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every guided request of a manager inside its constraint; free ones are returned bit for bit.

    Args:
        vocabulary: of the requests' tokenizer.
        begin: makes the row of a request that has none, because another process has added it.
        manager: calls it; its ``max_requests_per_batch`` is final when the first tensors are made.

    Thread: the manager's generation thread, one at a time.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"response_format": RequestConstraint}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocabulary: Vocabulary, begin: Callable[[RequestConstraint], Row], manager: Any):
        self.vocabulary = vocabulary
        self.stats = SessionStats()
        self._manager = weakref.proxy(manager)  # which owns this object
        self._rows = FollowedRows(begin)
        self._masks = self._host = allocate_bitmask(0, vocabulary.padded_size)  # (2 * slots, words) on device and host
        self._half = 0
        self._unfilled: list[_Unfilled] = []  # masks of the batch that is being prepared
        self._kernel: MaskKernel | None = None

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """Allocate the masks of two batches, on the device of the logits.

        Args:
            int32_tensor: (1,) int32 on that device, or on the host where the manager keeps a copy of its tensors;
                written: the slot of a row of logits without a constraint.
        """
        int32_tensor.fill_(NOT_MASKED)
        device, slots = int32_tensor.device, 2 * self._manager.continuous_batching_config.max_requests_per_batch
        if device.type != self._manager.model.device.type or (len(self._masks), self._masks.device) == (slots, device):
            return  # the masks keep their address
        self._host = allocate_bitmask(slots, self.vocabulary.padded_size, pin_memory=device.type == "cuda")
        self._masks = self._host if device.type == "cpu" else self._host.to(device)
        self._kernel = mask_kernel(device)  # here, because a compilation during graph capture is an error

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Assign the slots of one batch, and fill its masks unless ``__call__`` can do it.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each row of logits.

        Returns:
            (rows,) int32 on CPU: their slots.

        Streams: if it fills masks, it waits until they are on the device, and with asynchronous batching for the tokens
            of the running batch.
        """
        self._half = 1 - self._half
        self._unfilled = []
        slots = [self._slot_of(future.state) for future in requests_with_new_token]
        self.stats.calls += 1
        self.stats.masked_rows += len(self._unfilled)
        if not called_after_forward(self._manager):
            self._fill_batch(non_blocking=False)  # the graph runs on another stream
        return torch.tensor(slots, dtype=torch.int32)

    def _slot_of(self, state: Any) -> int:
        """The slot of a request in this batch, whose mask is to be filled; ``NOT_MASKED`` if it is free."""
        request = state.logit_processor_kwargs.get("response_format")
        if request is None:
            return NOT_MASKED
        slot = self._half * (len(self._masks) // 2) + len(self._unfilled)
        self._unfilled.append(_Unfilled(slot, state, request))
        return slot

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """A copy of the scores with -inf for every token that a request's constraint forbids.

        Args:
            scores: (rows, vocab) float32, on the masks' device; read only.
            tensor_arg: (>= rows,) int32 on the same device: slots.

        Streams: runs on the current stream. Waits only for the tokens of a batch before this one; if the masks are
            filled already, for nothing, so that it can be captured in a CUDA graph.
        """
        if self._unfilled:
            self._fill_batch(non_blocking=True)
        assert self._kernel is not None, "fill_defaults comes first"
        return self._kernel(scores, self._masks, tensor_arg)[0]

    def _fill_batch(self, *, non_blocking: bool) -> None:
        """Fill the masks of the batch, and copy them to the device on the current stream."""
        unfilled, self._unfilled = self._unfilled, []
        if not unfilled:
            return
        in_flight = tokens_in_flight(self._manager, (one.state for one in unfilled))
        start = time.perf_counter_ns()
        for one in unfilled:
            self._fill(one, in_flight.get(id(one.state)))
        if self._masks is not self._host:
            filled = slice(unfilled[0].slot, unfilled[-1].slot + 1)
            self._masks[filled].copy_(self._host[filled], non_blocking=non_blocking)
        self.stats.fill_ns += time.perf_counter_ns() - start

    def _fill(self, unfilled: _Unfilled, in_flight: int | None) -> None:
        """Fill the mask of a request; only stop tokens if it has ended by itself.

        Args:
            unfilled: the request and its slot.
            in_flight: its token that the manager has not read yet.
        """
        slot, state, request = unfilled.slot, unfilled.state, unfilled.request
        try:
            followed = self._rows.up_to_date(state, request)
            if in_flight is not None and not num_ahead(followed, state):
                followed.take(in_flight)
            row, ahead = followed.row, num_ahead(followed, state)
            left = tokens_left(state)
            left = None if left is None else left - ahead
            # It may have ended in the running batch: then the manager throws away what this batch writes.
            if not (ahead and (row.state is RowState.STOPPED or (left is not None and left <= 0))):
                if row.fill(self._host, slot, left):
                    return
                state.error = self._error_of(request, row)
        except Exception as error:  # making its first row may raise any error
            self._rows.forget(state.request_id)  # the state of this row is unknown
            state.error = f"{request.constraint} was not finished: {cause(error)}"
        stops = self.vocabulary.stops_with_logits(request.stop_token_ids)
        self._host.numpy()[slot] = self.vocabulary.bitmask_of(stops)

    @staticmethod
    def _error_of(request: RequestConstraint, row: Row) -> str:
        reason = "its constraint forbids the chosen token: another logits processor has changed the scores"
        if row.dead_end:
            reason = f"dead end: {row.dead_end}"
        return f"{request.constraint} was not finished: {reason}"


def num_ahead(followed: FollowedRow, state: Any) -> int:
    """How many tokens of a row the manager has not read yet."""
    return followed.taken - num_generated(state)
