"""The built kernel against plain torch."""

from __future__ import annotations

import guided_bitmask
import pytest
import torch
from torch import Tensor

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none")


def packed(may: Tensor) -> Tensor:
    """(rows, vocab) bool as int32 words."""
    rows, vocab = may.shape
    bits = torch.zeros(rows, -(-vocab // 32) * 32, dtype=torch.int64, device=may.device)
    bits[:, :vocab] = may
    return (bits.view(rows, -1, 32) << torch.arange(32, device=may.device)).sum(2).to(torch.int32)


def int32(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device="cuda")


@pytest.mark.kernels_ci
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 32_001, 131_072, 262_208])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_masks(dtype: torch.dtype, vocab: int, share: float, offset: int) -> None:
    torch.manual_seed(vocab)
    wide = torch.randn(5, vocab + 11, device="cuda").to(dtype)  # rows of any stride, at any alignment
    scores = wide[:, offset : offset + vocab]
    may = torch.rand(4, vocab, device="cuda") < share
    masked, alive = guided_bitmask.apply_masks(
        scores, packed(may[:2]), int32([1, -1, 0, -3, -2]), packed(may[2:]), torch.tensor([vocab - 1], device="cuda")
    )
    allowed = torch.stack([may[1], torch.ones_like(may[0]), may[0], may[3], may[2]])
    expected = scores.masked_fill(~allowed, -torch.inf)
    expected[~allowed.any(1), vocab - 1] = -1e4
    assert torch.equal(masked, expected)
    assert masked.is_contiguous() and masked.data_ptr() != scores.data_ptr()
    assert torch.equal(alive, allowed.any(1).int())


@pytest.mark.kernels_ci
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 33, 32_001, 131_072])
def test_log_sums(dtype: torch.dtype, vocab: int) -> None:
    torch.manual_seed(vocab)
    scores, may = torch.randn(3, vocab, device="cuda").to(dtype), torch.rand(2, vocab, device="cuda") < 0.3
    may[0] = False
    log_sums = torch.full((3, 2), torch.nan, device="cuda")
    masked, _ = guided_bitmask.apply_masks(scores, packed(may), int32([0, 1, -1]), log_sums=log_sums)
    expected = torch.stack([scores.double().logsumexp(1), masked.double().logsumexp(1)], 1).float()
    torch.testing.assert_close(log_sums, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.kernels_ci
@needs_gpu
def test_columns_beyond_the_mask_are_forbidden() -> None:
    scores = torch.zeros(1, 100, device="cuda")
    masked, _ = guided_bitmask.apply_masks(scores, int32([-1, -1])[None], int32([0]))
    assert torch.isfinite(masked[0]).nonzero().flatten().tolist() == list(range(64))


@pytest.mark.kernels_ci
@needs_gpu
def test_nan_alone_does_not_keep_a_row() -> None:
    scores = torch.full((2, 40), torch.nan, device="cuda")
    scores[1, 3] = 0.0
    stops = torch.tensor([5], device="cuda")
    masked, alive = guided_bitmask.apply_masks(scores, int32([-1, -1])[None], int32([0, 0]), stops=stops)
    assert alive.tolist() == [0, 1]
    assert masked[0].tolist() == [-torch.inf] * 5 + [-1e4] + [-torch.inf] * 34
    assert torch.equal(masked[1].nan_to_num(7.0), scores[1].nan_to_num(7.0))


@pytest.mark.kernels_ci
@needs_gpu
def test_no_rows_and_rows_that_are_columns() -> None:
    masked, alive = guided_bitmask.apply_masks(torch.zeros(0, 10, device="cuda"), int32([0])[None], int32([]))
    assert masked.shape == (0, 10) and alive.shape == (0,)
    scores = torch.randn(10, 3, device="cuda").T
    masked, _ = guided_bitmask.apply_masks(scores, int32([0])[None], int32([-1] * 3))
    assert torch.equal(masked, scores) and masked.is_contiguous()


@pytest.mark.kernels_ci
@needs_gpu
def test_a_captured_call_reads_its_arguments_at_each_replay() -> None:
    scores, masks, slots = torch.randn(3, 1000, device="cuda"), int32([-1] * 32)[None], int32([0, -1, 0])
    guided_bitmask.apply_masks(scores, masks, slots)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        masked, alive = guided_bitmask.apply_masks(scores, masks, slots)
    masks.zero_()
    graph.replay()
    assert alive.tolist() == [0, 1, 0]
    assert torch.equal(masked[1], scores[1]) and torch.isinf(masked[::2]).all()


@pytest.mark.kernels_ci
@needs_gpu
def test_wrong_arguments_are_refused() -> None:
    scores, masks, slots = torch.zeros(2, 40, device="cuda"), int32([0, 0])[None], int32([0, 0])
    for name, given in {
        "scores": (scores.double(), masks, slots),
        "scores: expected .rows, vocab": (scores[0], masks, slots),
        "masks: expected Int": (scores, masks.long(), slots),
        "masks: expected on cuda": (scores, masks.cpu(), slots),
        "masks: expected contiguous": (scores, masks.expand(3, 2).T, slots),
        "slots: expected 1 dimensions": (scores, masks, slots[None]),
        "slots: expected one for each of the 2 rows, got 1": (scores, masks, slots[:1]),
        "own: expected 2 words": (scores, masks, slots, masks[:, :1].contiguous()),
        "stops: expected Long": (scores, masks, slots, None, slots),
    }.items():
        with pytest.raises(RuntimeError, match=name):
            guided_bitmask.apply_masks(*given)
    with pytest.raises(RuntimeError, match="log_sums: expected .2, 2."):
        guided_bitmask.apply_masks(scores, masks, slots, log_sums=torch.zeros(2, 1, device="cuda"))
