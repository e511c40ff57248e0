"""The layout of a bitmask, packing and unpacking, and the reference implementation of applying it."""

from __future__ import annotations

import pytest
import torch

from hf_guided.errors import BitmaskShapeError
from hf_guided.vocabulary.bitmask import allocate_bitmask, apply_bitmask_reference, pack, unpack, words


@pytest.mark.parametrize("vocab", [1, 31, 32, 33, 63, 64, 65, *range(32001, 32033)])
def test_token_j_is_bit_j_modulo_32_of_word_j_over_32(vocab: int) -> None:
    """Checks the layout by shifting one bit at a time."""
    torch.manual_seed(vocab)
    mask = torch.rand(2, vocab) < 0.3
    bitmask = pack(mask)
    assert bitmask.dtype == torch.int32
    assert bitmask.shape == (2, (vocab + 31) // 32) == (2, words(vocab))
    for row in range(2):
        values = [int(word) & 0xFFFFFFFF for word in bitmask[row]]
        assert [bool(values[j // 32] >> (j % 32) & 1) for j in range(vocab)] == mask[row].tolist()
        assert all(values[j // 32] >> (j % 32) & 1 == 0 for j in range(vocab, 32 * len(values)))
    assert torch.equal(unpack(bitmask, vocab), mask)


def test_new_bitmask_allows_everything() -> None:
    assert unpack(allocate_bitmask(3, 70), 70).all()
    assert allocate_bitmask(0, 70).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_reference_returns_a_masked_copy(dtype: torch.dtype) -> None:
    logits = torch.arange(12, dtype=dtype).view(2, 6)
    before = logits.clone()
    mask = torch.tensor([[1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1]]).bool()
    masked = apply_bitmask_reference(logits, pack(mask))
    assert masked.tolist() == [
        [float(x) if ok else float("-inf") for x, ok in zip(xs, oks, strict=True)]
        for xs, oks in zip(before.tolist(), mask.tolist(), strict=True)
    ]
    assert torch.equal(logits, before)


def test_error_for_a_narrow_bitmask_gives_both_sizes() -> None:
    with pytest.raises(BitmaskShapeError, match=r"covers 64 tokens, logits have 65 columns.*model"):
        apply_bitmask_reference(torch.zeros(1, 65), allocate_bitmask(1, 64))
    with pytest.raises(BitmaskShapeError, match="int32"):
        unpack(torch.zeros(1, 2), 64)
