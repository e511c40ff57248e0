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

# The authors' own, of Random123's kat_vectors: counter, key, result.
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
    """Either implementation."""
    return masked_sample if request.param == "torch" else request.getfixturevalue("harness").masked_sample


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_philox_gives_the_known_answers(harness: Harness, counter: str, key: str, expected: str) -> None:
    parts = [torch.tensor([word]) for word in numbers(counter) + numbers(key)]
    found = philox(tuple(parts[:4]), tuple(parts[4:]))  # type: ignore[arg-type]
    assert [int(word) for word in found] == numbers(expected)
    out = torch.zeros(4, dtype=torch.int32)
    harness.run(Launch("philox", (1, 1), (as_words(numbers(counter) + numbers(key)), out)))
    assert unsigned(out) == numbers(expected)


def test_exponentials_are_right_to_their_last_bits_and_never_0_or_infinite(harness: Harness) -> None:
    random = Random(0)
    pairs = [(high, low) for high in EDGES for low in EDGES]
    pairs += [(random.getrandbits(random.randint(1, 32)), random.getrandbits(32)) for _ in range(2000)]
    # -log(1 - u) without a subtraction that loses bits: what is near 1 is made of its own distance from 1.
    exact = []
    for high, low in pairs:
        bits = (high << 32 | low) * 2 + 1  # of 2^65
        exact.append(-np.log1p(-bits / 2**65) if bits < 2**64 else -np.log((2**65 - bits) / 2**65))
    expected = np.array(exact)
    in_torch = exponential(torch.tensor([high for high, _ in pairs]), torch.tensor([low for _, low in pairs])).numpy()
    in_kernel = torch.zeros(len(pairs))
    words = as_words([word for pair in pairs for word in pair])
    harness.run(Launch("exponential", (len(pairs), 1), (words, in_kernel)))
    for found in (in_torch, in_kernel.numpy()):
        assert (found > 0).all()
        assert np.isfinite(found).all()
        # Above, where the token loses anyway, the bits below 2^-32 are left out: 22.87 stands for all that is greater.
        checked = np.array([high < 2**32 - 2**12 for high, _ in pairs])
        np.testing.assert_allclose(found[checked], expected[checked], rtol=1e-6)
        assert (found[~checked] > 13).all()


def test_half_precision_is_read_exactly(harness: Harness) -> None:
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    found = torch.zeros(2**16)
    harness.run(Launch("value_of_f16", (2**16, 1), (every, found)))
    expected = every.view(torch.float16).float()
    assert torch.equal(found.isnan(), expected.isnan())
    kept = ~expected.isnan()
    assert lanes.same_bits(found[kept], expected[kept])


@pytest.mark.parametrize("dtype", lanes.DTYPES)
def test_greedy_takes_the_lowest_of_the_greatest(sample: Sample, dtype: torch.dtype) -> None:
    for seed in range(20):
        check_greedy(sample, dtype, seed)


def check_greedy(sample: Sample, dtype: torch.dtype, seed: int) -> None:
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    rows, width = random.randint(1, 6), random.choice((1, 33, 300, 1500))
    logits = lanes.random_logits(random, rows, width, dtype)
    logits.copy_((logits * 2).round())  # many ties, 0 and -0 among them
    may = torch.rand(rows, width, generator=generator) < random.choice((0.0, 0.02, 0.5, 1.0))
    slots = torch.randint(FORBID_ALL, rows, (rows,), generator=generator, dtype=torch.int32)
    zeros = torch.zeros(rows)
    found = sample(logits, pack(may), slots, zeros, zeros.long(), zeros.int())
    expected = []
    for line, slot in zip(logits.double().tolist(), slots.tolist(), strict=True):
        allowed = [slot == LEAVE_ALONE or (slot >= 0 and bool(may[slot, i])) for i in range(width)]
        alive = [i for i in range(width) if allowed[i] and line[i] > -np.inf]
        expected.append(max(alive, key=lambda i: (line[i], -i), default=-1))
    assert found.tolist() == expected


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
def test_the_token_drawn_has_the_greatest_score(sample: Sample, dtype: torch.dtype, width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    rows = 4
    logits = (torch.randn(rows, width, generator=generator) * 3).to(dtype)
    may = torch.rand(rows, width, generator=generator) < 0.7
    may[:, 0] = True
    temperature = torch.tensor([0.3, 1.0, 1.7, 8.0])
    seed = torch.tensor([0, -1, 1 << 40, 12345])
    position = torch.tensor([0, 7, 4095, 131_071], dtype=torch.int32)
    found = sample(logits, pack(may), None, temperature, seed, position)
    scores = np.where(may.numpy(), exact_scores(logits, temperature, seed, position), -np.inf)
    assert (scores.max(1) - scores[np.arange(rows), found.numpy()] < 1e-4).all()


def test_a_row_draws_the_same_in_any_batch(sample: Sample) -> None:
    logits = torch.randn(5, 400, generator=torch.Generator().manual_seed(1))
    masks = pack(torch.rand(5, 400, generator=torch.Generator().manual_seed(2)) < 0.5)
    temperature, seed = torch.full((5,), 1.5), torch.arange(5) * 77
    position = torch.arange(5, dtype=torch.int32)
    together = sample(logits, masks, None, temperature, seed, position).tolist()
    for row in range(5):
        one = slice(row, row + 1)
        alone = sample(logits[one], masks[one], None, temperature[one], seed[one], position[one])
        assert alone.tolist() == [together[row]]
    backwards = torch.arange(4, -1, -1)
    turned = sample(logits[backwards], masks[backwards], None, *(x[backwards] for x in (temperature, seed, position)))
    assert turned.tolist() == together[::-1]


LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0, -torch.inf, 1.5, 3.0])
MAY = torch.tensor([True, True, True, True, False, True, True, False])
TEMPERATURE = 0.7


def drawn(sample: Sample, draws: int) -> float:
    """The p-value of many draws of one row against softmax in float64."""
    rows = 2_000
    seen: Counter[tuple[int, ...]] = Counter()
    logits, masks = LOGITS.expand(rows, -1).contiguous(), pack(MAY.unsqueeze(0))
    slots = torch.zeros(rows, dtype=torch.int32)
    for seed in range(draws // rows):
        position = torch.arange(rows, dtype=torch.int32)
        found = sample(logits, masks, slots, torch.full((rows,), TEMPERATURE), torch.full((rows,), seed), position)
        seen.update((token,) for token in found.tolist())
    weights = torch.where(MAY, LOGITS.double() / TEMPERATURE, -torch.inf).softmax(0).tolist()
    return p_value(seen, {(token,): share for token, share in enumerate(weights)})


@pytest.mark.parametrize("draws", [40_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_samples_are_of_the_softmax(sample: Sample, draws: int) -> None:
    assert drawn(sample, draws) > NEVER_BY_CHANCE


# A flip of u on both sides would be the same distribution: what has to be seen is one that is flipped on one side.
MUTANTS = {
    "uniform flipped where it is small": (
        "if (high < 0x80000000u) return -GB_LOG1P(-((float)high",
        "if (high < 0x80000000u) return -GB_LOG(((float)high",
    ),
    "noise upside down": ("score / heat - GB_LOG(", "score / heat + GB_LOG("),
    "temperature dropped": ("score / heat - GB_LOG(", "score - GB_LOG("),
    "the same noise at every position": ("gb_philox((gb_u32)token, place,", "gb_philox((gb_u32)token, 0u,"),
    "the same noise for every token": ("gb_philox((gb_u32)token, place,", "gb_philox(0u, place,"),
    "mask ignored": ("!gb_allowed(mask, covered, token, 1)", "!gb_allowed(mask, covered, 0, 1)"),
}


# A check of the tests themselves, with a compiler for each.
@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_caught(name: str, tmp_path: Path) -> None:
    source, (text, other) = HEADER.read_text(), MUTANTS[name]
    assert text in source
    mutant = Harness(build(tmp_path, source.replace(text, other)))
    try:
        assert drawn(mutant.masked_sample, 20_000) < NEVER_BY_CHANCE
    finally:
        mutant.close()
