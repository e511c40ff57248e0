"""Seeds of rows, and the random numbers that rows draw from them.

A row's seed is a function of the caller's seed and of the row's index, independent of the batch. A row's random numbers
are functions of its seed, a position and a token: Gumbel noise by Philox, which computes each number from a key and a
counter, without a state. So a row draws the same numbers in any batch, and a step that is undone consumes none. The
maximum of log p + noise is a sample of p.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidArgument, shown

BITS = 64
_LOW = 0xFFFFFFFF
_HALF = 1 << 31
_UNIT = 2.0**-32
_ROUNDS = 10
_FACTORS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85


def row_seed(seed: int, *index: int) -> int:
    """The seed of a row: a 64-bit hash of any int, and of the numbers that identify the row."""
    digest = hashlib.blake2b(repr((seed, *index)).encode(), digest_size=BITS // 8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prompt_seeds(seed: Any, prompts: int) -> list[int] | None:
    """One seed for each prompt, of one int for all or one for each; None without a seed.

    Raises:
        InvalidArgument: another value.
    """
    if seed is None:
        return None
    if _is_int(seed):
        return [row_seed(seed, i) for i in range(prompts)]
    if isinstance(seed, Sequence) and not isinstance(seed, str) and len(seed) == prompts and all(map(_is_int, seed)):
        return list(seed)
    raise InvalidArgument(
        f"seed: expected one int, or a list with one for each of {prompts} prompts, got {shown(seed)}"
    )


def as_int64(seed: Any) -> int:
    """A seed as a signed 64-bit int, the form in which tensors hold it.

    Raises:
        InvalidArgument: it is not an int of 64 bits, signed or unsigned.
    """
    half = 1 << BITS - 1
    if not _is_int(seed) or not -half <= seed < 2 * half:
        raise InvalidArgument(f"seeds: expected ints of 64 bits, got {shown(seed)}")
    return int(seed - 2 * half if seed >= half else seed)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).

    All are int64 tensors of numbers below 2^32, which broadcast.
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
    1, whose logarithm is 0. The small results decide which token wins, and there u has all its bits. ``high`` and
    ``low`` are the upper and the lower 32 bits, int64.
    """
    u = (high.float() + (low.float() + 0.5) * _UNIT) * _UNIT
    rest = ((_LOW - high).float() + 0.5) * _UNIT
    return torch.where(high < _HALF, -torch.log1p(-u), -torch.log(rest))


def gumbel(seed: Tensor, position: Tensor, tokens: Tensor) -> Tensor:
    """(rows, tokens) float32 noise, for seeds (rows,) int64, positions (rows,) int32 and ids (tokens,) int64."""
    zero = torch.zeros((), dtype=torch.int64, device=seed.device)
    positions = position.long().unsqueeze(1) & _LOW
    key = (seed & _LOW).unsqueeze(1), (seed >> 32 & _LOW).unsqueeze(1)
    high, low, _, _ = philox((tokens.unsqueeze(0), positions, zero, zero), key)
    return -torch.log(exponential(high, low))
