"""Filters on probabilities of zero, and the default filters: they keep as many tokens as transformers' warpers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from tests.picking import pick
from tests.unit.test_device_candidates import RecordingKernels, warped


def num_kept(scores: Tensor, **filters: Any) -> int:
    kernels, ones = RecordingKernels(), torch.ones(1)
    masks = torch.full((1, (scores.shape[1] + 31) // 32), -1, dtype=torch.int32)
    pick(scores, masks, None, ones, ones.long(), ones.int(), kernels=kernels, **filters)
    return int((kernels.seen > -torch.inf).sum())


@pytest.mark.parametrize("top_k", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.5, 0.7, 0.99])
def test_equal_scores_with_probability_zero(top_k: int | None, top_p: float | None) -> None:
    """A score 1000 below the best has probability 0. Three tokens share the best score, and two share the lowest."""
    scores = torch.tensor([[0.0, 0.0, 0.0, -1000.0, -1000.0]])
    expected = int((warped(scores, top_k, top_p, None) > -torch.inf).sum())
    assert num_kept(scores, top_k=top_k, top_p=top_p) == expected


def test_default_filter_equals_that_of_generate() -> None:
    scores = torch.randn(1, 200, generator=torch.Generator().manual_seed(0))
    top_k = GenerationConfig()._get_default_generation_params()["top_k"]
    assert num_kept(scores) == int((warped(scores, top_k, None, None) > -torch.inf).sum()) == top_k
