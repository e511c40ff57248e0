"""When a row ends: generate()'s stopping criteria, asked about rows of different lengths, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList


class RowStops:
    """Stop tokens and the greatest length are looked up; other criteria are called with the row alone.

    Args:
        criteria: of this generate() call.
        device: where ``input_ids`` are.
    """

    def __init__(self, criteria: StoppingCriteriaList, device: torch.device):
        self.eos_token_ids: set[int] = set()
        self._max_length: float = float("inf")
        self._others: list[Any] = []
        self._device = device
        for one in criteria:
            if isinstance(one, EosTokenCriteria):
                self.eos_token_ids.update(one.eos_token_id.tolist())
            elif isinstance(one, MaxLengthCriteria):
                self._max_length = min(self._max_length, one.max_length)
            else:
                self._others.append(one)

    def room(self, token_ids: Sequence[int]) -> float:
        """How many tokens more the greatest length allows; infinity if there is none."""
        return self._max_length - len(token_ids)

    def __call__(self, token_ids: Sequence[int]) -> bool:
        """Whether a row ends with its last token, given prompt (padding included) and output so far."""
        over = token_ids[-1] in self.eos_token_ids or len(token_ids) >= self._max_length
        if self._others:
            ids = torch.tensor([token_ids], device=self._device)
            for one in self._others:  # all of them: they may keep count
                over = bool(torch.as_tensor(one(ids, None)).all()) or over  # generate() takes a plain bool too
        return over
