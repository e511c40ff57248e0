"""The functions of the device lane at every shape, on a GPU: what was found there, and plain torch there."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hf_guided.hf.device import kernel_loader
from hf_guided.hf.device.kernels import Kernels, TorchKernels
from hf_guided.hf.device.lane import FORBID_ALL, LEAVE_ALONE, Lane
from hf_guided.hf.device.reference import apply_slots_
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.hf.device.tables import LanguageTables, VocabularyTables
from hf_guided.hf.philox import gumbel
from hf_guided.vocabulary.bitmask import pack
from tests import lanes
from tests.picking import pick

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]
DEVICE = "cuda"
FILTERS: list[dict[str, Any]] = [
    {"top_k": None},
    {"top_k": 50},
    {"top_k": 40, "top_p": 0.913},
    {"top_k": None, "top_p": 0.913},
    {"top_k": 20, "top_p": 0.967, "min_p": 0.031},
]


@pytest.fixture(scope="module", params=["found", "torch"])
def kernels(request: pytest.FixtureRequest) -> Kernels:
    """What is fastest, and what is there without it: it changes speed only."""
    if request.param == "torch":
        return TorchKernels()
    found = kernel_loader.find(device=DEVICE)
    if isinstance(found.kernels, TorchKernels):
        pytest.skip(f"needs the CUDA kernels: {found.why_not}")
    return found.kernels


def whole(view: Tensor) -> Tensor:
    """All of its storage."""
    return torch.empty(0, dtype=view.dtype, device=view.device).set_(view.untyped_storage())


def there(view: Tensor) -> Tensor:
    """The same view of the same storage, on the device."""
    return whole(view).to(DEVICE).as_strided(view.shape, view.stride(), view.storage_offset())


def check_apply(kernels: Kernels, random: Random, rows: int, width: int, dtype: torch.dtype, words: int) -> None:
    """Any logits, any masks, rows of all kinds; all of the storage is compared, what lies between rows too."""
    generator = torch.Generator().manual_seed(random.getrandbits(32))
    logits = lanes.random_logits(random, rows, width, dtype)
    bits = torch.rand(rows + 2, words * 32, generator=generator) < random.choice((0.001, 0.5, 0.999))
    masks = pack(bits) if words else torch.zeros(rows + 2, 0, dtype=torch.int32)
    slots = torch.randint(FORBID_ALL, len(masks), (rows,), generator=generator, dtype=torch.int32)
    masked, alive = there(logits), torch.zeros(rows, dtype=torch.int32, device=DEVICE)
    kernels.apply_slots_(masked, masks.to(DEVICE), slots.to(DEVICE), alive)
    expected_alive = torch.zeros(rows, dtype=torch.int32)
    apply_slots_(logits, masks, slots, expected_alive)
    assert lanes.same_bits(whole(masked).cpu(), whole(logits))
    assert torch.equal(alive.cpu(), expected_alive)


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("width", [*range(1, 70), *range(32_001, 32_033)])
def test_apply_at_every_width(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    check_apply(kernels, Random(width), 4, width, dtype, -(-width // 32))


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("words", [0, 1, 3, 30])
def test_logits_wider_than_the_mask_and_narrower(kernels: Kernels, dtype: torch.dtype, words: int) -> None:
    check_apply(kernels, Random(words), 5, 333, dtype, words)


def test_apply_at_every_batch(kernels: Kernels) -> None:
    random = Random(257)
    for rows in range(258):
        width = random.choice((40, 300))
        check_apply(kernels, random, rows, width, random.choice(lanes.DTYPES), -(-width // 32))


@pytest.mark.parametrize("offset", range(16))
def test_every_alignment(kernels: Kernels, offset: int) -> None:
    """Vectors of 16 bytes begin anywhere in a row; the first and last of them may be another row's."""
    for dtype in lanes.DTYPES:
        for stride in (40, 41, 47):
            flat = torch.randn(offset + 6 * stride, generator=torch.Generator().manual_seed(offset)).to(dtype)
            logits = flat[offset:].view(6, stride)[:, :37]
            masks = pack(torch.rand(6, 37, generator=torch.Generator().manual_seed(stride)) < 0.5)
            masked = there(logits)
            kernels.apply_slots_(masked, masks.to(DEVICE))
            apply_slots_(logits, masks)
            assert lanes.same_bits(whole(masked).cpu(), whole(logits))


def twin_of(batch: lanes.Batch, pool_bytes: int = 1 << 20) -> Lane:
    """The batch's lane on the device."""
    budget = any(one.needed is not None for one in batch.lane.languages)
    tables = [LanguageTables.of(one, budget=budget, device=DEVICE) for one in batch.languages]
    vocabulary = VocabularyTables.of(batch.vocabulary, device=DEVICE)
    return Lane.allocate(vocabulary, tables, batch.lane.rows, batch.lane.capacity, pool_bytes=pool_bytes)


def step_on(kernels: Kernels, twin: Lane) -> lanes.Step:
    """A step of the twin, told as one of the lane on the CPU, to which only the test writes."""

    def step(lane: Lane, logits: Tensor, alive: Tensor | None) -> None:
        for name in ("tokens", "length", "language_of", "start", "limit"):
            getattr(twin, name).copy_(getattr(lane, name))
        twin.known.masked_fill_((lane.known == 0).to(DEVICE), 0)  # a row that begins anew
        masked, lively = there(logits), torch.zeros(lane.rows, dtype=torch.int32, device=DEVICE)
        kernels.step_(twin, masked, lively)
        logits.copy_(masked)
        lane.state_of.copy_(twin.state_of)
        lane.known.fill_(-1)
        if alive is not None:
            alive.copy_(lively)

    return step


def check_steps(kernels: Kernels, random: Random, rows: int, width: int, steps: int) -> None:
    padding = random.choice((0, 12))
    vocabulary = lanes.random_vocabulary(random, width - padding, padding=padding, stops=2)
    found = [lanes.random_language(random, vocabulary, 12) for _ in range(2)]
    languages = [one for one in found if one is not None]
    assert languages
    batch = lanes.Batch.of(vocabulary, languages, rows, 40)
    for row in range(rows):
        lanes.begin_anew(random, batch, row)
    lanes.run(random, batch, step_on(kernels, twin_of(batch)), steps)


@pytest.mark.parametrize("rows", [0, 1, 2, 31, 32, 33, 64, 128, 255, 256, 257])
def test_steps_at_many_batches(kernels: Kernels, rows: int) -> None:
    check_steps(kernels, Random(rows), rows, 300, 3)


@pytest.mark.parametrize("width", [32_001, 32_016, 32_017, 32_031, 32_032, 131_072, 262_208])
def test_steps_at_many_widths(kernels: Kernels, width: int) -> None:
    check_steps(kernels, Random(width), 3, width, 2)


def drawing(rows: int, width: int, dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(rows + width)
    may = torch.rand(rows, width, generator=generator) < 0.7
    may[:, 0] = True
    given = {
        "logits": (torch.randn(rows, width, generator=generator) * 3).to(dtype),
        "masks": pack(may),
        "row_slots": torch.arange(rows, dtype=torch.int32),
        "temperature": torch.linspace(0.3, 4, rows),
        "seed": torch.arange(rows) * 7_777_777_777 - 9,
        "position": torch.arange(rows, dtype=torch.int32) * 5,
    }
    return {name: value.to(DEVICE) for name, value in given.items()}


@pytest.mark.parametrize("dtype", lanes.DTYPES)
@pytest.mark.parametrize("width", [1, 33, 1_003, 32_003, 131_072, 262_208])
def test_the_token_drawn_has_the_greatest_score(kernels: Kernels, dtype: torch.dtype, width: int) -> None:
    given = drawing(5, width, dtype)
    found = kernels.masked_sample(**given).cpu()
    host = {name: value.cpu() for name, value in given.items()}
    noise = gumbel(host["seed"], host["position"], torch.arange(width)).double()  # on the CPU, tested there
    scores = host["logits"].double() / host["temperature"].double().unsqueeze(1) + noise
    allowed = masked_bits(host["masks"], width)
    scores[~allowed] = -torch.inf
    assert allowed[torch.arange(5), found].all()
    assert (scores.amax(1) - scores[torch.arange(5), found] < 1e-4).all()


def masked_bits(masks: Tensor, width: int) -> Tensor:
    """(rows, width) bool, by numpy."""
    bits = np.unpackbits(masks.numpy().view(np.uint8), axis=1, bitorder="little")[:, :width]
    return torch.from_numpy(bits.astype(bool))


@pytest.mark.parametrize("filters", FILTERS, ids=str)
@pytest.mark.parametrize("rows", [0, 1, 64])
def test_picks_are_those_of_the_cpu(kernels: Kernels, filters: dict[str, Any], rows: int) -> None:
    given = drawing(rows, 2_000, torch.float32)
    found = pick(**given, **filters, kernels=kernels).tolist()
    expected = pick(**{name: value.cpu() for name, value in given.items()}, **filters).tolist()
    # A row may differ where two scores are within rounding of each other, or of an edge.
    assert sum(one != other for one, other in zip(found, expected, strict=True)) <= rows // 32


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_captured_pick_is_an_eager_one(kernels: Kernels, filters: dict[str, Any]) -> None:
    given = drawing(8, 5_000, torch.bfloat16)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        pick(**given, **filters, kernels=kernels)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = pick(**given, **filters, kernels=kernels)
    for _ in range(5):
        given["position"].add_(1)
        given["logits"].copy_(given["logits"].roll(1, 1))
        graph.replay()
        assert found.tolist() == pick(**given, **filters, kernels=kernels).tolist()


@pytest.mark.parametrize("filters", FILTERS, ids=str)
def test_a_pick_waits_for_nothing(kernels: Kernels, filters: dict[str, Any]) -> None:
    given = drawing(8, 5_000, torch.bfloat16)
    pick(**given, **filters, kernels=kernels)
    torch.cuda.set_sync_debug_mode("error")
    try:
        pick(**given, **filters, kernels=kernels)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_greedy_on_the_device_is_greedy_on_the_cpu(kernels: Kernels) -> None:
    given = drawing(9, 32_003, torch.float16)
    given["logits"] = given["logits"].round()
    given["temperature"].zero_()
    host = {name: value.cpu() for name, value in given.items()}
    assert kernels.masked_sample(**given).tolist() == masked_sample(**host).tolist()


def test_rows_that_point_at_no_mask(kernels: Kernels) -> None:
    logits = torch.randn(3, 50, device=DEVICE)
    slots = torch.tensor([LEAVE_ALONE, FORBID_ALL, LEAVE_ALONE], dtype=torch.int32, device=DEVICE)
    before = logits.clone()
    kernels.apply_slots_(logits, torch.zeros(0, 2, dtype=torch.int32, device=DEVICE), slots)
    assert torch.equal(logits[[0, 2]], before[[0, 2]])
    assert torch.isinf(logits[1]).all()


def test_a_captured_step_goes_on_as_rows_grow(kernels: Kernels) -> None:
    """Lengths grow on the device between replays, as they do in a decode loop; nothing is captured anew."""
    if isinstance(kernels, TorchKernels):
        pytest.skip("the step in torch asks the device for numbers, so no graph can hold it")
    random = Random(11)
    vocabulary = lanes.random_vocabulary(random, 400)
    language = lanes.random_language(random, vocabulary, 9)
    assert language is not None
    batch = lanes.Batch.of(vocabulary, [language], 6, 60)
    twin = twin_of(batch)
    for row in range(6):
        batch.assign(row, 0)
        twin.assign(row, 0)
    logits = torch.zeros(6, 400, device=DEVICE)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernels.step_(twin, logits)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        twin.length.add_(1)
        kernels.step_(twin, logits)
    for place in range(40):
        for row, host in enumerate(batch.rows):
            may = host.allowed(400)
            allowed = [] if may is None else torch.nonzero(may).flatten().tolist()
            token = random.choice(allowed) if allowed else random.randrange(400)
            batch.write(row, [*host.tokens, token])
            twin.tokens[row, place] = token

        def replay(lane: Lane, expected: Tensor, alive: Tensor | None) -> None:
            logits.copy_(expected)
            graph.replay()
            expected.copy_(logits)
            lane.state_of.copy_(twin.state_of)
            assert alive is not None
            alive.copy_((expected > -torch.inf).any(1))

        batch.check(replay, torch.randn(6, 400))
