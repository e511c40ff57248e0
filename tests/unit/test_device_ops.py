"""The kernels as torch operators. Here they are registered for the CPU, and the harness runs the launches."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
import torch
from torch import Tensor

from hf_guided.errors import BitmaskShapeError
from hf_guided.hf.device.launches import apply_launch
from hf_guided.hf.device.reference import fill_pool_
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.vocabulary.bitmask import allocate_bitmask, pack
from tests import lanes
from tests.kernel_harness import Harness, HarnessKernels

NAMESPACE = "hf_guided_on_cpu"


@pytest.fixture(scope="module")
def kernels(harness: Harness) -> Iterator[HarnessKernels]:
    with HarnessKernels.registered(harness, NAMESPACE) as registered:
        yield registered


@pytest.mark.parametrize("seed", range(12))
def test_step_agrees_with_the_host_lane(kernels: HarnessKernels, seed: int) -> None:
    random = Random(seed)
    batch = lanes.random_batch(random)
    if batch is not None:
        lanes.run(random, batch, kernels.step_, 3)


@pytest.mark.parametrize("seed", range(5))
def test_fill_pool_agrees_with_the_reference(kernels: HarnessKernels, seed: int) -> None:
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


def test_samples_agree_with_the_reference(kernels: HarnessKernels) -> None:
    given = arguments()
    assert kernels.masked_sample(*given.values()).tolist() == masked_sample(*given.values()).tolist()


@pytest.mark.usefixtures("kernels")
def test_operators_pass_opcheck() -> None:
    given, ops = arguments(), getattr(torch.ops, NAMESPACE)
    checks = ("test_schema", "test_faketensor")
    alive = torch.zeros(3, dtype=torch.int32)
    for case in ((given["row_slots"], alive), (None, None)):
        torch.library.opcheck(ops.apply_bitmask_, (given["logits"], given["bitmask"], *case), test_utils=checks)
    written = torch.zeros(3, dtype=torch.int64), torch.zeros(3, 2, dtype=torch.int64)
    torch.library.opcheck(ops.masked_sample_, (*written, *given.values()), test_utils=checks)


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


def test_no_rows_need_no_launch(kernels: HarnessKernels) -> None:
    empty = torch.zeros(0, 40)
    kernels.apply_slots_(empty, allocate_bitmask(0, 40))
    nothing = torch.zeros(0, dtype=torch.int64)
    tokens = kernels.masked_sample(empty, allocate_bitmask(0, 40), None, torch.zeros(0), nothing, nothing.int())
    assert tokens.shape == (0,)
