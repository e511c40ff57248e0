"""Masks of structured generation on CUDA: apply, the automaton step, masked sampling.

A bitmask is int32 ``(rows, ceil(vocab / 32))``, bit ``j % 32`` of word ``j // 32``, 1 = allowed. Everything runs on the
current stream and never waits for the host. How the automaton step works is told in guided_bitmask.cuh.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._ops import add_op_namespace_prefix, ops

LEAVE_ALONE, FORBID_ALL = -1, -2  # slots of rows that are not masked, and of rows in which nothing is allowed


def apply_bitmask_(
    logits: Tensor, bitmask: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
) -> None:
    """Write -inf over every logit that the bitmask forbids.

    Args:
        logits: (rows, vocab) float32 | float16 | bfloat16, unit stride in the last dimension; columns that the bitmask
            does not cover are forbidden.
        bitmask: (slots, words) int32.
        row_slots: (rows,) int32, which line of the bitmask governs each row, LEAVE_ALONE or FORBID_ALL; None: one to
            one.
        alive: (rows,) int32, set to 1 for rows that are left alone or hold an allowed logit above -inf; the caller
            zeroes it before. None: allowed logits are not read.
    """
    ops.apply_bitmask_(logits, bitmask, row_slots, alive)


def automaton_step_(logits: Tensor, *buffers: Tensor, alive: Tensor | None = None) -> None:
    """Move every row to where its tokens lead, find or make its mask, and apply it.

    Args:
        logits: (rows, vocab), as for ``apply_bitmask_``.
        buffers: tokens, length, shadow, history, known, language_of, start, limit, think_until, languages, token_bytes,
            token_start, token_length, stops, claims, masks, state_of, slot_of, work, work_count, as gb_advance and
            gb_build take them.
        alive: as for ``apply_bitmask_``.
    """
    ops.automaton_step_(logits, *buffers, alive)


def build_masks_(work: Tensor, work_count: Tensor, *buffers: Tensor) -> None:
    """Make masks ahead of time.

    Args:
        work: (at most, 4) int32: slot, language, state, and -1 or the tokens left.
        work_count: (1,) int32, how many of them.
        buffers: languages, token_bytes, token_start, token_length, stops, masks, as for ``automaton_step_``.
    """
    ops.build_masks_(work, work_count, *buffers)


def masked_sample_(
    next_tokens: Tensor,
    best: Tensor,
    logits: Tensor,
    bitmask: Tensor,
    row_slots: Tensor | None,
    temperature: Tensor,
    seed: Tensor,
    position: Tensor,
) -> None:
    """Pick every row's next token among those allowed.

    Args:
        next_tokens: (rows,) int64, written; -1 where nothing allowed is above -inf.
        best: (rows, parts) int64, written; in how many parts a row is searched.
        logits: (rows, vocab), read only.
        bitmask: (slots, words) int32.
        row_slots: as for ``apply_bitmask_``.
        temperature: (rows,) float32; 0 is greedy, with the lowest token of equals.
        seed: (rows,) int64.
        position: (rows,) int32, what makes one draw of a row different from the next.
    """
    ops.masked_sample_(next_tokens, best, logits, bitmask, row_slots, temperature, seed, position)


@torch.library.register_fake(add_op_namespace_prefix("apply_bitmask_"))
def _apply_fake(logits, bitmask, row_slots=None, alive=None):
    return None


@torch.library.register_fake(add_op_namespace_prefix("automaton_step_"))
def _step_fake(logits, *buffers):
    return None


@torch.library.register_fake(add_op_namespace_prefix("build_masks_"))
def _build_fake(work, *buffers):
    return None


@torch.library.register_fake(add_op_namespace_prefix("masked_sample_"))
def _sample_fake(next_tokens, best, logits, bitmask, row_slots, temperature, seed, position):
    return None


__all__ = ["FORBID_ALL", "LEAVE_ALONE", "apply_bitmask_", "automaton_step_", "build_masks_", "masked_sample_"]
