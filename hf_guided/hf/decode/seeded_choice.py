"""In transformers' own loop, draws tokens from the rows' seeds instead of torch's generator."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor

from ..philox import gumbel


class SeededChoice(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """The last processor of a call: leaves each row only the token that its seed draws, so that sampling takes it.

    Args:
        seeds: one for each row.
        prompt_length: columns of the prompts.
        keep_scores: whether ``scores`` is needed.
    """

    def __init__(self, seeds: Sequence[int], prompt_length: int, *, keep_scores: bool):
        self._seeds = seeds
        self._prompt_length = prompt_length
        self._keep_scores = keep_scores
        self.scores: list[Tensor] = []  # of each step, (rows, vocab), before the choice

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab) that are finite for one token of each row."""
        if self._keep_scores:
            self.scores.append(scores)
        positions = torch.full((len(scores),), input_ids.shape[1] - self._prompt_length, device=scores.device)
        tokens = torch.arange(scores.shape[-1], device=scores.device)
        noise = gumbel(torch.tensor(self._seeds, device=scores.device), positions, tokens)
        drawn = (scores + noise).argmax(-1, keepdim=True)  # (rows, 1)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0)
