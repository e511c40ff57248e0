"""Bitmask layout: int32 ``(rows, ceil(vocab / 32))``, bit ``j % 32`` of word ``j // 32``, 1 = allowed.

Also the reference for applying one: plain torch, any device, easy to believe. What the hot path uses
is in apply.py and is tested against this.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import BitmaskShapeError, shown
from .layout import ALL_ALLOWED as ALL_ALLOWED
from .layout import WORD_BITS as WORD_BITS
from .layout import words as words


def allocate_bitmask(rows: int, vocab_size: int, *, pin_memory: bool = False) -> Tensor:
    """A bitmask that allows everything.

    Args:
        rows: number of rows, 0 or more.
        vocab_size: tokens per row (the padded vocab size).
        pin_memory: page-locked host memory, for asynchronous copies to a GPU.

    Returns:
        (rows, ceil(vocab_size / 32)) int32 on CPU, filled with -1.
    """
    return torch.full((rows, words(vocab_size)), ALL_ALLOWED, dtype=torch.int32, device="cpu", pin_memory=pin_memory)


def pack(mask: Tensor) -> Tensor:
    """Bool mask to bitmask.

    Args:
        mask: (rows, vocab) bool, any device.

    Returns:
        (rows, ceil(vocab / 32)) int32 on the same device; bits past the vocabulary are 0.
    """
    rows, vocab = mask.shape
    padded = torch.zeros(rows, words(vocab) * WORD_BITS, dtype=torch.int64, device=mask.device)
    padded[:, :vocab] = mask
    weights = torch.ones(WORD_BITS, dtype=torch.int64, device=mask.device) << torch.arange(
        WORD_BITS, device=mask.device
    )
    packed = (padded.view(rows, words(vocab), WORD_BITS) * weights).sum(-1)  # (rows, words), 0 .. 2**32 - 1
    # Two's complement by hand: torch does not define the result of a narrowing cast that overflows.
    return torch.where(packed >= 1 << 31, packed - (1 << 32), packed).to(torch.int32)


def unpack(bitmask: Tensor, vocab_size: int) -> Tensor:
    """Bitmask to bool mask.

    Args:
        bitmask: (rows, words) int32, any device.
        vocab_size: columns wanted, at most ``words * 32``.

    Returns:
        (rows, vocab_size) bool on the same device.
    """
    check_width(bitmask, vocab_size)
    bits = torch.arange(WORD_BITS, dtype=torch.int32, device=bitmask.device)
    return ((bitmask.unsqueeze(-1) >> bits) & 1).bool().flatten(1)[:, :vocab_size]


def check_width(bitmask: Tensor, vocab_size: int) -> None:
    """Refuse a bitmask that covers fewer tokens than requested."""
    if not isinstance(bitmask, Tensor):
        raise BitmaskShapeError(f"expected an int32 bitmask of shape (rows, words), got {shown(bitmask)}")
    if bitmask.dtype != torch.int32 or bitmask.dim() != 2:
        raise BitmaskShapeError(
            f"expected an int32 bitmask of shape (rows, words), got {bitmask.dtype} of shape {tuple(bitmask.shape)}; "
            "allocate it with hf_guided.vocabulary.bitmask.allocate_bitmask"
        )
    if bitmask.shape[1] < words(vocab_size):
        raise BitmaskShapeError(
            f"bitmask covers {bitmask.shape[1] * WORD_BITS} tokens, logits have {vocab_size} columns; "
            "build the Guide with the model, its config, or the logits width"
        )


def apply_bitmask_reference(logits: Tensor, bitmask: Tensor) -> Tensor:
    """A copy of the logits with -inf where the bitmask forbids a token.

    Args:
        logits: (rows, vocab) floating point, any device.
        bitmask: (rows, >= ceil(vocab / 32)) int32 on the device of ``logits``.

    Returns:
        (rows, vocab) like ``logits``; the argument is not written.

    Raises:
        BitmaskShapeError: the bitmask covers fewer tokens than ``logits`` has columns.
    """
    return logits.masked_fill(~unpack(bitmask, logits.shape[-1]), float("-inf"))
