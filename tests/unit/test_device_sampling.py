"""Masked sampling, in torch and in the kernels' source as plain C++: known answers, greedy, noise, distribution."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_guided.hf.device.lane import FORBID_ALL, LEAVE_ALONE
from hf_guided.hf.device.launches import Launch
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.hf.philox import exponential, philox
from hf_guided.vocabulary.bitmask import pack
from tests import lanes
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.kernel_harness import HEADER, Harness, build

Sample = Callable[..., Tensor]

# Known answers of the authors, from Random123's kat_vectors: counter, key, result.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]
EDGES = [0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 129, 2**32 - 128, 2**32 - 2, 2**32 - 1]


def numbers(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


def unsigned(words: Tensor) -> list[int]:
    return words.numpy().view(np.uint32).tolist()


def as_words(values: list[int]) -> Tensor:
    return torch.from_numpy(np.array(values, np.uint32).view(np.int32))


@pytest.fixture(params=["torch", "kernel"])
def sample(request: pytest.FixtureRequest) -> Sample:
    """Both implementations in turn."""
    return masked_sample if request.param == "torch" else request.getfixturevalue("harness").masked_sample


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(harness: Harness, counter: str, key: str, expected: str) -> None:
    parts = [torch.tensor([word]) for word in numbers(counter) + numbers(key)]
    words = philox(tuple(parts[:4]), tuple(parts[4:]))  # type: ignore[arg-type]
    assert [int(word) for word in words] == numbers(expected)
    out = torch.zeros(4, dtype=torch.int32)
    harness.run(Launch("philox", (1, 1), (as_words(numbers(counter) + numbers(key)), out)))
    assert unsigned(out) == numbers(expected)


def test_exponentials_are_accurate_positive_and_finite(harness: Harness) -> None:
    random = Random(0)
    pairs = [(high, low) for high in EDGES for low in EDGES]
    pairs += [(random.getrandbits(random.randint(1, 32)), random.getrandbits(32)) for _ in range(2000)]
    # -log(1 - u) without a subtraction that loses bits: near 1, it uses the distance of u from 1.
    exact = []
    for high, low in pairs:
        bits = (high << 32 | low) * 2 + 1  # of 2^65
        exact.append(-np.log1p(-bits / 2**65) if bits < 2**64 else -np.log((2**65 - bits) / 2**65))
    expected = np.array(exact)
    in_torch = exponential(torch.tensor([high for high, _ in pairs]), torch.tensor([low for _, low in pairs])).numpy()
    in_kernel = torch.zeros(len(pairs))
    words = as_words([word for pair in pairs for word in pair])
    harness.run(Launch("exponential", (len(pairs), 1), (words, in_kernel)))
    for values in (in_torch, in_kernel.numpy()):
        assert (values > 0).all()
        assert np.isfinite(values).all()
        # Above 22.87 all values are 22.87, because bits below 2^-32 are ignored; such a token is not drawn anyway.
        checked = np.array([high < 2**32 - 2**12 for high, _ in pairs])
        np.testing.assert_allclose(values[checked], expected[checked], rtol=1e-6)
        assert (values[~checked] > 13).all()


def test_half_precision_is_converted_exactly(harness: Harness) -> None:
    all_bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    values = torch.zeros(2**16)
    harness.run(Launch("value_of_f16", (2**16, 1), (all_bits, values)))
    expected = all_bits.view(torch.float16).float()
    assert torch.equal(values.isnan(), expected.isnan())
    is_number = ~expected.isnan()
    assert lanes.same_bits(values[is_number], expected[is_number])


@pytest.mark.parametrize("dtype", lanes.DTYPES)
def test_greedy_takes_the_lowest_id_of_the_greatest_logits(sample: Sample, dtype: torch.dtype) -> None:
    for seed in range(20):
        check_greedy(sample, dtype, seed)


def check_greedy(sample: Sample, dtype: torch.dtype, seed: int) -> None:
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    rows, width = random.randint(1, 6), random.choice((1, 33, 300, 1500))
    logits = lanes.random_logits(random, rows, width, dtype)
    logits.copy_((logits * 2).round())  # many equal values, including 0 and -0
    permitted = torch.rand(rows, width, generator=generator) < random.choice((0.0, 0.02, 0.5, 1.0))
    slots = torch.randint(FORBID_ALL, rows, (rows,), generator=generator, dtype=torch.int32)
    zeros = torch.zeros(rows)
    tokens = sample(logits, pack(permitted), slots, zeros, zeros.long(), zeros.int())
    expected = []
    for row_logits, slot in zip(logits.double().tolist(), slots.tolist(), strict=True):
        allowed = [slot == LEAVE_ALONE or (slot >= 0 and bool(permitted[slot, i])) for i in range(width)]
        candidates = [i for i in range(width) if allowed[i] and row_logits[i] > -np.inf]
        expected.append(max(candidates, key=lambda i: (row_logits[i], -i), default=-1))
    assert tokens.tolist() == expected


def exact_scores(logits: Tensor, temperature: Tensor, seed: Tensor, position: Tensor) -> np.ndarray:
    """(rows, vocab) float64 logit / temperature + Gumbel noise."""
    rows, width = logits.shape
    zero = torch.zeros((), dtype=torch.int64)
    counter = (torch.arange(width).unsqueeze(0), position.long().unsqueeze(1), zero, zero)
    low_key, high_key = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    high, low, _, _ = philox(counter, (low_key.unsqueeze(1), high_key.unsqueeze(1)))  # known answers are tested above
    u = (high.numpy() + (low.numpy() + 0.5) / 2**32) / 2**32
    noise = -np.log(-np.log1p(-u))
    return logits.double().numpy() / temperature.double().numpy()[:, None] + noise


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("width", [5, 1003, 32_003, 131_072])
def test_drawn_token_has_the_greatest_score(sample: Sample, dtype: torch.dtype, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    rows = 4
    logits = (torch.randn(rows, width, generator=generator) * 3).to(dtype)
    permitted = torch.rand(rows, width, generator=generator) < 0.7
    permitted[:, 0] = True
    temperature = torch.tensor([0.3, 1.0, 1.7, 8.0])
    seed = torch.tensor([0, -1, 1 << 40, 12345])
    position = torch.tensor([0, 7, 4095, 131_071], dtype=torch.int32)
    tokens = sample(logits, pack(permitted), None, temperature, seed, position)
    scores = np.where(permitted.numpy(), exact_scores(logits, temperature, seed, position), -np.inf)
    assert (scores.max(1) - scores[np.arange(rows), tokens.numpy()] < 1e-4).all()


def test_draw_of_a_row_does_not_depend_on_the_batch(sample: Sample) -> None:
    logits = torch.randn(5, 400, generator=torch.Generator().manual_seed(1))
    masks = pack(torch.rand(5, 400, generator=torch.Generator().manual_seed(2)) < 0.5)
    temperature, seed = torch.full((5,), 1.5), torch.arange(5) * 77
    position = torch.arange(5, dtype=torch.int32)
    batched = sample(logits, masks, None, temperature, seed, position).tolist()
    for row in range(5):
        row_slice = slice(row, row + 1)
        alone = sample(
            logits[row_slice], masks[row_slice], None, temperature[row_slice], seed[row_slice], position[row_slice]
        )
        assert alone.tolist() == [batched[row]]
    backwards = torch.arange(4, -1, -1)
    reversed_batch = sample(
        logits[backwards], masks[backwards], None, *(x[backwards] for x in (temperature, seed, position))
    )
    assert reversed_batch.tolist() == batched[::-1]


LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0, -torch.inf, 1.5, 3.0])
MAY = torch.tensor([True, True, True, True, False, True, True, False])
TEMPERATURE = 0.7


def p_value_of_draws(sample: Sample, draws: int) -> float:
    """The p-value of many draws of one row against softmax in float64."""
    rows = 2_000
    seen: Counter[tuple[int, ...]] = Counter()
    logits, masks = LOGITS.expand(rows, -1).contiguous(), pack(MAY.unsqueeze(0))
    slots = torch.zeros(rows, dtype=torch.int32)
    for seed in range(draws // rows):
        position = torch.arange(rows, dtype=torch.int32)
        tokens = sample(logits, masks, slots, torch.full((rows,), TEMPERATURE), torch.full((rows,), seed), position)
        seen.update((token,) for token in tokens.tolist())
    weights = torch.where(MAY, LOGITS.double() / TEMPERATURE, -torch.inf).softmax(0).tolist()
    return p_value(seen, {(token,): share for token, share in enumerate(weights)})


@pytest.mark.parametrize("draws", [40_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_samples_follow_the_softmax(sample: Sample, draws: int) -> None:
    assert p_value_of_draws(sample, draws) > NEVER_BY_CHANCE


# Flipping u everywhere would give the same distribution. The test has to detect a flip of only small values.
MUTANTS = {
    "uniform flipped where it is small": (
        "if (high < 0x80000000u) return -GB_LOG1P(-((float)high",
        "if (high < 0x80000000u) return -GB_LOG(((float)high",
    ),
    "noise upside down": ("score / heat - GB_LOG(", "score / heat + GB_LOG("),
    "temperature dropped": ("score / heat - GB_LOG(", "score - GB_LOG("),
    "the same noise at every position": ("gb_philox((gb_u32)token, place,", "gb_philox((gb_u32)token, 0u,"),
    "the same noise for every token": ("gb_philox((gb_u32)token, place,", "gb_philox(0u, place,"),
    "mask ignored": ("!gb_allowed(mask, covered, (gb_u32)token, 1)", "!gb_allowed(mask, covered, 0u, 1)"),
}


# These check the tests themselves. Each mutant is compiled separately.
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_kernel_are_detected(name: str, tmp_path: Path) -> None:
    source, (text, other) = HEADER.read_text(), MUTANTS[name]
    assert text in source
    mutant = Harness(build(tmp_path, source.replace(text, other)))
    try:
        assert p_value_of_draws(mutant.masked_sample, 20_000) < NEVER_BY_CHANCE
    finally:
        mutant.close()
