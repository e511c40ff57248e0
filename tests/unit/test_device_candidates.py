"""Sampling with temperature, top-k, top-p and min-p, compared with transformers' own warpers."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers.generation import LogitsProcessorList, MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from hf_guided.hf.device.kernels import TorchKernels
from hf_guided.hf.device.lane import FORBID_ALL, LEAVE_ALONE
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.vocabulary.bitmask import pack
from tests import lanes
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.picking import pick


class RecordingKernels(TorchKernels):
    """Records the logits it samples from."""

    def masked_sample(self, logits: Tensor, *rest: Any) -> Tensor:
        self.seen = logits.clone()
        return masked_sample(logits, *rest)


def warped(scores: Tensor, top_k: int | None, top_p: float | None, min_p: float | None) -> Tensor:
    """Apply transformers' warpers, in their order and in float64, to scores already divided by the temperature."""
    warpers = LogitsProcessorList()
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p is not None and top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p is not None:
        warpers.append(MinPLogitsWarper(min_p))
    return warpers(None, scores.double())


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_candidates_equal_those_of_the_warpers(first: int) -> None:
    for seed in range(first, first + 50):
        check_candidates(seed)


def check_candidates(seed: int) -> None:
    random, generator = Random(seed), torch.Generator().manual_seed(seed)
    rows, width = random.randint(1, 5), random.choice((1, 2, 33, 60, 300, 1500))
    dtype = random.choice(lanes.DTYPES)
    logits = (torch.randn(rows, width, generator=generator) * random.choice((0.5, 2, 6))).to(dtype)
    if random.random() < 0.6:
        logits = (logits * random.choice((0.5, 2))).round()  # many equal scores, also at the cut-offs
    logits[torch.rand(rows, width, generator=generator) < 0.02] = -torch.inf
    permitted = torch.rand(rows, width, generator=generator) < random.choice((0.02, 0.5, 0.98))
    permitted[:, random.randrange(width)] = True
    slots = torch.randint(LEAVE_ALONE, rows, (rows,), generator=generator, dtype=torch.int32)
    temperature = torch.tensor([random.choice((0.3, 0.7, 1.0, 1.9)) for _ in range(rows)])
    filters = {
        "top_k": random.choice((None, 0, 1, 3, 50, 5000)),
        # No sums of a few equal probabilities, because rounding would decide on which side of the cut-off they are.
        "top_p": random.choice((None, 1.0, 0.0371, 0.6173, 0.9391, 0.9973)),
        "min_p": random.choice((None, 0.0517, 0.6137)),
    }
    if not filters["top_k"] and filters["top_p"] in (None, 1.0) and not filters["min_p"]:
        filters["top_k"] = 7
    kernels = RecordingKernels()
    steps = torch.arange(rows, dtype=torch.int32)
    tokens = pick(logits, pack(permitted), slots, temperature, torch.arange(rows), steps, kernels=kernels, **filters)

    left_alone = (slots == LEAVE_ALONE).unsqueeze(1)
    masked = torch.where(permitted[slots.clamp(min=0).long()] | left_alone, logits.float(), -torch.inf)
    tempered = masked / temperature.unsqueeze(1)
    expected = warped(tempered, **filters)
    for row in range(rows):
        kept = kernels.seen[row] > -torch.inf
        kept_scores = tempered[row][kept]
        expected_scores = tempered[row][expected[row] > -torch.inf]
        assert kept_scores.sort().values.tolist() == expected_scores.sort().values.tolist()
        assert torch.equal(kernels.seen[row][kept], masked[row][kept])
        if kept_scores.numel() == 0:
            assert tokens[row] == -1
            continue
        assert kept[tokens[row]]
        # Only if top-p cuts through equal scores may a token be missing whose score equals that of a kept token.
        lowest = torch.nonzero(tempered[row] == kept_scores.min()).flatten()
        stays = kept[lowest].tolist()
        assert stays == sorted(stays), "of equal scores, those with the higher ids stay"
        if filters["top_p"] in (None, 1.0):
            assert all(stays)


def test_top_p_counts_all_scores_equal_to_the_kth() -> None:
    logits = torch.tensor([[3.0] + [1.0] * 200])
    kernels = RecordingKernels()
    pick(logits, pack(logits > 0), None, torch.ones(1), torch.zeros(1).long(), torch.zeros(1).int(), top_k=4, top_p=0.5,
         kernels=kernels)  # fmt: skip
    # exp(3) = 20.1 and 200 * exp(1) = 543.7: half of the sum takes 97 of the 200, by brute force.
    total = math.exp(3) + 200 * math.e
    needed = next(n for n in range(201) if math.exp(3) + n * math.e >= total / 2)
    assert torch.nonzero(kernels.seen[0] > -torch.inf).flatten().tolist() == [0, *range(201 - needed, 201)]


LOGITS = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0, -torch.inf, 1.5, 3.0, 1.0, 1.0, 0.5, -0.5])
MAY = torch.tensor([True, True, True, True, False, True, True, False, True, True, True, True])


def p_value_of_draws(filters: dict[str, Any], temperature: float, judged: float, seeds: int) -> float:
    """The p-value of ``seeds`` * 20,000 draws at a temperature, against the warpers at the temperature ``judged``."""
    rows, seen = 20_000, Counter[tuple[int, ...]]()
    logits, masks = LOGITS.expand(rows, -1), pack(MAY.unsqueeze(0))
    slots, position = torch.zeros(rows, dtype=torch.int32), torch.arange(rows, dtype=torch.int32)
    for seed in range(seeds):
        tokens = pick(
            logits, masks, slots, torch.full((rows,), temperature), torch.full((rows,), seed), position, **filters
        )
        seen.update((token,) for token in tokens.tolist())
    scores = torch.where(MAY, LOGITS, -torch.inf).double().unsqueeze(0) / judged
    all_filters = {"top_k": None, "top_p": None, "min_p": None, **filters}
    weights = warped(scores, **all_filters)[0].softmax(0).tolist()
    return p_value(seen, {(token,): share for token, share in enumerate(weights)})


CASES: list[dict[str, Any]] = [
    {"top_k": None},
    {"top_k": 3},  # three tokens share the third score, so five tokens are possible
    {"top_k": 50, "top_p": 0.913},
    {"top_k": None, "top_p": 0.913},
    {"top_k": 6, "min_p": 0.23},
    {"top_k": 7, "top_p": 0.967, "min_p": 0.11},
]


@pytest.mark.parametrize("filters", CASES, ids=str)
def test_samples_follow_the_warped_softmax(filters: dict[str, Any]) -> None:
    assert p_value_of_draws(filters, 0.7, 0.7, 10) > NEVER_BY_CHANCE
    assert p_value_of_draws(filters, 0.7, 1.0, 1) < NEVER_BY_CHANCE  # the test detects an ignored temperature


def batch(rows: int, width: int, seed: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, width, generator=generator) * 3,
        pack(torch.rand(rows, width, generator=generator) < 0.5),
        torch.arange(rows, dtype=torch.int32),
        torch.linspace(0.5, 2, rows),
        torch.arange(rows) * 77,
        torch.arange(rows, dtype=torch.int32),
    )


@pytest.mark.parametrize("filters", CASES, ids=str)
def test_draw_of_a_row_does_not_depend_on_the_batch(filters: dict[str, Any]) -> None:
    logits, masks, slots, temperature, seed, position = batch(6, 400, 1)
    batched = pick(logits, masks, slots, temperature, seed, position, **filters).tolist()
    for row in range(6):
        row_slice = slice(row, row + 1)
        alone = pick(
            logits[row_slice],
            masks,
            slots[row_slice],
            temperature[row_slice],
            seed[row_slice],
            position[row_slice],
            **filters,
        )
        assert alone.tolist() == [batched[row]]


def test_filters_that_keep_the_token_do_not_change_the_draw() -> None:
    arguments = batch(200, 90, 2)
    unfiltered = masked_sample(*arguments).tolist()
    assert pick(*arguments, top_k=None).tolist() == unfiltered
    kernels = RecordingKernels()
    filtered = pick(*arguments, top_k=9, kernels=kernels).tolist()
    kept_rows = [row for row in range(200) if kernels.seen[row, unfiltered[row]] > -torch.inf]
    assert 100 < len(kept_rows) < 200
    assert [filtered[row] for row in kept_rows] == [unfiltered[row] for row in kept_rows]


@pytest.mark.parametrize("filters", [*CASES, {"top_k": 9, "top_p": 0.01}], ids=str)
def test_filters_do_not_change_greedy_rows(filters: dict[str, Any]) -> None:
    logits, masks, slots, _, seed, position = batch(6, 50, 3)
    logits = (logits / 4).round()  # several scores are the greatest; top-p would keep the last of them
    temperature = torch.tensor([0.0, 1.0, 0.0, 0.0, 2.0, 0.0])
    tokens = pick(logits, masks, slots, temperature, seed, position, **filters)
    greedy = masked_sample(logits, masks, slots, torch.zeros(6), seed, position)
    assert tokens[temperature == 0].tolist() == greedy[temperature == 0].tolist()


@pytest.mark.parametrize("filters", CASES, ids=str)
def test_scores_with_nan_and_infinity(filters: dict[str, Any]) -> None:
    inf = torch.inf
    logits = torch.tensor([[torch.nan, 1, -inf, 0], [inf, 1, 0, 0], [torch.nan] * 4, [-inf] * 4, [1.0, 2, 3, 4]])
    slots = torch.tensor([LEAVE_ALONE] * 4 + [FORBID_ALL], dtype=torch.int32)
    none = torch.zeros(0, 1, dtype=torch.int32)
    seen = set()
    for seed in range(20):
        rest = torch.ones(5), torch.full((5,), seed), torch.zeros(5, dtype=torch.int32)
        tokens = pick(logits, none, slots, *rest, **filters).tolist()
        assert tokens[1:] == [0, -1, -1, -1]
        seen.add(tokens[0])
    assert seen <= {1, 3}
    before = logits.clone()
    pick(logits, none, slots, *rest, **filters)
    assert lanes.same_bits(logits, before)


@pytest.mark.parametrize("filters", CASES, ids=str)
@pytest.mark.parametrize("rows", [0, 3])
def test_pick_does_not_synchronize_with_the_host(filters: dict[str, Any], rows: int) -> None:
    """On fake tensors, reading a value, or a shape that depends on a value, raises."""
    arguments = batch(rows, 400, 4)
    with FakeTensorMode() as mode:
        tokens = pick(*(mode.from_tensor(argument) for argument in arguments), **filters)
    assert (tokens.shape, tokens.dtype) == ((rows,), torch.int64)
