"""The kernels as the device lane calls them: launched, or as operators of a package. Here the harness runs them."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.errors import BitmaskShapeError
from hf_guided.hf.device import reference
from hf_guided.hf.device.kernels import Kernels, OpKernels
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.launches import apply_launch
from hf_guided.hf.device.reference import fill_pool_
from hf_guided.hf.device.row_output import RowOutput
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.hf.device.staging import Staging
from hf_guided.hf.device.tables import VocabularyTables
from hf_guided.vocabulary.bitmask import allocate_bitmask, pack
from tests import lanes
from tests.kernel_harness import Harness, HarnessKernels, HarnessOps, tables_of
from tests.pairs import one_in


class PackagedKernels(OpKernels):
    """The kernels from the Hub, whose operators run on the harness."""

    def __init__(self, harness: Harness):
        self.ops = HarnessOps(harness)
        super().__init__("packaged", self.ops)

    def step_(self, lane: Lane, *given: Any) -> None:
        self.ops.on_cpu.tables = tables_of(lane)
        super().step_(lane, *given)

    def fill_pool_(self, lane: Lane) -> None:
        self.ops.on_cpu.tables = tables_of(lane)
        super().fill_pool_(lane)


@pytest.fixture(scope="module", params=[HarnessKernels, PackagedKernels])
def kernels(request: pytest.FixtureRequest, harness: Harness) -> Kernels:
    kernels: Kernels = request.param(harness)
    return kernels


@pytest.mark.parametrize("seed", one_in(3, range(12)))
def test_step_agrees_with_the_host_lane(kernels: Kernels, seed: int) -> None:
    random = Random(seed)
    batch = lanes.random_batch(random)
    if batch is not None:
        lanes.run(random, batch, kernels.step_, 3)


@pytest.mark.parametrize("seed", range(5))
def test_fill_pool_agrees_with_the_reference(kernels: Kernels, seed: int) -> None:
    random = Random(seed)
    vocabulary = lanes.random_vocabulary(random, 100)
    drawn = [lanes.random_language(random, vocabulary, 7) for _ in range(2)]
    languages = [language for language in drawn if language is not None]
    pool_bytes = random.choice((0, 160, 9999))
    ours, reference = (lanes.Batch.of(vocabulary, languages, 2, 4, pool_bytes=pool_bytes).lane for _ in range(2))
    kernels.fill_pool_(ours)
    fill_pool_(reference)
    assert torch.equal(ours.claims, reference.claims)
    assert torch.equal(ours.masks, reference.masks)


def arguments(rows: int = 3, vocab: int = 70) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    return {
        "logits": torch.randn(rows, vocab, generator=generator),
        "bitmask": pack(torch.rand(rows, vocab, generator=generator) < 0.5),
        "row_slots": torch.tensor([2, -1, 0], dtype=torch.int32),
        "temperature": torch.tensor([0.0, 1.0, 2.0]),
        "seed": torch.tensor([1, 2, 3]),
        "position": torch.tensor([0, 5, 9], dtype=torch.int32),
    }


def test_samples_agree_with_the_reference(kernels: Kernels) -> None:
    given = arguments()
    assert kernels.masked_sample(*given.values()).tolist() == masked_sample(*given.values()).tolist()


def test_prepared_step_takes_any_logits(kernels: Kernels) -> None:
    """The addresses, strides, dtypes and rows' lifetimes of successive steps differ."""
    random = Random(4)
    vocabulary = lanes.random_vocabulary(random, 90)
    language = lanes.random_language(random, vocabulary, 7)
    assert language is not None
    for _ in range(3):  # lanes that come and go
        batch = lanes.Batch.of(vocabulary, [language], 3, 12)
        for row in range(3):
            batch.assign(row, 0)
        ours = replace(batch.lane, **{name: value.clone() for name, value in own_tensors(batch.lane)})
        for step in range(6):
            for row in range(3):
                batch.write(row, lanes.next_tokens(random, batch, row))
            ours.tokens.copy_(batch.lane.tokens)
            ours.length.copy_(batch.lane.length)
            logits = torch.randn(3, 90 + 7 * (step % 3))[:, step % 3 : step % 3 + 88].to(lanes.DTYPES[step // 2])
            expected = logits.clone()
            alive = torch.zeros(3, dtype=torch.int32) if step % 2 else None
            kernels.step_(ours, logits, alive)
            reference.step_(batch.lane, expected)
            assert lanes.same_bits(logits.contiguous(), expected)
            assert alive is None or alive.tolist() == (expected > -torch.inf).any(1).int().tolist()


def own_tensors(lane: Lane) -> list[tuple[str, Tensor]]:
    names = ("tokens", "length", "shadow", "history", "known", "claims", "masks", "state_of", "slot_of", "work")
    return [(name, getattr(lane, name)) for name in (*names, "work_count")]


def test_prepared_launches_do_not_keep_a_lane(harness: Harness) -> None:
    kernels, vocabulary = HarnessKernels(harness), lanes.random_vocabulary(Random(0), 40)
    lane = lanes.Batch.of(vocabulary, [], 2, 4).lane
    kernels.step_(lane, torch.zeros(2, 40))
    alive = weakref.ref(lane)
    del lane
    gc.collect()
    assert alive() is None


def test_lane_of_other_tensors_is_refused(harness: Harness) -> None:
    """Although its first step was prepared for logits that fit."""
    kernels, vocabulary = HarnessKernels(harness), lanes.random_vocabulary(Random(0), 40)
    lane = lanes.Batch.of(vocabulary, [], 2, 4).lane
    kernels.step_(lane, torch.zeros(2, 40))
    with pytest.raises(BitmaskShapeError, match=r"length: .*\(3,\)"):
        kernels.step_(lane, torch.zeros(3, 40))
    with pytest.raises(BitmaskShapeError, match="float64"):
        kernels.step_(lane, torch.zeros(2, 40).double())


@pytest.mark.parametrize("seed", range(20))
def test_sampler_appends_what_it_picks(kernels: Kernels, seed: int) -> None:
    """The oracle appends with lists."""
    random, rows, capacity, vocab, pad = Random(seed), 5, 6, 70, 3
    generator = torch.Generator().manual_seed(seed)
    vocabulary = lanes.random_vocabulary(random, vocab)
    ids = torch.full((rows, 4 + capacity), -9)
    lane = Lane.allocate(VocabularyTables.of(vocabulary), [], rows, capacity, tokens=ids[:, 4:])
    ends, fallbacks = sorted(random.sample(range(vocab), random.choice((0, 3, 30)))), [11, 12, 13, 14, 15]
    output = RowOutput.of(lane, Staging(torch.device("cpu")), eos_token_ids=ends, pad_token_id=pad, fallbacks=fallbacks)
    heat = torch.tensor([0.0, 1.0, 2.0, 0.0, 0.5])
    seeds = torch.randint(1 << 40, (rows,), generator=generator) if seed % 2 else None
    sample = kernels.sampler(lane, heat if seed % 2 else torch.zeros(rows), seeds, output)
    expected: list[list[int]] = [[] for _ in range(rows)]
    for position in range(capacity):
        logits = torch.randn(rows, vocab, generator=generator)
        logits[random.randrange(rows)] = random.choice((-torch.inf, torch.nan))
        given = logits, lane.masks, lane.slot_of, heat if seed % 2 else torch.zeros(rows), seeds
        chosen = masked_sample(*given, torch.full((rows,), position, dtype=torch.int32)).tolist()
        found = sample(logits)
        assert found.tolist() == chosen
        for row, token in enumerate(chosen):
            over = any(taken in ends for taken in expected[row])
            expected[row].append(pad if over else fallbacks[row] if token < 0 else token)
        assert lane.tokens[:, : position + 1].tolist() == expected
        assert lane.length.tolist() == [position + 1] * rows
        assert output.last.tolist() == [row[-1:] for row in expected]
        assert output.ended.tolist() == [any(token in ends for token in row) for row in expected]
    assert (ids[:, :4] == -9).all()


def test_full_rows_are_not_written_beyond_their_end(harness: Harness) -> None:
    lane = lanes.Batch.of(lanes.random_vocabulary(Random(0), 40), [], 2, 3).lane
    output = RowOutput.of(lane, Staging(torch.device("cpu")), eos_token_ids=[], pad_token_id=0, fallbacks=[0, 0])
    lane.length.fill_(3)
    HarnessKernels(harness).sampler(lane, torch.zeros(2), None, output)(torch.randn(2, 40))  # a sanitizer watches
    assert not lane.tokens.any()


@pytest.mark.parametrize(
    ("logits", "bitmask", "row_slots", "told"),
    [
        (torch.zeros(2, 40).double(), allocate_bitmask(2, 40), None, "float64"),
        (torch.zeros(40), allocate_bitmask(2, 40), None, "logits"),
        (torch.zeros(2, 80)[:, ::2], allocate_bitmask(2, 40), None, r"strides \(80, 2\)"),
        (torch.zeros(2, 40), allocate_bitmask(2, 40).long(), None, "int64"),
        (torch.zeros(2, 40), allocate_bitmask(1, 40), None, "pass row_slots"),
        (torch.zeros(2, 40), allocate_bitmask(2, 40), torch.zeros(3, dtype=torch.int32), r"row_slots.*\(3,\)"),
        (torch.zeros(2, 40), allocate_bitmask(2, 40), torch.zeros(2, dtype=torch.int64), "row_slots.*int64"),
    ],
)
def test_invalid_tensors_are_refused(logits: Tensor, bitmask: Tensor, row_slots: Tensor | None, told: str) -> None:
    with pytest.raises(BitmaskShapeError, match=told):
        apply_launch(logits, bitmask, row_slots)


def test_no_rows_need_no_launch(kernels: Kernels) -> None:
    empty = torch.zeros(0, 40)
    kernels.apply_slots_(empty, allocate_bitmask(0, 40))
    nothing = torch.zeros(0, dtype=torch.int64)
    tokens = kernels.masked_sample(empty, allocate_bitmask(0, 40), None, torch.zeros(0), nothing, nothing.int())
    assert tokens.shape == (0,)
