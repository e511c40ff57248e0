"""Random numbers as functions of a row's seed, a position and a token: Gumbel noise by Philox.

A row draws the same numbers in any batch, and a step that is undone consumes none: Philox computes each number from a
key and a counter, without a state. The maximum of log p + noise is a sample of p.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_HALF = 1 << 31
_UNIT = 2.0**-32
_ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).

    Args:
        counter: four int64 tensors that broadcast, each number below 2^32.
        key: two of the same kind.

    Returns:
        Four int64 tensors of numbers below 2^32.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        # The product may have all 64 bits: int64 wraps around, with the right bits.
        first, second = c0 * _FACTORS[0], c2 * _FACTORS[1]
        c0, c1, c2, c3 = (second >> 32 & _LOW) ^ c1 ^ k0, second & _LOW, (first >> 32 & _LOW) ^ c3 ^ k1, first & _LOW
        k0, k1 = k0 + _WEYL[0] & _LOW, k1 + _WEYL[1] & _LOW
    return c0, c1, c2, c3


def exponential(high: Tensor, low: Tensor) -> Tensor:
    """float32: -log(1 - u) of u = (64 random bits + 1/2) / 2^64; never 0, never infinite.

    u is used if it is below one half, and 1 - u otherwise: in float32 the 128 greatest of 2^32 numbers would round to
    1, whose logarithm is 0. The small results decide which token wins, and there u has all its bits.

    Args:
        high: int64, the upper 32 bits.
        low: int64, the lower 32 bits.
    """
    u = (high.float() + (low.float() + 0.5) * _UNIT) * _UNIT
    rest = ((_LOW - high).float() + 0.5) * _UNIT
    return torch.where(high < _HALF, -torch.log1p(-u), -torch.log(rest))


def gumbel(seed: Tensor, position: Tensor, tokens: Tensor) -> Tensor:
    """(rows, tokens) float32 noise.

    Args:
        seed: (rows,) int64.
        position: (rows,) int32.
        tokens: (tokens,) int64 ids.
    """
    zero = torch.zeros((), dtype=torch.int64, device=seed.device)
    positions = position.long().unsqueeze(1) & _LOW
    key = (seed & _LOW).unsqueeze(1), (seed >> 32 & _LOW).unsqueeze(1)
    high, low, _, _ = philox((tokens.unsqueeze(0), positions, zero, zero), key)
    return -torch.log(exponential(high, low))
