"""The kernel project as it is built ahead of time: its own tests, and the device lane's functions through it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch

from hf_guided.hf.device.kernels import OpKernels
from tests.gpu.test_shapes_cuda import check_apply, check_steps
from tests.kernel_project import PROJECT, build
from tests.lanes import DTYPES

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


@pytest.fixture(scope="module")
def kernels(folder: Path) -> Iterator[OpKernels]:
    """As ``kernel_loader`` has it from the Hub."""
    sys.path.insert(0, str(folder))
    import guided_bitmask as package  # built a moment ago

    module: Any = package
    yield OpKernels("built ahead", module)
    sys.path.remove(str(folder))


@pytest.mark.parametrize("rows", [0, 1, 33, 257])
def test_steps(kernels: OpKernels, rows: int) -> None:
    check_steps(kernels, Random(rows), rows, 300, 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 33, 32_003])
def test_apply(kernels: OpKernels, dtype: torch.dtype, width: int) -> None:
    check_apply(kernels, Random(width), 4, width, dtype, -(-width // 32))
