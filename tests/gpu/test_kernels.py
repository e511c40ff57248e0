"""The CUDA kernels against the torch reference and the host lane, on a GPU."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
import torch
from torch import Tensor

from hf_guided.hf.device import kernel_loader
from hf_guided.hf.device.kernels import Kernels, TorchKernels
from hf_guided.hf.device.lane import FORBID_ALL, Lane
from hf_guided.hf.device.reference import apply_slots_
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.vocabulary.bitmask import pack
from tests import lanes
from tests.chi_square import NEVER_BY_CHANCE, p_value

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


@pytest.fixture(scope="module")
def kernels() -> Kernels:
    found = kernel_loader.find(device="cuda")
    if isinstance(found.kernels, TorchKernels):
        pytest.skip(f"needs the CUDA kernels: {found.why_not}")
    return found.kernels


def on_gpu(view: Tensor) -> Tensor:
    """The same view of the same storage."""
    return whole(view).cuda().as_strided(view.shape, view.stride(), view.storage_offset())


def whole(view: Tensor) -> Tensor:
    """All of its storage."""
    return torch.empty(0, dtype=view.dtype, device=view.device).set_(view.untyped_storage())


def lane_on_gpu(batch: lanes.Batch, pool_bytes: int) -> Lane:
    budget = batch.lane.languages[0].needed is not None
    tables = [LanguageTables.of(one, budget=budget, device="cuda") for one in batch.languages]
    vocabulary = VocabularyTables.of(batch.vocabulary, device="cuda")
    return Lane.allocate(vocabulary, tables, batch.lane.rows, batch.lane.capacity, pool_bytes=pool_bytes)


@pytest.mark.parametrize("seed", range(100))
def test_the_step_agrees_with_the_host_lane(kernels: Kernels, seed: int) -> None:
    random = Random(seed)
    batch = lanes.random_batch(random, most_rows=40)
    if batch is None:
        return
    twin = lane_on_gpu(batch, random.choice((0, 200, 1 << 20)))

    def step(lane: Lane, logits: Tensor, alive: Tensor | None) -> None:
        # The lane on the CPU is only written to by the test: a row that begins anew has known 0 there.
        for ours, theirs in (
            (twin.tokens, lane.tokens),
            (twin.length, lane.length),
            (twin.language_of, lane.language_of),
            (twin.start, lane.start),
            (twin.limit, lane.limit),
        ):
            ours.copy_(theirs)
        twin.known[(lane.known == 0).cuda()] = 0
        masked, lively = on_gpu(logits), torch.zeros(lane.rows, dtype=torch.int32, device="cuda")
        kernels.step_(twin, masked, lively)
        logits.copy_(masked)
        lane.state_of.copy_(twin.state_of)
        lane.known.fill_(-1)
        if alive is not None:
            alive.copy_(lively)

    lanes.run(random, batch, step, 6)


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("width", [1, 31, 33, 32_003, 131_072, 151_936, 262_208])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999, 1.0])
def test_apply_agrees_with_the_reference(kernels: Kernels, dtype: torch.dtype, width: int, share: float) -> None:
    random = Random(width)
    logits = lanes.random_logits(random, 7, width, dtype)
    masks = pack(torch.rand(5, width, generator=torch.Generator().manual_seed(width)) < share)
    slots = torch.tensor([4, -1, 0, FORBID_ALL, 3, 3, 1], dtype=torch.int32)
    masked, alive = on_gpu(logits), torch.zeros(7, dtype=torch.int32, device="cuda")
    kernels.apply_slots_(masked, masks.cuda(), slots.cuda(), alive)
    expected_alive = torch.zeros(7, dtype=torch.int32)
    apply_slots_(logits, masks, slots, expected_alive)
    # The whole storage: what lies between and around the rows too.
    assert lanes.same_bits(whole(masked).cpu(), whole(logits))
    assert torch.equal(alive.cpu(), expected_alive)


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("width", [7, 32_003, 131_072])
def test_greedy_agrees_with_the_reference(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    logits = (lanes.random_logits(Random(width), 9, width, dtype) * 2).round()
    masks = pack(torch.rand(9, width, generator=torch.Generator().manual_seed(1)) < 0.3)
    zeros = torch.zeros(9)
    given = (logits, masks, None, zeros, zeros.long(), zeros.int())
    found = kernels.masked_sample(*(one if one is None else one.cuda() for one in given))
    assert found.tolist() == masked_sample(*given).tolist()


def test_samples_are_of_the_softmax(kernels: Kernels) -> None:
    logits = torch.tensor([0.5, 2.0, -1.0, 1.0, 0.0, -torch.inf, 1.5, 3.0], device="cuda")
    may = torch.tensor([True, True, True, True, False, True, True, False], device="cuda")
    rows = 20_000
    position = torch.arange(rows, dtype=torch.int32, device="cuda")
    seen: Counter[tuple[int, ...]] = Counter()
    for seed in range(10):
        found = kernels.masked_sample(
            logits.expand(rows, -1).contiguous(),
            pack(may.unsqueeze(0)),
            torch.zeros(rows, dtype=torch.int32, device="cuda"),
            torch.full((rows,), 0.7, device="cuda"),
            torch.full((rows,), seed, device="cuda"),
            position,
        )
        seen.update((token,) for token in found.tolist())
    weights = torch.where(may, logits.double() / 0.7, -torch.inf).softmax(0).tolist()
    assert p_value(seen, {(token,): share for token, share in enumerate(weights)}) > NEVER_BY_CHANCE


def test_a_captured_step_moves_on_with_each_replay(kernels: Kernels) -> None:
    random = Random(8)
    vocabulary = lanes.random_vocabulary(random, 300)
    language = lanes.random_language(random, vocabulary, 9)
    assert language is not None
    batch = lanes.Batch.of(vocabulary, [language], 4, 30)
    lane = lane_on_gpu(batch, 1 << 20)
    for row in range(4):
        batch.assign(row, 0)
        lane.assign(row, 0)
    logits = torch.zeros(4, 300, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        kernels.step_(lane, logits)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        kernels.step_(lane, logits)

    def replay(_: Lane, expected: Tensor, alive: Tensor | None) -> None:
        lane.tokens.copy_(batch.lane.tokens)
        lane.length.copy_(batch.lane.length)
        logits.copy_(expected)
        graph.replay()
        expected.copy_(logits)
        batch.lane.state_of.copy_(lane.state_of)
        assert alive is not None
        alive.copy_((expected > -torch.inf).any(1))

    for _ in range(8):
        for row in range(4):
            batch.write(row, lanes.next_tokens(random, batch, row))
        batch.check(replay, torch.randn(4, 300))
