"""The rows of a call on the device, written in place: their tokens, and whether they have ended."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .device_logprobs import packed_logprobs
from .lane import Lane
from .staging import Staging
from .token_choice import DeviceChoice


class DeviceRows:
    """The rows of one generate() call.

    Args:
        lane: the rows, at their beginning.
        ids: (rows, prompt + capacity) int64, the prompts, and after them the lane's tokens.
        choice: chooses tokens for the lane.
        staging: brings the rows' numbers to the device when the caller sends it.
        eos_token_ids: tokens that end a row, which then continues with padding.
        pad_token_id: the padding.
        fallbacks: for each row the token that it takes if it can choose none.
        top_logprobs: how many alternatives the log probabilities have; None: there are no log probabilities.
    """

    def __init__(
        self,
        lane: Lane,
        ids: Tensor,
        choice: DeviceChoice,
        staging: Staging,
        *,
        eos_token_ids: Sequence[int],
        pad_token_id: int,
        fallbacks: Sequence[int],
        top_logprobs: int | None = None,
    ):
        self._lane = lane
        self._ids = ids
        self._choice = choice
        self._eos = staging.put(eos_token_ids, torch.int64)  # (stop tokens,)
        self._pad = staging.full((lane.rows,), pad_token_id, torch.int64)
        self._fallbacks = staging.put(fallbacks, torch.int64)
        self._ended = staging.full((lane.rows,), False, torch.bool)
        self._index = staging.full((lane.rows, 1), 0, torch.int64)  # of the next token
        self._last = staging.full((lane.rows, 1), 0, torch.int64)
        self._last_row = self._last[:, 0]
        self._top = top_logprobs
        self.logprobs: Tensor | None = None  # ``packed_logprobs`` of the last step

    @property
    def capacity(self) -> int:
        """The maximum number of tokens for each row."""
        return self._lane.capacity

    def take(self, logits: Tensor, position: int) -> Tensor:
        """Let every row choose a token.

        Args:
            logits: (rows, vocab) float32, written.
            position: how many tokens each row has; only processors before the masks use it.

        Returns:
            (rows,) int64, a new tensor; -1 if no token could be chosen. Tokens of ended rows are discarded.
        """
        lane = self._lane
        ids = self._ids[:, : self._ids.shape[1] - lane.capacity + position] if self._choice.reads_ids else self._ids
        chosen = self._choice(ids, logits)
        torch.where(self._ended, self._pad, torch.where(chosen < 0, self._fallbacks, chosen), out=self._last_row)
        if self._top is not None and self._choice.scores is not None:
            self.logprobs = packed_logprobs(self._choice.scores, self._last, self._top)
        lane.tokens.scatter_(1, self._index, self._last)
        lane.length.add_(1)
        self._index.add_(1)
        self._ended.logical_or_((self._last == self._eos).any(1))
        return chosen

    def last(self) -> Tensor:
        """(rows, 1) int64, the last token of each row; ``take`` overwrites it."""
        return self._last
