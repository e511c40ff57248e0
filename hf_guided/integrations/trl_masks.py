"""Log probabilities of a policy that chooses among the allowed tokens only, and the masks that they need."""

from __future__ import annotations

import torch
from torch import Tensor

from ..vocabulary.bitmask import allocate_bitmask, unpack


class MaskTable:
    """The distinct masks of some completions: a constraint has far fewer masks than completions have tokens.

    Mask 0 allows every token; padding has it.

    Args:
        vocab_size: columns of the logits.
    """

    def __init__(self, vocab_size: int):
        self._vocab_size = vocab_size
        everything = allocate_bitmask(1, vocab_size)
        self._masks = [everything]
        self._numbers = {everything.numpy().tobytes(): 0}

    def add(self, bitmask: Tensor) -> Tensor:
        """Add masks.

        Args:
            bitmask: (tokens, words) int32 on CPU.

        Returns:
            (tokens,) int64: the number of each mask.
        """
        numbers = []
        for mask in bitmask:
            number = self._numbers.setdefault(mask.numpy().tobytes(), len(self._masks))
            if number == len(self._masks):
                self._masks.append(mask[None].clone())
            numbers.append(number)
        return torch.tensor(numbers, dtype=torch.int64)

    def allowed(self, numbers: Tensor) -> Tensor:
        """Masks by their numbers.

        Args:
            numbers: (rows, tokens) int64, any device.

        Returns:
            (rows, tokens, vocab) bool on the same device.
        """
        distinct, place = torch.unique(numbers, return_inverse=True)
        bitmask = torch.cat([self._masks[number] for number in distinct.tolist()])
        return unpack(bitmask.to(numbers.device), self._vocab_size)[place]


def masked_logprobs(logits: Tensor, token_ids: Tensor, allowed: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Log probabilities and entropies of the policy that samples these logits under a mask.

    Args:
        logits: (rows, tokens, vocab) floating point, any device: the model's own.
        token_ids: (rows, tokens) int64, the tokens that were chosen.
        allowed: (rows, tokens, vocab) bool, the tokens that could be chosen.
        temperature: by which logits are divided.

    Returns:
        Two of (rows, tokens), float32 or wider: the natural logarithm of the probability of each token, which is -inf
        for a token that is not allowed; and the entropy, in nats, of the distribution that it was sampled from.
    """
    wide = logits if logits.dtype == torch.float64 else logits.float()
    log_p = (wide / temperature).masked_fill(~allowed, -torch.inf).log_softmax(-1)
    entropy = -(log_p.exp() * log_p.masked_fill(~allowed, 0)).sum(-1)
    return log_p.gather(-1, token_ids.unsqueeze(-1)).squeeze(-1), entropy
