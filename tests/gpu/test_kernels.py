"""Masks on a GPU, by the kernel that is found there and by torch's operations, give the bits of the CPU."""

from __future__ import annotations

from random import Random

import pytest
import torch

from hf_guided.session.mask_kernel import MaskKernel, apply_with_torch, kernel_in_use, mask_kernel
from tests.mask_cases import DTYPES, Case, check, check_log_sums, random_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
]


@pytest.fixture(scope="module", params=["found", "torch"])
def kernel(request: pytest.FixtureRequest) -> MaskKernel:
    if request.param == "torch":
        return apply_with_torch
    name, reason = kernel_in_use(torch.device("cuda"))
    if name == "torch":
        pytest.skip(f"needs a kernel: {reason}")
    return mask_kernel(torch.device("cuda"))


def on_gpu(case: Case) -> Case:
    """The same arguments; the scores have the same strides and alignment."""
    whole = torch.empty(0, dtype=case.scores.dtype).set_(case.scores.untyped_storage())
    scores = whole.cuda().as_strided(case.scores.shape, case.scores.stride(), case.scores.storage_offset())
    return Case(scores, *(None if part is None else part.cuda() for part in case[1:]))


def test_random_cases(kernel: MaskKernel) -> None:
    for seed in range(60):  # Triton compiles for nearly each
        case = random_case(Random(seed))
        check(kernel(*on_gpu(case)), apply_with_torch(*case))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("vocab", [4095, 4096, 4097, 32_003, 131_072, 151_936, 262_208])
def test_vocabularies(kernel: MaskKernel, dtype: torch.dtype, vocab: int) -> None:
    for rows in 1, 7:
        case = random_case(Random(vocab), dtype, vocab, rows)
        check(kernel(*on_gpu(case)), apply_with_torch(*case))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float64])
@pytest.mark.parametrize("vocab", [100, 4096, 32_003])
def test_log_sums(kernel: MaskKernel, dtype: torch.dtype, vocab: int) -> None:
    case = random_case(Random(vocab), dtype, vocab, 3)
    check_log_sums(kernel, on_gpu(case), case)


@pytest.mark.parametrize("rows", [0, 33, 257, 70_000])
def test_batches(kernel: MaskKernel, rows: int) -> None:
    case = random_case(Random(rows), vocab=100, rows=rows)
    check(kernel(*on_gpu(case)), apply_with_torch(*case))


def test_nothing_waits_for_the_device(kernel: MaskKernel) -> None:
    case = on_gpu(random_case(Random(3), torch.bfloat16, 5000, 4))
    kernel(*case)  # compiles and loads
    torch.cuda.set_sync_debug_mode("error")
    try:
        kernel(*case)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_captured_call_reads_its_arguments_at_each_replay(kernel: MaskKernel) -> None:
    case, other = (random_case(Random(seed), torch.float16, 5000, 4) for seed in (4, 5))
    stops = torch.tensor([9])
    case, other = (
        Case(one.scores.contiguous(), one.masks[:, :150].contiguous(), one.slots[:4].clamp(min=-1), None, stops)
        for one in (case, other)
    )
    there = on_gpu(case)
    kernel(*there)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = kernel(*there)
    for ours, theirs in zip(there[:3], other[:3], strict=True):
        ours.copy_(theirs)
    graph.replay()
    check(found, apply_with_torch(*other))
