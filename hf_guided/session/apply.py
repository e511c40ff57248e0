"""Writes -inf into logits: on a CPU here, on other devices by mask_kernel.py.

It always writes a fresh tensor: generate() keeps the raw logits for ``output_logits``, keeps every processed tensor for
``output_scores``, and prompt lookup passes the same tensor again and again.

On CPU most masks are nearly empty (inside a keyword) or nearly full (inside a string), so a row is built from the side
that has fewer token ids. Masks between the two, and small vocabularies, unpack every bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..vocabulary.bitmask import ALL_ALLOWED, WORD_BITS, check_width
from ..vocabulary.bitmask import words as words_of
from .mask_kernel import NOT_MASKED, mask_kernel, write_log_sums_
from .transfers import to_device

# Above this share of mixed words, unpacking all bits beats gathering ids (measured at 131k tokens).
_GATHER_SHARE = 1 / 8
_SMALL = 8192  # with fewer tokens all bits are always unpacked: finding the set bits takes longer
_PROBE = 4096  # scores that are read first to find one above -inf
_NEG_INF = float("-inf")
Numbers = NDArray[np.signedinteger[Any]]  # one row of scores as integers of their size
_INT_OF_SIZE = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def apply_bitmask(scores: Tensor, bitmask: Tensor, rows: Sequence[int]) -> tuple[Tensor, list[bool]]:
    """A copy of the scores with -inf wherever the bitmask forbids.

    Args:
        scores: (rows, vocab) fp16 | bf16 | fp32 | fp64, any device; read only.
        bitmask: (rows, >= ceil(vocab / 32)) int32 on CPU.
        rows: rows to mask; the others come back bit for bit as they were.

    Returns:
        The masked scores, like ``scores``; and for each of ``rows`` whether an allowed token has a score above -inf
        (NaN is not above it).

    Raises:
        BitmaskShapeError: the bitmask covers fewer tokens than ``scores`` has columns.

    Streams: runs on the current stream; for scores on a GPU it waits for the device once, to learn which rows have an
        allowed score.
    """
    check_width(bitmask, scores.shape[-1])
    slots = [NOT_MASKED] * len(scores)
    if scores.device.type == "cpu":
        words: list[NDArray[np.int32] | None] = [None] * len(scores)
        for i in rows:
            words[i] = bitmask[i].numpy()
        masked, alive = apply_words(scores, words)
    else:
        for slot, row in enumerate(rows):
            slots[row] = slot
        sent = bitmask[list(rows)].to(scores.device), to_device(slots, scores.device, dtype=torch.int32)
        masked, on_device = mask_kernel(scores.device)(scores, *sent)
        alive = [number != 0 for number in on_device.tolist()]
    return masked, [alive[i] for i in rows]


def apply_words(
    scores: Tensor, words: Sequence[NDArray[np.int32] | None], log_sums: Tensor | None = None
) -> tuple[Tensor, list[bool]]:
    """As ``apply_bitmask``, on a CPU.

    Args:
        scores: (rows, vocab).
        words: the mask of each row, (>= ceil(vocab / 32),); None leaves it as it is.
        log_sums: see ``MaskKernel``, but (rows, 2) float64.

    Returns:
        The masked scores; for each row whether it is not masked, or an allowed token has a score above -inf.
    """
    # Numpy writes the rows: torch splits each over a team of threads, and on a busy machine these wait for each other
    # far longer than a row takes (16 ms against 0.1).
    masked = torch.empty(scores.shape, dtype=scores.dtype, device="cpu")
    as_int = _INT_OF_SIZE[scores.element_size()]
    source, target = scores.detach().view(as_int).numpy(), masked.view(as_int).numpy()  # (rows, vocab)
    neg_inf = _neg_inf_bits(scores.dtype)
    vocab, width = scores.shape[1], words_of(scores.shape[1])
    governed = [row[:width] for row in words if row is not None]
    alive: list[bool] = []
    if governed and len(governed) == len(scores) and 0 < vocab < _SMALL:  # one call, because calls cost more than rows
        _write_mixed(source, np.stack(governed), target, neg_inf)
        numbers = target.view(np.float32) if scores.dtype is torch.float32 else masked.double().numpy()
        alive = (numbers.max(1) > _NEG_INF).tolist()
    else:
        for i, row in enumerate(words):
            if row is None:
                target[i] = source[i]
                alive.append(True)
            else:
                alive.append(_is_alive(_write_row(source[i], row[:width], target[i], neg_inf), scores.dtype))
    if log_sums is not None:
        write_log_sums_(log_sums, scores, masked)
    return masked, alive


@cache
def _neg_inf_bits(dtype: torch.dtype) -> int:
    """The bits of -inf in this type, as an integer of the same size."""
    return int(torch.tensor(_NEG_INF, dtype=dtype, device="cpu").view(_INT_OF_SIZE[dtype.itemsize]))


def _write_row(source: Numbers, words: NDArray[np.int32], target: Numbers, neg_inf: int) -> Numbers:
    """Write one row of the result; returns scores that include every allowed one: those alone, or the whole row.

    Args:
        source: (vocab,) the bits of the scores, because numpy has no bfloat16.
        words: (ceil(vocab / 32),) the row's bitmask.
        target: (vocab,) the bits of the result; overwritten.
        neg_inf: the bits of -inf.
    """
    vocab = len(source)
    if vocab < _SMALL:
        _write_mixed(source, words, target, neg_inf)
        return target
    few = int(len(words) * _GATHER_SHARE)
    nonzero = words != 0
    if np.count_nonzero(nonzero) <= few:
        allowed = _token_ids(words, nonzero, vocab)
        kept = source[allowed]
        target.fill(neg_inf)
        target[allowed] = kept
        return kept
    gaps = words != ALL_ALLOWED
    if np.count_nonzero(gaps) <= few:
        target[:] = source
        target[_token_ids(~words, gaps, vocab)] = neg_inf
        return target
    _write_mixed(source, words, target, neg_inf)
    return target


def _write_mixed(source: Numbers, words: NDArray[np.int32], target: Numbers, neg_inf: int) -> None:
    """As ``_write_row`` for a mask of any kind, and for one row or several: (..., vocab) scores, (..., words) masks."""
    # Without a branch for each token, which the processor would mispredict on a scattered mask: 11 us for 8 rows of
    # 2,048 tokens, where a conditional copy takes 82.
    as_bytes, vocab = np.ascontiguousarray(words).view(np.uint8), source.shape[-1]
    keep = np.negative(
        np.unpackbits(as_bytes, axis=-1, count=vocab, bitorder="little"), dtype=source.dtype
    )  # all bits, or none
    np.bitwise_xor(source, neg_inf, out=target)
    target &= keep
    target ^= neg_inf


def _is_alive(numbers: Numbers, dtype: torch.dtype) -> bool:
    """Whether any score is above -inf; usually the first part has one, and the rest is read only if it has none."""
    # Numpy is faster for one small row, but has no bfloat16.
    scores = numbers.view(np.float32) if dtype is torch.float32 else torch.from_numpy(numbers).view(dtype)
    return len(numbers) > 0 and bool(
        scores[:_PROBE].max() > _NEG_INF or (len(numbers) > _PROBE and scores.max() > _NEG_INF)
    )


def _token_ids(words: NDArray[np.int32], with_bits: NDArray[np.bool_], vocab: int) -> NDArray[np.int64]:
    """Ids of the set bits, given which words have any; fast if few words have."""
    bits = np.flatnonzero(np.unpackbits(words[with_bits].view(np.uint8), bitorder="little").view(np.bool_))
    ids = np.flatnonzero(with_bits)[bits // WORD_BITS] * WORD_BITS + bits % WORD_BITS
    return ids[ids < vocab] if vocab % WORD_BITS else ids
