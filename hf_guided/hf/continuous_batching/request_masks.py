"""The masks of the requests that share a batch, for transformers' continuous batching.

A manager's processor is given one int32 per line of logits. Ours is a *slot*: a line of one mask buffer, which stays
where it is for as long as the manager's tensors do, so that a CUDA graph that has captured ``__call__`` reads the masks
of whatever batch it is replayed for. Free requests are left alone. Lines of logits that only fill a graph's shape may
still hold the slot of an earlier batch, therefore no slot ever forbids everything: sampling from it would be an error
on the device.

Before each forward pass the generation thread asks for the slots of the requests that are about to get a token. There a
request's row takes the tokens that have come since, and its mask is filled. Rows belong to request states: a request
that has to give back its cache comes again with a new state, and a new row takes all of its output. Rows of requests
that have ended or were cancelled go away with their states, of which we are not told otherwise.

Whatever goes wrong with one request ends that one alone: it may take stop tokens only, and its output says why
(``GenerationOutput.error``). An exception here would end the generation thread, and everybody's requests with it.
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
from ...session.row import Row
from ...session.stats import SessionStats
from ...vocabulary.bitmask import allocate_bitmask
from ...vocabulary.tokens import Vocabulary
from ..device.kernel_loader import find
from ..device.kernels import Kernels, TorchKernels
from ..device.lane import LEAVE_ALONE
from .compat import ContinuousBatchingLogitsProcessor, new_tokens, num_generated, tokens_left


@dataclass(frozen=True)
class Asked:
    """What governs a request; travels in its keyword arguments, which are copied for forks and sent to other processes.

    Args:
        constraint: what its text has to be.
        backend: "auto", or the name of a backend.
        prefix: what of the answer its prompt already holds.
        stop_token_ids: tokens that end it.
        max_new_tokens: within how many tokens its text closes; None sets no such limit.
        row: at the start of its output, for this process; forked, never advanced.
    """

    constraint: Constraint
    backend: str
    prefix: str | None
    stop_token_ids: tuple[int, ...]
    max_new_tokens: int | None
    row: Row | None = field(default=None, compare=False, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Asked:
        return self  # nothing of it changes, so forks share what was compiled

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the row: grammars stay in their process, and another one compiles its own.
        return Asked, (self.constraint, self.backend, self.prefix, self.stop_token_ids, self.max_new_tokens)


@dataclass
class _Followed:
    """A request state beside its row, and how much of its output the row has taken."""

    state: weakref.ref[Any]
    row: Row
    taken: int = 0


class RequestMasks(ContinuousBatchingLogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every guided request of a manager inside its constraint; free ones come through bit for bit.

    Args:
        vocabulary: of the tokenizer whose tokens the requests are made of.
        begin: makes the row of a request that brings none, because another process has added it.
        config: the manager's; its ``max_requests_per_batch`` is final when the first tensors are made.

    Thread: the manager's generation thread, one at a time.
    """

    supported_kwargs: ClassVar[dict[str, type]] = {"response_format": Asked}
    ignored_kwargs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, vocabulary: Vocabulary, begin: Callable[[Asked], Row], config: Any):
        self.vocabulary = vocabulary
        self.stats = SessionStats()
        self._begin = begin
        self._config = config
        self._followed: dict[str, _Followed] = {}  # by request id
        self._masks = self._host = allocate_bitmask(0, vocabulary.padded_size)  # (slots, words) on device and host
        self._kernels: Kernels = TorchKernels()

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """Make room for the masks of a whole batch, where the logits will be.

        Args:
            int32_tensor: (1,) int32 on that device; written: the slot of a line nobody has asked anything for.
        """
        int32_tensor.fill_(LEAVE_ALONE)
        device, slots = int32_tensor.device, self._config.max_requests_per_batch
        self._host = allocate_bitmask(slots, self.vocabulary.padded_size, pin_memory=device.type == "cuda")
        self._masks = self._host if device.type == "cpu" else self._host.to(device)
        self._kernels = find(device=device).kernels  # here, because nothing may be compiled while a graph is captured

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """Fill the masks of one batch.

        Args:
            requests_with_new_token: transformers' ``FutureRequestState``, one for each line of logits.

        Returns:
            (lines,) int32 on CPU: their slots.

        Streams: waits until the masks are on the device. Nothing else is under way there: the tokens of the batch
            before have arrived, or this would not know them.
        """
        start = time.perf_counter_ns()
        slots: list[int] = []
        used = 0
        for future in requests_with_new_token:
            asked = future.state.logit_processor_kwargs.get("response_format")
            if asked is None:
                slots.append(LEAVE_ALONE)
                continue
            self._fill(used, future.state, asked)
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
            scores: (lines, vocab) float32, on the device the masks are on; read only.
            tensor_arg: (>= lines,) int32 on the same device: slots.

        Streams: runs on the current stream and never waits; can be captured in a CUDA graph.
        """
        masked = scores.clone()  # they may be the model's own
        self._kernels.apply_slots_(masked, self._masks, tensor_arg[: len(scores)])
        return masked

    def _fill(self, slot: int, state: Any, asked: Asked) -> None:
        """Say what a request may take next; stop tokens only where it has come to an end of its own."""
        try:
            row = self._row_of(state, asked)
            if row.fill(self._host, slot, tokens_left(state)):
                return
            if row.ends_dead:
                why = f"dead end: {row.limit or 'no token of this vocabulary continues its text'}"
            else:
                why = "a token was chosen that its constraint forbids, so another logits processor has changed scores"
        except Exception as error:  # an engine may raise anything
            self._followed.pop(state.request_id, None)  # nothing is known of this row any more
            why = f"{type(error).__name__}: {error}"
        state.error = f"{asked.constraint} was not finished: {why}"
        self._host.numpy()[slot] = self.vocabulary.bitmask_of(asked.stop_token_ids)

    def _row_of(self, state: Any, asked: Asked) -> Row:
        """The request's row behind all of its output."""
        followed = self._followed.get(state.request_id)
        if followed is None or followed.state() is not state:
            row = self._begin(asked) if asked.row is None else asked.row.fork()
            followed = self._followed[state.request_id] = _Followed(self._watched(state), row)
        for token_id in new_tokens(state, followed.taken):
            followed.row.advance(token_id)
        followed.taken = num_generated(state)
        return followed.row

    def _watched(self, state: Any) -> weakref.ref[Any]:
        """A reference to the state, with which its row goes away."""
        request_id, followed = state.request_id, self._followed

        def gone(reference: weakref.ref[Any]) -> None:
            # The id may have a new state by now.
            if request_id in followed and followed[request_id].state is reference:
                del followed[request_id]

        return weakref.ref(state, gone)
