"""Appends chosen tokens to the rows of a lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .lane import Lane
from .staging import Staging


@dataclass(frozen=True, eq=False)
class RowOutput:
    """Where the rows' tokens are appended, on the device; ``append_`` and the kernel ``gb_pick`` write it.

    Args:
        tokens: (rows, at least capacity) int64, the lane's.
        length: (rows,) int32, the lane's.
        capacity: the maximum number of tokens for each row.
        ended: (rows,) bool, rows that have taken a token of ``ends``.
        last: (rows, 1) int64, the last token of each row.
        fallbacks: (rows,) int64, for each row the token that it takes if it can choose none.
        pad_token_id: what rows that have ended take.
        ends: (tokens,) int64, the tokens that end a row.
    """

    tokens: Tensor
    length: Tensor
    capacity: int
    ended: Tensor
    last: Tensor
    fallbacks: Tensor
    pad_token_id: int
    ends: Tensor

    @classmethod
    def of(
        cls,
        lane: Lane,
        staging: Staging,
        *,
        eos_token_ids: Sequence[int],
        pad_token_id: int,
        fallbacks: Sequence[int],
    ) -> RowOutput:
        """The output of a lane at its beginning; its tensors have their numbers once ``staging`` is sent."""
        return cls(
            tokens=lane.tokens,
            length=lane.length,
            capacity=lane.capacity,
            ended=staging.full((lane.rows,), False, torch.bool),
            last=staging.full((lane.rows, 1), 0, torch.int64),
            fallbacks=staging.put(fallbacks, torch.int64),
            pad_token_id=pad_token_id,
            ends=staging.put(eos_token_ids, torch.int64),
        )

    def append_(self, chosen: Tensor) -> None:
        """Append a token to every row.

        Args:
            chosen: (rows,) int64; -1 for rows that can choose none. Ended rows take padding.
        """
        tokens = torch.where(chosen < 0, self.fallbacks, chosen).masked_fill_(self.ended, self.pad_token_id)
        self.last[:, 0] = tokens
        self.tokens.scatter_(1, self.length.long().unsqueeze(1), self.last)
        self.length.add_(1)
        self.ended.logical_or_((self.last == self.ends).any(1))
