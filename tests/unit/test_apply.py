"""Applying masks with many rows, dtypes and shapes, on the CPU and by what other devices run."""

from __future__ import annotations

import pytest
import torch

from hf_guided.errors import BitmaskShapeError
from hf_guided.session.apply import apply_bitmask
from hf_guided.session.mask_kernel import apply_with_torch
from hf_guided.vocabulary.bitmask import pack


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("rows", [[0], [3], [0, 1, 2, 3], [1, 2], [0, 3]])
@pytest.mark.parametrize("vocab", [5, 33, 9000])
def test_device_path_gives_the_same_scores_as_the_host_path(rows: list[int], vocab: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(vocab)
    scores = torch.randn(4, vocab, generator=generator).to(dtype)
    scores[2] = -torch.inf
    mask = torch.rand(4, vocab, generator=generator) < 0.4
    mask[1] = False
    bitmask = pack(mask)
    before = scores.clone()
    slots = torch.tensor([rows.index(i) if i in rows else -1 for i in range(4)], dtype=torch.int32)
    masked, numbers = apply_with_torch(scores, bitmask[rows], slots)
    alive = [numbers[i] == 1 for i in rows]
    expected = scores.masked_fill(~mask & torch.isin(torch.arange(4), torch.tensor(rows))[:, None], -torch.inf)
    assert torch.equal(masked, expected) and torch.equal(scores, before)
    assert alive == [bool((expected[i] > -torch.inf).any()) for i in rows]
    host, host_alive = apply_bitmask(scores, bitmask, rows)
    assert torch.equal(host, expected) and host_alive == alive


@pytest.mark.parametrize(("rows", "vocab", "fits"), [(1, 64, True), (1, 65, False), (200, 64, True), (1, 1, True)])
def test_bitmask_must_cover_the_vocabulary(rows: int, vocab: int, fits: bool) -> None:
    bitmask = torch.full((rows, 2), -1, dtype=torch.int32)
    scores = torch.zeros(rows, vocab)
    if fits:
        assert torch.equal(apply_bitmask(scores, bitmask, range(rows))[0], scores)
    else:
        with pytest.raises(BitmaskShapeError):
            apply_bitmask(scores, bitmask, range(rows))
