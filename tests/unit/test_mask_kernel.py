"""Masks on a device: torch's operations against a loop over tokens, the Triton kernel against both, and fall-backs."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hf_guided.options import KernelOptions
from hf_guided.session import mask_kernel as masking
from hf_guided.session.mask_kernel import apply_with_torch, kernel_in_use, mask_kernel
from tests.kernel_harness import ROOT
from tests.mask_cases import WIDTHS, Case, check, check_log_sums, expected, random_case

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_torch_masks_as_a_loop_over_tokens(dtype: torch.dtype) -> None:
    for seed in range(60):
        case = random_case(Random(seed), dtype)
        before = case.scores.clone()
        check(apply_with_torch(*case), expected(case))
        check_log_sums(apply_with_torch, case)
        unchanged = torch.zeros(0, dtype=torch.int32)
        check((case.scores.contiguous(), unchanged), (before.contiguous(), unchanged))


INTERPRETED = """
from random import Random

from hf_guided.session import mask_triton
from hf_guided.session.mask_kernel import apply_with_torch
from tests.mask_cases import check, check_log_sums, expected, random_case

mask_triton._BLOCK = 256  # few programs, for each takes the interpreter a millisecond; a row of 257 has two
for seed in range(360):
    case = random_case(Random(seed))
    check(mask_triton.apply_with_triton(*case), apply_with_torch(*case))
    check_log_sums(mask_triton.apply_with_triton, case)
mask_triton._BLOCK = 4096
for vocab in 4095, 4096, 5000:
    case = random_case(Random(vocab), vocab=vocab, rows=2)
    check(mask_triton.apply_with_triton(*case), expected(case))
    check_log_sums(mask_triton.apply_with_triton, case)
scores = random_case(Random(1), vocab=32, rows=32).scores.T  # a stride in the last dimension
case = random_case(Random(2), scores.dtype, 32, 32)._replace(scores=scores)
check(mask_triton.apply_with_triton(*case), apply_with_torch(*case))
"""

COMPILED = """
import sys

import triton
from triton.backends.compiler import GPUTarget

from hf_guided.session import mask_triton

capability = int(sys.argv[1])
for dtype in "fp32", "fp16", "bf16":
    types = {"scores": f"*{dtype}", "out": f"*{dtype}", "stops": "*i64", "fallback": "fp32", "BLOCK": "constexpr"}
    types |= dict.fromkeys(("masks", "own", "slots", "alive"), "*i32") | {"parts": "*fp32", "SUMS": "constexpr"}
    for kernel, sums in (mask_triton._mask, False), (mask_triton._mask, True), (mask_triton._end, None):
        constants = {} if sums is None else {"SUMS": sums}
        signature = {name: types.get(name, "i32") for name in kernel.arg_names}
        source = triton.compiler.ASTSource(kernel, signature, {"BLOCK": mask_triton._BLOCK, **constants})
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=mask_triton._OPTIONS)
        assert made.asm["cubin"].startswith(b"\\x7fELF")
        assert f"sm_{capability}" in made.asm["ptx"]
"""


def run_with_triton(script: str, *arguments: str, **environment: str) -> None:
    """In a process of its own: Triton reads its environment when it is imported, and complains when Python ends."""
    if find_spec("triton") is None:
        pytest.skip("needs Triton, which is for Linux")
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_triton_kernel_gives_the_same_bits() -> None:
    run_with_triton(INTERPRETED, TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["80", "90", "120"])
def test_the_triton_kernel_compiles_without_a_gpu(capability: str, tmp_path: Path) -> None:
    run_with_triton(COMPILED, capability, TRITON_CACHE_DIR=str(tmp_path))  # compiles each time


# ---------------------------------------------------------------------------------------------------- what is chosen


@pytest.fixture(autouse=True)
def nothing_found_yet(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(masking, "_found", {})
    monkeypatch.delenv("HF_GUIDED_TORCH_ONLY", raising=False)
    monkeypatch.delenv("HF_GUIDED_KERNEL_REPOSITORY", raising=False)
    yield


class Fake:
    """A kernel that fails at one call, and from then on."""

    def __init__(self, fails_at: int | None = None, error: Exception | None = None):
        self.fails_at, self.error, self.calls = fails_at, error or RuntimeError("no kernel image"), 0

    def __call__(self, *case: Any, **named: Tensor) -> tuple[Tensor, Tensor]:
        self.calls += 1
        if self.fails_at is not None and self.calls > self.fails_at:
            raise self.error
        return apply_with_torch(*case, **named)


def use(monkeypatch: pytest.MonkeyPatch, loaded: Any) -> None:
    """Lets the CPU have a kernel."""

    def load(device: torch.device, options: KernelOptions) -> Any:
        if isinstance(loaded, Exception):
            raise loaded
        return loaded, ""

    monkeypatch.setattr(masking, "_loaded", load)


def masks_right_and_warns(count: int) -> list[str]:
    """What two calls of the CPU's kernel warn of; their results are checked."""
    case = random_case(Random(7), torch.float32)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            check(mask_kernel(CPU)(*case), expected(case))
    assert len(caught) == count
    return [str(warning.message) for warning in caught]


def test_a_kernel_that_works_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    use(monkeypatch, fake)
    masks_right_and_warns(0)
    assert fake.calls == 3 + 2  # each dtype is tried out
    assert kernel_in_use(CPU) == ("triton", "")
    double = random_case(Random(7), torch.float64)
    check(mask_kernel(CPU)(*double), expected(double))
    assert fake.calls == 3 + 2, "no kernel takes float64"
    assert mask_kernel(CPU) is mask_kernel(CPU)


@pytest.mark.parametrize(
    ("loaded", "reason"),
    [
        (ModuleNotFoundError("No module named 'triton'"), "ModuleNotFoundError: No module named 'triton'"),
        (Fake(0), "RuntimeError: no kernel image"),
        (Fake(2), "RuntimeError: no kernel image"),
        (Fake(3), "RuntimeError: no kernel image"),
    ],
    ids=["missing", "fails at the first launch", "fails for one dtype", "fails later"],
)
def test_torch_takes_over_with_one_warning(monkeypatch: pytest.MonkeyPatch, loaded: Any, reason: str) -> None:
    use(monkeypatch, loaded)
    [message] = masks_right_and_warns(1)
    assert reason in message and "torch's own operations, which are slower" in message
    assert kernel_in_use(CPU) == ("torch", reason)


def test_memory_that_is_short_for_once_says_nothing_about_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(3, torch.OutOfMemoryError("tried to allocate 20 GiB"))
    use(monkeypatch, fake)
    case = random_case(Random(7), torch.float32)
    with pytest.raises(torch.OutOfMemoryError):
        mask_kernel(CPU)(*case)
    fake.fails_at = None
    masks_right_and_warns(0)
    assert kernel_in_use(CPU) == ("triton", "")


def test_without_an_nvidia_gpu_torch_masks_and_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    masks_right_and_warns(0)
    name, reason = kernel_in_use(CPU)
    assert name == "torch" and "NVIDIA" in reason and "cpu" in reason


def load(monkeypatch: pytest.MonkeyPatch, options: KernelOptions) -> Any:
    """What is loaded for a GPU."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    return masking._loaded(torch.device("cuda", 0), options)


def test_torch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, KernelOptions(torch_only=True)) == (apply_with_torch, "HF_GUIDED_TORCH_ONLY=1")


def test_the_kernel_of_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, fake = [], Fake()

    def get_kernel(repository: str, *, version: int) -> Any:
        asked.append((repository, version))
        return SimpleNamespace(apply_masks=fake)

    monkeypatch.setitem(sys.modules, "kernels", SimpleNamespace(get_kernel=get_kernel))
    assert load(monkeypatch, KernelOptions("somebody/guided-bitmask")) == (fake, "")
    assert asked == [("somebody/guided-bitmask", 1)]


def test_triton_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    monkeypatch.setitem(
        sys.modules, masking.__name__.replace("kernel", "triton"), SimpleNamespace(apply_with_triton=fake)
    )
    assert load(monkeypatch, KernelOptions()) == (fake, "")


def test_options_from_the_environment() -> None:
    assert KernelOptions.from_env({}) == KernelOptions()
    named = {"HF_GUIDED_KERNEL_REPOSITORY": "a/b", "HF_GUIDED_TORCH_ONLY": "1"}
    assert KernelOptions.from_env(named) == KernelOptions("a/b", True)
    with pytest.raises(ValueError, match="HF_GUIDED_TORCH_ONLY='yes'"):
        KernelOptions.from_env({"HF_GUIDED_TORCH_ONLY": "yes"})


def test_cases_have_all_that_the_contract_allows() -> None:
    cases = [random_case(Random(seed)) for seed in range(360)]
    assert {case.scores.shape[1] for case in cases} == set(WIDTHS)
    assert {seen for case in cases for seen in case.slots.tolist()} == set(range(-4, 4))
    assert any(_is_dead(case) and case.stops is not None for case in cases)
    assert {case.masks.shape[1] * 32 >= case.scores.shape[1] for case in cases} == {True, False}


def _is_dead(case: Case) -> bool:
    return 0 in expected(case)[1].tolist()
