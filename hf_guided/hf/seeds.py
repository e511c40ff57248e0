"""Seeds of rows: functions of the caller's seed and of the row's index, independent of the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument, shown

BITS = 64


def row_seed(seed: int, *index: int) -> int:
    """The seed of a row: a 64-bit hash of seed and index.

    Args:
        seed: any int.
        index: numbers that identify the row.
    """
    digest = hashlib.blake2b(repr((seed, *index)).encode(), digest_size=BITS // 8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prompt_seeds(seed: Any, prompts: int) -> list[int] | None:
    """One seed for each prompt; None without a seed.

    Args:
        seed: one int for all, one int for each, or None.
        prompts: the number of prompts.

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
