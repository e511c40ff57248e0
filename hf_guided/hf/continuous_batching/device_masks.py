"""Masks of a manager's requests that their device makes by itself, where our automaton has compiled the constraint.

The states of such requests stay on the device (see request_states.py), which advances them by the tokens that the step
before has chosen. So a batch needs no token from the host: with asynchronous batching it is queued while the batch
before it still runs, and a CUDA graph holds the whole step. The host follows with the tokens that the manager has read,
one or two steps later, and ends a request whose tokens leave its constraint.

Other constraints, and more of them at a time than the device has places for, are masked as request_masks.py says, in
the same batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import cause
from ...session.row import Row
from ...vocabulary.tokens import Vocabulary
from ..device.kernels import TorchKernels
from ..device.lane import LEAVE_ALONE
from ..device.request_states import CONTINUES, RequestStates, RowStep
from ..device.requests import NotOnDevice
from ..device.row_start import Start, start_of
from .compat import (
    ProcessorOfTokens,
    compute_stream,
    num_generated,
    tokens_in_flight,
    tokens_left,
    with_token_in_flight,
)
from .followed_rows import FollowedRow, RequestConstraint
from .request_masks import RequestMasks

_FREE = RowStep()


@dataclass
class _Seated:
    """A request whose state is on the device.

    Args:
        language: its constraint there.
        taken: how many tokens of its output the state has taken after the steps that are queued.
        think_until: the number of tokens of its output after which its thinking has to end; None without a limit.
    """

    language: object
    taken: int
    think_until: int | None

    def is_before(self, language: object, num_tokens: int) -> bool:
        """Whether it is the state of this constraint before the last of these tokens."""
        return self.language is language and self.taken == num_tokens - 1


class DeviceRequestMasks(RequestMasks, ProcessorOfTokens):
    """Keeps every guided request of a manager inside its constraint, on the device where it can.

    Args:
        vocabulary: of the requests' tokenizer.
        begin: as for ``RequestMasks``.
        manager: as for ``RequestMasks``.
        stop_token_ids: of the manager; requests that end with other tokens are masked by the host.
    """

    num_arguments = 1 + len(RowStep._fields)

    def __init__(
        self,
        vocabulary: Vocabulary,
        begin: Callable[[RequestConstraint], Row],
        manager: Any,
        stop_token_ids: Sequence[int],
    ):
        super().__init__(vocabulary, begin, manager)
        self.host_reason = ""  # why the host makes all masks, or the last error for which it has made one
        self._stop_token_ids = frozenset(stop_token_ids)
        self._seated: dict[str, _Seated] = {}  # by request id
        self._states: RequestStates | None = None
        self._in_flight: frozenset[int] = frozenset()

    def fill_defaults(self, int32_tensor: Tensor) -> None:
        """As for ``RequestMasks``, of (num_arguments, 1) int32; allocates the states too."""
        masks = self._masks
        super().fill_defaults(int32_tensor[0])
        int32_tensor[1:, 0] = torch.tensor(_FREE)
        if self._masks is masks:
            return
        device = self._masks.device
        if any(map(self.vocabulary.is_text, self._stop_token_ids)):
            self.host_reason = "a stop token is text otherwise"
        elif device.type == "cuda" and isinstance(self._kernels, TorchKernels):
            self.host_reason = "there are no kernels, and plain torch waits for the device"
        else:
            stops = sorted(self._stop_token_ids)
            self._states = RequestStates(self.vocabulary, stops, self._kernels, device, self._most_rows)
            self._seated.clear()

    @property
    def _most_rows(self) -> int:
        return int(self._manager.continuous_batching_config.max_requests_per_batch)

    def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> Tensor:
        """As for ``RequestMasks``; it waits for tokens of the running batch only if a request needs the host.

        Returns:
            (num_arguments, rows of the largest batch) int32 on CPU: slots, and the numbers of ``RowStep``.
        """
        self._begin_batch()
        if self._states is not None:
            self._states.begin_batch()
            self._in_flight = with_token_in_flight(self._manager)
        arguments = np.empty((self.num_arguments, self._most_rows), np.int32)
        arguments[0], arguments[1:] = LEAVE_ALONE, np.array(_FREE)[:, None]
        num_on_device = 0
        for row, future in enumerate(requests_with_new_token):
            step = self._step_of(future.state)
            if step is None:
                arguments[0, row] = self._slot_of(future.state)
            else:
                arguments[1:, row] = step
                num_on_device += 1
        self.stats.device_steps += num_on_device > 0
        self._end_batch(num_masked=num_on_device + len(self._unfilled))
        return torch.from_numpy(arguments)

    def process(self, input_ids: Tensor, scores: Tensor, arguments: Tensor) -> Tensor:
        """See ``ProcessorOfTokens``.

        Streams: as ``RequestMasks.__call__``.
        """
        masked = self(scores, arguments[0])
        if self._states is not None:
            self._states.step_(input_ids, masked, arguments[1:, : len(scores)])
        return masked

    def _step_of(self, state: Any) -> RowStep | None:
        """What the device's step is told of a request; None if the host makes its mask, or it has none."""
        request = state.logit_processor_kwargs.get("response_format")
        if request is None or self._states is None or self._stop_token_ids != frozenset(request.stop_token_ids):
            return None
        try:
            return self._seated_step(self._states, state, self._rows.up_to_date(state, request))
        except NotOnDevice:
            return None
        except Exception as error:  # one of a row's beginning the host meets again, and reports with the request
            self.host_reason = f"{request.constraint}: {cause(error)}"
            return None

    def _seated_step(self, states: RequestStates, state: Any, followed: FollowedRow) -> RowStep | None:
        """As ``_step_of``, for a row that has all tokens that the manager has read."""
        start = self._start(followed)
        place = None if start.language is None else states.place(start.language, compute_stream(self._manager))
        if place is None:
            return None
        seat, is_new = states.seat(state.request_id)
        num_tokens = max(followed.taken, num_generated(state) + (id(state) in self._in_flight))
        seated = self._seated.get(state.request_id)
        # The device is fed the last of these tokens. Unless it has the state before it, the host has to know them all.
        continues = not is_new and seated is not None and seated.is_before(start.language, num_tokens)
        if not continues or seated is None:
            if followed.taken < num_tokens:
                followed.take(tokens_in_flight(self._manager, [state])[id(state)])
                start = self._start(followed)
            until = None if start.think_until is None else start.think_until + num_tokens
            seated = self._seated[state.request_id] = _Seated(start.language, num_tokens, until)
        seated.taken = num_tokens
        left, until = tokens_left(state), seated.think_until
        return RowStep(
            seat,
            place,
            CONTINUES if continues else start.state,
            -1 if left is None else max(0, left - (num_tokens - num_generated(state))),
            -1 if until is None else max(0, until - (num_tokens - continues)),
        )

    def _start(self, followed: FollowedRow) -> Start:
        return start_of(followed.row, self.vocabulary, tuple(self._stop_token_ids))

    def _gone(self, request_id: str) -> None:
        self._seated.pop(request_id, None)
        if self._states is not None:
            self._states.leave(request_id)
