"""Masks of the host that the kernels apply, against a loop over rows and tokens."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hf_guided.hf.device import reference
from hf_guided.hf.device.apply_masks import AppliedMasks
from hf_guided.hf.device.kernels import Kernels, OpKernels, TorchKernels
from hf_guided.session.masks import FALLBACK_SCORE
from hf_guided.vocabulary.bitmask import pack

STOPS = (2, 5)


class _Operators:
    """Stands in for the operators that launch kernels; like them, it refuses float64."""

    def __init__(self) -> None:
        self.rows: list[list[int] | None] = []

    def apply_bitmask_(self, logits: Tensor, masks: Tensor, slots: Tensor | None, alive: Tensor | None) -> None:
        assert logits.dtype != torch.float64 and logits.stride(-1) == 1
        self.rows.append(None if slots is None else slots.tolist())
        assert slots is None or (slots.dtype == torch.int32 and slots.shape == (len(logits),))
        reference.apply_slots_(logits, masks, slots, alive)


@pytest.mark.parametrize("launched", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [[0], [3], [0, 1, 2, 3], [1, 2], [0, 3]])
@pytest.mark.parametrize("vocab", [7, 33, 200])
def test_rows_without_an_allowed_score_can_only_end_and_free_rows_stay(
    vocab: int, rows: list[int], dtype: torch.dtype, launched: bool
) -> None:
    generator = torch.Generator().manual_seed(vocab)
    wide = torch.randn(4, vocab + 3, generator=generator).to(dtype)
    wide[2], wide[3] = -torch.inf, torch.nan
    scores = wide[:, :vocab]  # rows that are not contiguous, as logits of several columns
    mask = torch.rand(4, vocab, generator=generator) < 0.4
    mask[:2, 0] = True
    before = scores.clone()
    expected, alive = scores.clone(), [1] * 4
    for row in rows:
        expected[row, ~mask[row]] = -torch.inf
        if not any(score > -torch.inf for score in expected[row].tolist()):
            alive[row] = 0
            expected[row] = -torch.inf
            expected[row, list(STOPS)] = FALLBACK_SCORE
    operators = _Operators()
    kernels: Kernels = OpKernels("stand-in", operators) if launched else TorchKernels()
    apply = AppliedMasks(kernels)
    for _ in range(2):
        masked, seen = apply(scores, pack(mask)[rows], rows, STOPS)
        assert torch.equal(masked.nan_to_num(7.0), expected.nan_to_num(7.0)) and masked.dtype == dtype
        assert seen.tolist() == alive and seen.dtype == torch.int32
    assert torch.equal(scores.nan_to_num(7.0), before.nan_to_num(7.0)) and masked.data_ptr() != scores.data_ptr()
    if launched and dtype != torch.float64:
        clears = [-1 if one else -2 for one in alive]  # LEAVE_ALONE and FORBID_ALL
        assert operators.rows[1] == operators.rows[3] == clears, "only rows that have to end are written again"
