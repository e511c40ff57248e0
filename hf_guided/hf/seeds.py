"""Seeds of rows: each a function of what was asked and of the row's place, whatever batch the row is in."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from ..errors import InvalidArgument

BITS = 64


def row_seed(seed: int, *place: int) -> int:
    """The seed of a row: 64 bits that any other seed or place would have made others.

    Args:
        seed: asked for, any int.
        place: numbers that say which row it is.
    """
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=BITS // 8).digest()
    return int.from_bytes(digest, "big", signed=True)


def prompt_seeds(seed: Any, prompts: int) -> list[int] | None:
    """One seed for each prompt; None where none was asked for.

    Args:
        seed: one int for all, one int for each, or None.
        prompts: how many.

    Raises:
        InvalidArgument: it is none of these.
    """
    if seed is None:
        return None
    if _is_int(seed):
        return [row_seed(seed, i) for i in range(prompts)]
    if isinstance(seed, Sequence) and not isinstance(seed, str) and len(seed) == prompts and all(map(_is_int, seed)):
        return list(seed)
    raise InvalidArgument(f"seed: expected one int, or a list with one for each of {prompts} prompts, got {seed!r}")


def as_int64(seed: Any) -> int:
    """A seed as tensors hold it.

    Raises:
        InvalidArgument: it is no int of 64 bits, signed or not.
    """
    half = 1 << BITS - 1
    if not _is_int(seed) or not -half <= seed < 2 * half:
        raise InvalidArgument(f"seeds: expected ints of 64 bits, got {seed!r}")
    return int(seed - 2 * half if seed >= half else seed)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
