"""The CUDA source, run as plain C++ with sanitizers, gives the bits that torch's operations give."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.session.mask_kernel import FALLBACK_SCORE, apply_with_torch
from tests.effort import repeats
from tests.kernel_harness import DTYPES, HEADER, Harness, HarnessFailure, build
from tests.mask_cases import check, check_log_sums, expected, random_case

examples = settings(max_examples=repeats(150, 500), suppress_health_check=[HealthCheck.function_scoped_fixture])


def check_seed(harness: Harness, seed: int) -> None:
    random = Random(seed)
    case = random_case(random)
    blocks = random.randint(1, 4)
    check(harness.apply_masks(*case, blocks=blocks), apply_with_torch(*case))
    check_log_sums(partial(harness.apply_masks, blocks=blocks), case)


@examples
@given(seed=st.integers(0, 2**32))
def test_kernel_gives_the_bits_of_torch(harness, seed):
    check_seed(harness, seed)


@pytest.mark.parametrize("vocab", [8191, 8192, 8193, 32_001, 262_208])
@pytest.mark.parametrize("dtype", DTYPES)
def test_long_rows(harness, dtype, vocab):
    random = Random(vocab)
    for blocks in 1, 1 + vocab // 8192:
        case = random_case(random, dtype, vocab, rows=3)
        check(harness.apply_masks(*case, blocks=blocks), apply_with_torch(*case))
    check_log_sums(partial(harness.apply_masks, blocks=blocks), case)


@pytest.mark.parametrize("vocab", [7, 8, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_alignment_of_scores_and_result(harness, dtype, vocab):
    flat = torch.randn(200).to(dtype)
    masks, slots = torch.tensor([[-1, -1], [0b1011, 0]], dtype=torch.int32), torch.tensor([0, 1, -1]).int()
    for offset in range(9):
        scores = flat[offset : offset + 3 * vocab].view(3, vocab)  # rows of 7 begin anywhere in the result too
        check(harness.apply_masks(scores, masks, slots), apply_with_torch(scores, masks, slots))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_number_is_copied_as_it_is_and_only_those_above_neg_inf_keep_a_row(harness, dtype):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32)
    numbers = (bits << 16 | 1).view(torch.float32) if dtype == torch.float32 else bits.to(torch.int16).view(dtype)
    for scores, mask in (numbers.view(256, 256), torch.full((1, 8), -1)), (numbers.view(-1, 1), torch.tensor([[1]])):
        slots = torch.zeros(len(scores), dtype=torch.int32)
        check(harness.apply_masks(scores, mask.int(), slots), apply_with_torch(scores, mask.int(), slots))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_can_only_end(harness, dtype):
    scores = torch.tensor([[1.0, 2.0, 3.0], [torch.nan] * 3, [-torch.inf] * 3, [torch.nan, -torch.inf, 0.0]]).to(dtype)
    masks, slots = torch.tensor([[0b101]]).int(), torch.tensor([0, 0, 0, -1]).int()
    masked, alive = harness.apply_masks(scores, masks, slots, stops=torch.tensor([2]))
    assert alive.tolist() == [1, 0, 0, 1]
    assert masked[0].tolist() == [1.0, -torch.inf, 3.0]
    ending = [-torch.inf, -torch.inf, torch.tensor(FALLBACK_SCORE).to(dtype).item()]
    assert masked[1].tolist() == masked[2].tolist() == ending
    assert masked[3].isnan().tolist() == [True, False, False]


def test_no_rows_and_no_scores(harness):
    masks, stops = torch.zeros(1, 1).int(), torch.empty(0, dtype=torch.int64)
    masked, alive = harness.apply_masks(torch.empty(0, 5), masks, torch.empty(0).int(), stops=stops)
    assert masked.shape == (0, 5) and not len(alive)
    masked, alive = harness.apply_masks(torch.empty(2, 0), masks, torch.tensor([0, -1]).int(), stops=stops)
    assert masked.shape == (2, 0) and alive.tolist() == [0, 1]


MUTANTS = {
    "masks of rows are not their own": ("own + (-2 - (long long)slot)", "own + (-3 - (long long)slot)"),
    "NaN keeps a row": ("<= Format::INF;", "<= ~0u;"),
    "-inf keeps a row": ("bits != Format::NEG_INF && ", ""),
    "a mask's second word is not read": ("bits |= (unsigned long long)(unsigned)mask[word + 1] << 32;", "{}"),
    "a mask is read beyond its end": ("word < words ? (unsigned)mask[word] : 0u", "(unsigned)mask[word]"),
    "tokens beyond a mask's end are allowed": ("(unsigned)mask[word] : 0u", "(unsigned)mask[word] : ~0u"),
    "the last unit is too long": ("inside[i] &= all >> (token + unit - vocab);", "{}"),
    "the first unit is too long": ("inside[i] = all << shift & all;", "inside[i] = all;"),
    "units are loaded at any alignment": ("== (unsigned long long)to % 16;", "!= 99;"),
    "a unit is left out": ("(shift + vocab + unit - 1) / unit", "(shift + vocab) / unit"),
    "free rows are masked": ("if (slot != GB_FREE && inside[i])", "if (inside[i])"),
    "free rows are not alive": ("bool found = slot == GB_FREE &&", "bool found = false &&"),
    "every row ends": ("if (alive[row]) return;", "{}"),
    "no stop": ("if (stops[i] == token)", "if (false)"),
    "stops of another format": ("0xc61cu", "0xf0e2u"),
    "sums of allowed scores alone": (
        "const unsigned loaded = sums ? inside[i] : allowed[i];",
        "const unsigned loaded = allowed[i];",
    ),
    "the sum after the mask is that before it": (
        "if (allowed[i] >> j & 1u) gb_add(after, number);",
        "gb_add(after, number);",
    ),
    "float16 without its infinities": ("if ((bits & Format::INF) == Format::INF) number.bits |= 0x7f800000u;", "{}"),
    "float16 without its sign": ("number.bits |= (bits & 0x8000u) << 16;", "{}"),
    "two infinities are NaN": ("number == to.most ? 1.0f : ", ""),
    "a sum is not scaled": ("to.sum * expf(to.most - number)", "to.sum"),
    "threads of a block share a sum": ("+ threadIdx.x) * 2;", ") * 2;"),
}


def test_mutants_change_the_kernel_as_it_is_now() -> None:
    source = HEADER.read_text()
    assert not [text for text, _ in MUTANTS.values() if text not in source]


# These check the tests themselves. Each mutant is compiled separately.
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_kernel_are_detected(name, tmp_path: Path):
    source = HEADER.read_text()
    text, other = MUTANTS[name]
    assert text in source
    mutant = Harness(build(tmp_path, source.replace(text, other)))
    try:
        with pytest.raises((AssertionError, HarnessFailure)):
            for seed in range(300):
                check_seed(mutant, seed)
    finally:
        mutant.close()


def test_torch_agrees_with_a_loop_over_tokens_on_long_rows() -> None:
    case = random_case(Random(5), vocab=8193, rows=3)
    check(apply_with_torch(*case), expected(case))
