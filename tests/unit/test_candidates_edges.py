"""Filters where probabilities vanish, and without arguments: as many tokens stay as transformers' warpers leave."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from hf_guided.hf.device.candidates import pick
from tests.unit.test_device_candidates import Recorded, warped


def kept(scores: Tensor, **filters: Any) -> int:
    kernels, one = Recorded(), torch.ones(1)
    masks = torch.full((1, (scores.shape[1] + 31) // 32), -1, dtype=torch.int32)
    pick(scores, masks, None, one, one.long(), one.int(), kernels=kernels, **filters)
    return int((kernels.seen > -torch.inf).sum())


@pytest.mark.parametrize("top_k", [None, 1, 2, 3, 4, 5])
@pytest.mark.parametrize("top_p", [None, 0.1, 0.5, 0.7, 0.99])
def test_equals_of_which_some_have_no_probability(top_k: int | None, top_p: float | None) -> None:
    """A score a thousand below the best has the probability 0; three are the best, and two share the lowest score."""
    scores = torch.tensor([[0.0, 0.0, 0.0, -1000.0, -1000.0]])
    expected = int((warped(scores, top_k, top_p, None) > -torch.inf).sum())
    assert kept(scores, top_k=top_k, top_p=top_p) == expected


def test_the_default_is_generate_s() -> None:
    scores = torch.randn(1, 200, generator=torch.Generator().manual_seed(0))
    top_k = GenerationConfig()._get_default_generation_params()["top_k"]
    assert kept(scores) == int((warped(scores, top_k, None, None) > -torch.inf).sum()) == top_k
