"""OpenAI's penalties and logit_bias as logits processors.

They compute everything from the token ids that they are called with, and keep no state. So they are right in any loop:
for drafts that are rejected, for rows that were rolled back, and for rows that moved in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import LogitsProcessor


class OccurrencePenalties(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Subtracts from the logits of the tokens that the answer has already, as OpenAI defines it.

    Args:
        prompt_length: tokens before the answer, which do not count.
        presence: subtracted once from each token of the answer.
        frequency: subtracted for each time that the token is in the answer.
    """

    keeps_no_state = True

    def __init__(self, prompt_length: int, presence: float, frequency: float):
        self._prompt_length = prompt_length
        self._presence, self._frequency = presence, frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), a new tensor, given the ids so far (rows, length)."""
        answer = input_ids[:, self._prompt_length :]
        counts = torch.zeros_like(scores).scatter_add_(1, answer, torch.ones_like(answer, dtype=scores.dtype))
        return scores - self._frequency * counts - self._presence * (counts > 0)


class LogitBias(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Adds to the logits of some tokens.

    Args:
        bias: token ids, and what is added to their logits.
    """

    keeps_no_state = True

    def __init__(self, bias: Mapping[int, float]):
        self._token_ids, self._values = list(bias), list(bias.values())

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), a new tensor."""
        index = torch.tensor(self._token_ids, device=scores.device)
        return scores.index_add(1, index, scores.new_tensor(self._values).expand(len(scores), -1))
