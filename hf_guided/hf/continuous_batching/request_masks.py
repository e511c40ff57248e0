"""The masks of the requests in a batch, for transformers' continuous batching.

A manager's processor is given one int32 for each row of logits. Ours is a *slot*: a row of one mask buffer, which keeps
its address as long as the manager's tensors, so that a CUDA graph that has captured ``__call__`` reads the masks of
each batch it is replayed for. Free requests are not masked. Rows of logits that only pad a graph's shape may still hold
the slot of an earlier batch, therefore no slot ever forbids all tokens: sampling from it would be an error on the
device.

Before each forward pass the generation thread requests the slots of the requests that will get a token. Then a
request's row takes its new tokens, and its mask is filled. Rows belong to request states: a request that has lost its
cache returns with a new state, and a new row takes all of its output. The rows of requests that have ended or were
cancelled are deleted together with their states, because the manager reports neither.

An error in one request ends only that request: its mask then allows only stop tokens, and its output has the reason
(``GenerationOutput.error``). An exception here would end the generation thread, and with it all requests.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...constraints.values import Constraint
from ...errors import cause
from ...session.row import Row
from ...session.stats import SessionStats
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from ..device.kernel_loader import find
from ..device.kernels import Kernels, TorchKernels
from ..device.lane import LEAVE_ALONE
from .compat import ContinuousBatchingLogitsProcessor, new_tokens, num_generated, tokens_left


@dataclass(frozen=True)
class RequestConstraint:
    """The constraint of a request; one of its keyword arguments, which are copied for forks and sent between processes.

    Args:
        constraint: of its text.
        backend: "auto", or the name of a backend.
        prefix: the beginning of the answer that its prompt already contains.
        stop_token_ids: tokens that end it.
        max_new_tokens: its text closes within this many tokens; None sets no limit.
        row: at the start of its output, for this process; forked, never advanced.
    """

    constraint: Constraint
    backend: str
    prefix: str | None
    stop_token_ids: tuple[int, ...]
    max_new_tokens: int | None
    row: Row | None = field(default=None, compare=False, repr=False)

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


class RequestMasks(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every guided request of a manager inside its constraint; free ones are returned bit for bit.

    Args:
        vocabulary: of the requests' tokenizer.
        begin: makes the row of a request that has none, because another process has added it.
        config: the manager's; its ``max_requests_per_batch`` is final when the first tensors are made.

    Thread: the manager's generation thread, one at a time.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"response_format": RequestConstraint}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocabulary: Vocabulary, begin: Callable[[RequestConstraint], Row], config: Any):
        self.vocabulary = vocabulary
        self.stats = SessionStats()
        self._begin = begin
        self._config = config
        self._rows: dict[str, _FollowedRow] = {}  # by request id
        self._masks = self._host = allocate_bitmask(0, vocabulary.padded_size)  # (slots, words) on device and host
        self._kernels: Kernels = TorchKernels()

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """Allocate the masks of a whole batch, on the device of the logits.

        Args:
            int32_tensor: (1,) int32 on that device; written: the slot of a row of logits without a constraint.
        """
        int32_tensor.fill_(LEAVE_ALONE)
        device, slots = int32_tensor.device, self._config.max_requests_per_batch
        self._host = allocate_bitmask(slots, self.vocabulary.padded_size, pin_memory=device.type == "cuda")
        self._masks = self._host if device.type == "cpu" else self._host.to(device)
        self._kernels = find(device=device).kernels  # here, because a compilation during graph capture is an error

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Fill the masks of one batch.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each row of logits.

        Returns:
            (rows,) int32 on CPU: their slots.

        Streams: waits until the masks are on the device. No other work is queued there: the previous batch's tokens
            have arrived, because this call knows them.
        """
        start = time.perf_counter_ns()
        slots: list[int] = []
        used = 0
        for future in requests_with_new_token:
            request = future.state.logit_processor_kwargs.get("response_format")
            if request is None:
                slots.append(LEAVE_ALONE)
                continue
            self._fill(used, future.state, request)
            slots.append(used)
            used += 1
        if used and self._masks is not self._host:
            self._masks[:used].copy_(self._host[:used])
        self.stats.calls += 1
        self.stats.masked_rows += used
        self.stats.fill_ns += time.perf_counter_ns() - start
        return torch.tensor(slots, dtype=torch.int32)

    def __call__(self, scores: Tensor, tensor_arg: Tensor) -> Tensor:
        """A copy of the scores with -inf for every token that a request's constraint forbids.

        Args:
            scores: (rows, vocab) float32, on the masks' device; read only.
            tensor_arg: (>= rows,) int32 on the same device: slots.

        Streams: runs on the current stream and never waits; can be captured in a CUDA graph.
        """
        masked = scores.clone()  # they may be the model's own
        self._kernels.apply_slots_(masked, self._masks, tensor_arg[: len(scores)])
        return masked

    def _fill(self, slot: int, state: Any, request: RequestConstraint) -> None:
        """Fill the mask of a request; only stop tokens if it has ended by itself."""
        try:
            row = self._row_of(state, request)
            if row.fill(self._host, slot, tokens_left(state)):
                return
            reason = "its constraint forbids the chosen token: another logits processor has changed the scores"
            if row.dead_end:
                reason = f"dead end: {row.dead_end}"
        except Exception as error:  # making its first row may raise any error
            self._rows.pop(state.request_id, None)  # the state of this row is unknown
            reason = cause(error)
        state.error = f"{request.constraint} was not finished: {reason}"
        stops = self.vocabulary.stops_with_logits(request.stop_token_ids)
        self._host.numpy()[slot] = self.vocabulary.bitmask_of(stops)

    def _row_of(self, state: Any, request: RequestConstraint) -> Row:
        """The request's row after all of its output."""
        followed = self._rows.get(state.request_id)
        if followed is None or followed.state() is not state:
            row = self._begin(request) if request.row is None else request.row.fork()
            followed = self._rows[state.request_id] = _FollowedRow(self._watched(state), row)
        for token_id in new_tokens(state, followed.taken):
            followed.row.advance(token_id)
        followed.taken = num_generated(state)
        return followed.row

    def _watched(self, state: Any) -> weakref.ref[Any]:
        """A weak reference to the state that deletes its row together with it."""
        request_id, followed = state.request_id, self._rows

        def gone(reference: weakref.ref[Any]) -> None:
            # The id may belong to a new state by now.
            if request_id in followed and followed[request_id].state is reference:
                del followed[request_id]

        return weakref.ref(state, gone)
