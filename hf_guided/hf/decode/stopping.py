"""When a row ends: generate()'s stopping criteria, for rows of different lengths, one token at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StoppingCriteriaList


class RowStops:
    """Looks up stop tokens and the maximum length; calls other criteria with one row.

    Args:
        criteria: of this generate() call.
        device: where ``input_ids`` are.
    """

    def __init__(self, criteria: StoppingCriteriaList, device: torch.device):
        self.eos_token_ids: set[int] = set()
        self._max_length: float = float("inf")
        self.criteria: list[Any] = []  # the others, which read the tokens
        self.device = device
        for criterion in criteria:
            if isinstance(criterion, EosTokenCriteria):
                self.eos_token_ids.update(criterion.eos_token_id.tolist())
            elif isinstance(criterion, MaxLengthCriteria):
                self._max_length = min(self._max_length, criterion.max_length)
            else:
                self.criteria.append(criterion)

    def room(self, token_ids: Sequence[int]) -> float:
        """How many more tokens the maximum length allows; infinity without one."""
        return self._max_length - len(token_ids)

    def by_look_up(self, token_ids: Sequence[int]) -> bool:
        """Whether the last token is a stop token, or the maximum length is reached."""
        return token_ids[-1] in self.eos_token_ids or len(token_ids) >= self._max_length

    def __call__(self, token_ids: Sequence[int]) -> bool:
        """Whether a row ends with its last token, given prompt (padding included) and output so far."""
        ends = self.by_look_up(token_ids)
        if self.criteria:
            ids = torch.tensor([token_ids], device=self.device)
            for criterion in self.criteria:  # all of them: they may keep count
                ends = bool(torch.as_tensor(criterion(ids, None)).all()) or ends  # generate() takes a plain bool too
        return ends
