"""The built kernel against plain torch; the automaton step is tested by hf-guided, which owns its tables."""

from __future__ import annotations

import guided_bitmask
import pytest
import torch

DTYPES = [torch.float32, torch.float16, torch.bfloat16]
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none")


def packed(may: torch.Tensor) -> torch.Tensor:
    """(rows, vocab) bool as int32 words."""
    rows, vocab = may.shape
    bits = torch.zeros(rows, -(-vocab // 32) * 32, dtype=torch.int64, device=may.device)
    bits[:, :vocab] = may
    return (bits.view(rows, -1, 32) << torch.arange(32, device=may.device)).sum(2).to(torch.int32)


@pytest.mark.kernels_ci
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 32_001, 131_072, 262_208])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("offset", [0, 1, 3])
def test_apply(dtype: torch.dtype, vocab: int, share: float, offset: int) -> None:
    torch.manual_seed(vocab)
    wide = torch.randn(5, vocab + 11, device="cuda").to(dtype)  # rows of any stride, at any alignment
    expected = wide.clone()
    logits = wide[:, offset : offset + vocab]
    may = torch.rand(3, vocab, device="cuda") < share
    slots = torch.tensor([2, -1, 0, -2, 1], dtype=torch.int32, device="cuda")
    alive = torch.zeros(5, dtype=torch.int32, device="cuda")
    guided_bitmask.apply_bitmask_(logits, packed(may), slots, alive)
    allowed = torch.stack([may[2], torch.ones_like(may[0]), may[0], torch.zeros_like(may[0]), may[1]])
    expected[:, offset : offset + vocab].masked_fill_(~allowed, float("-inf"))
    assert torch.equal(wide, expected)  # what lies between the rows too
    assert torch.equal(alive.bool(), allowed.any(1))


@pytest.mark.kernels_ci
@needs_gpu
def test_columns_beyond_the_mask_are_forbidden() -> None:
    logits = torch.zeros(1, 100, device="cuda")
    guided_bitmask.apply_bitmask_(logits, torch.full((1, 2), -1, dtype=torch.int32, device="cuda"))
    assert torch.isfinite(logits[0]).nonzero().flatten().tolist() == list(range(64))


@pytest.mark.kernels_ci
@needs_gpu
def test_no_rows() -> None:
    guided_bitmask.apply_bitmask_(
        torch.zeros(0, 10, device="cuda"), torch.zeros(0, 1, dtype=torch.int32, device="cuda")
    )


@pytest.mark.kernels_ci
@needs_gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("parts", [1, 7])
def test_greedy_takes_the_lowest_of_the_greatest(dtype: torch.dtype, parts: int) -> None:
    torch.manual_seed(0)
    logits = torch.randint(-5, 5, (4, 32_003), device="cuda").to(dtype)
    may = torch.rand(4, 32_003, device="cuda") < 0.2
    may[3] = False
    zeros = torch.zeros(4, device="cuda")
    tokens = torch.empty(4, dtype=torch.int64, device="cuda")
    best = torch.empty(4, parts, dtype=torch.int64, device="cuda")
    guided_bitmask.masked_sample_(tokens, best, logits, packed(may), None, zeros, zeros.long(), zeros.int())
    masked = logits.float().masked_fill(~may, float("-inf"))
    expected = (masked == masked.amax(1, keepdim=True)).int().argmax(1)
    expected[3] = -1
    assert tokens.tolist() == expected.tolist()


@pytest.mark.kernels_ci
@needs_gpu
def test_what_does_not_fit_is_refused() -> None:
    logits = torch.zeros(2, 40, device="cuda")
    mask = torch.zeros(2, 2, dtype=torch.int32, device="cuda")
    for bad in (logits.double(), logits.t(), logits.cpu()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            guided_bitmask.apply_bitmask_(bad, mask)
    with pytest.raises(RuntimeError, match="row_slots"):
        guided_bitmask.apply_bitmask_(logits, mask[:1])
