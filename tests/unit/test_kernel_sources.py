"""The kernel project: its layout, and compiling its sources without a GPU, with the compilers that are installed.

NVRTC comes with the extra ``cuda`` and the NVIDIA wheels that it names; nvcc with a CUDA toolkit.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_guided.hf.device.kernel_loader import NotHere, nvrtc_version
from hf_guided.hf.device.nvrtc import compiled
from tests.kernel_harness import HEADER, ROOT

PROJECT = ROOT / "kernels" / "guided_bitmask"
KERNELS = {"gb_advance", "gb_build", "gb_pick"} | {
    f"gb_{what}_{dtype}" for what in ("apply", "sample") for dtype in ("f32", "f16", "bf16")
}
BINDING = PROJECT / "torch-ext" / "torch_binding.cpp"
TORCH = Path(torch.__file__).parent / "include"
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="needs nvcc, of a CUDA toolkit")


def build_toml() -> dict[str, Any]:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    return tomllib.loads((PROJECT / "build.toml").read_text())


def test_layout_of_kernel_builder() -> None:
    description = build_toml()
    general = description["general"]
    assert general["edition"] == 5
    assert re.fullmatch("[a-z][-a-z0-9]*[a-z0-9]", general["name"])
    assert isinstance(general["version"], int)
    assert general["license"] == "Apache-2.0"
    assert general["backends"] == ["cuda"]
    assert (PROJECT / "torch-ext" / general["name"].replace("-", "_") / "__init__.py").exists()
    assert (PROJECT / "flake.nix").exists()
    assert (PROJECT / "CARD.md").exists()
    listed = [*description["torch"]["src"], *(file for part in description["kernel"].values() for file in part["src"])]
    present = [path for path in PROJECT.rglob("*") if path.suffix in (".cu", ".cuh", ".cpp", ".h")]
    assert sorted(listed) == sorted(str(path.relative_to(PROJECT)) for path in present)


def test_device_source_has_no_includes() -> None:
    source = HEADER.read_text()
    assert "#include" not in source
    assert set(re.findall(r"^GB_KERNEL (\w+)\(", source, re.MULTILINE)) == {"gb_advance", "gb_build", "gb_pick"}


def entry_points(ptx: str) -> set[str]:
    return set(re.findall(r"\.entry (\w+)\(", ptx))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvrtc_compiles_the_device_source_once_per_architecture(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        nvrtc_version()
    except NotHere as reason:
        pytest.skip(str(reason))
    code = compiled(arch, tmp_path)
    assert code.startswith(b"\x7fELF")
    assert {name.decode() for name in re.findall(rb"\0\.text\.(\w+)\0", code)} == KERNELS
    monkeypatch.setattr("cuda.core.Program", None)  # the cached binary needs no compiler
    assert compiled(arch, tmp_path) == code


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_nvcc_compiles_the_device_source(arch: str, tmp_path: Path) -> None:
    ptx = tmp_path / "kernels.ptx"
    command = [str(NVCC), "-x", "cu", f"-arch={arch}", "-Werror", "all-warnings", "-ptx", str(HEADER), "-o", str(ptx)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert entry_points(ptx.read_text()) == KERNELS


@pytest.mark.slow
@needs_nvcc
def test_nvcc_compiles_the_torch_extension(tmp_path: Path) -> None:
    source = PROJECT / "guided_bitmask_cuda" / "guided_bitmask.cu"
    includes = [f"-I{TORCH}", f"-I{TORCH / 'torch' / 'csrc' / 'api' / 'include'}"]
    # A torch without CUDA has all headers except the one that its build generates.
    macros = ["-DC10_USING_CUSTOM_GENERATED_MACROS", "-DCUDA_KERNEL"]
    command = [str(NVCC), "-std=c++20", "-arch=sm_90", *macros, *includes, "-c", str(source), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(PROJECT) not in done.stderr  # no warning about our own lines


@pytest.mark.slow
def test_binding_compiles(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    assert compiler
    # kernel-builder writes this file.
    (tmp_path / "registration.h").write_text(
        "#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)\n#define REGISTER_EXTENSION(NAME)\n"
    )
    macros = ["-DCUDA_KERNEL", "-DTORCH_EXTENSION_NAME=guided_bitmask"]
    includes = [f"-I{tmp_path}", f"-I{TORCH}", f"-I{TORCH / 'torch' / 'csrc' / 'api' / 'include'}"]
    command = [compiler, "-std=c++20", "-fsyntax-only", *macros, *includes, str(BINDING)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_binding_declares_the_written_arguments() -> None:
    text = BINDING.read_text().replace('"\n      "', "")
    for schema in re.findall(r'ops\.def\(\s*"([^"]+)"', text):
        parsed = torch._C.parse_schema(schema)
        written = {
            argument.name for argument in parsed.arguments if argument.alias_info and argument.alias_info.is_write
        }
        assert written == WRITTEN[parsed.name], parsed.name
        assert not parsed.returns


WRITTEN = {
    "apply_bitmask_": {"logits", "alive"},
    "automaton_step_": {
        *("logits", "shadow", "history", "known", "claims", "masks", "state_of", "slot_of", "work", "work_count"),
        "alive",
    },
    "build_masks_": {"masks"},
    "masked_sample_": {"next_tokens", "best"},
}


OPERATORS = """
import json, sys
from pathlib import Path
import torch
from hf_guided.hf.device.ops import register
from tests.kernel_project import build

folder = Path(sys.argv[1])
build(folder, cuda=False)
sys.path.insert(0, str(folder))
import guided_bitmask

ours = register("ours", "CPU", print, lambda device: 1)
names = "apply_bitmask_", "automaton_step_", "build_masks_", "masked_sample_"
for name in names:
    packaged, registered = (
        str(getattr(getattr(torch.ops, space), name).default._schema).partition("::")[2]
        for space in ("guided_bitmask_here", "ours")
    )
    assert packaged == registered, (packaged, registered)
    assert callable(getattr(guided_bitmask, name))
with torch._subclasses.FakeTensorMode():
    guided_bitmask.apply_bitmask_(torch.empty(2, 40), torch.empty(2, 2, dtype=torch.int32))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja, which torch builds extensions with")
def test_package_has_the_same_operators_as_run_time_registration(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPERATORS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
