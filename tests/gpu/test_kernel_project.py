"""The kernel project as it is built ahead of time: its own tests, and hf-guided's cases."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
import torch

from hf_guided.session.mask_kernel import apply_with_torch
from tests.gpu.test_kernels import on_gpu
from tests.kernel_project import PROJECT, build
from tests.mask_cases import DTYPES, check, check_log_sums, random_case

NINJA, NVCC = shutil.which("ninja"), shutil.which("nvcc")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU; torch sees none"),
    pytest.mark.skipif(not (NINJA and NVCC), reason="needs ninja and nvcc, of a CUDA toolkit"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("project")
    build(made)
    return made


def test_its_own_tests_pass(folder: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "-rs"]
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(PROJECT / "tests")],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout


def test_cases_of_hf_guided(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    import guided_bitmask  # built a moment ago

    for seed in range(400):
        case = random_case(Random(seed))
        check(guided_bitmask.apply_masks(*on_gpu(case)), apply_with_torch(*case))
        check_log_sums(guided_bitmask.apply_masks, on_gpu(case), case)
    for dtype in DTYPES:
        for vocab in 32_003, 151_936:
            case = random_case(Random(vocab), dtype, vocab, 5)
            check(guided_bitmask.apply_masks(*on_gpu(case)), apply_with_torch(*case))
