"""The kernel project: its layout, and compiling its sources without a GPU, with the compilers that are installed.

NVRTC comes with the extra ``cuda`` and the NVIDIA wheels that it names; nvcc with a CUDA toolkit.
"""

from __future__ import annotations

import re
import shutil
import struct
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


def stack_bytes(cubin: bytes) -> dict[str, int]:
    """The stack frame of each kernel in a cubin, where registers are spilled to.

    NVRTC does not report it. The section .nv.info has the attribute EIATTR_FRAME_SIZE: bytes 04 11, length 8, the
    number of a symbol, and a size.
    """
    sections = elf_sections(cubin)
    symbols, names = sections[".symtab"], sections[".strtab"]
    info, frames = sections[".nv.info"], {}
    for found in re.finditer(rb"\x04\x11\x08\x00", info):
        number, size = struct.unpack_from("<II", info, found.end())
        (start,) = struct.unpack_from("<I", symbols, 24 * number)
        frames[names[start : names.index(b"\0", start)].decode()] = size
    return frames


def elf_sections(data: bytes) -> dict[str, bytes]:
    """The sections of a 64-bit ELF file by name."""
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<II4Q", data, table + i * size) for i in range(count)]
    names = headers[names_at][4]
    found = {}
    for name, _, _, _, offset, length in headers:
        begin = names + name
        found[data[begin : data.index(b"\0", begin)].decode()] = data[offset : offset + length]
    return found


ARCHITECTURES = [
    "sm_90",
    *(pytest.param(f"sm_{number}", marks=pytest.mark.slow) for number in (75, 80, 86, 89, 100, 103, 120)),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvrtc_compiles_the_device_source_once_per_architecture(
    arch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        nvrtc_version()
    except NotHere as reason:
        pytest.skip(str(reason))
    code = compiled(arch, tmp_path)
    assert code.startswith(b"\x7fELF")
    assert {name.removeprefix(".text.") for name in elf_sections(code) if name.startswith(".text.")} == KERNELS
    frames = stack_bytes(code)
    assert frames.keys() >= KERNELS and not any(frames.values()), frames  # nothing is spilled
    monkeypatch.setattr("cuda.core.Program", None)  # the cached binary needs no compiler
    assert compiled(arch, tmp_path) == code


@needs_nvcc
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvcc_compiles_the_device_source_without_spilling(arch: str, tmp_path: Path) -> None:
    flags = ["-x", "cu", "-std=c++17", f"-arch={arch}", "-Werror", "all-warnings", "-Xptxas", "-v"]
    command = [str(NVCC), *flags, "-cubin", str(HEADER), "-o", str(tmp_path / "kernels.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(re.findall(r"Compiling entry function '(\w+)'", done.stderr)) == KERNELS
    sizes = "(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads"
    assert re.findall(sizes, done.stderr) == [("0", "0", "0")] * len(KERNELS)


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
import sys
from pathlib import Path
import torch
from tests.kernel_project import build

folder = Path(sys.argv[1])
build(folder, cuda=False)
sys.path.insert(0, str(folder))
import guided_bitmask

for name in "apply_bitmask_", "automaton_step_", "build_masks_", "masked_sample_":
    assert callable(getattr(guided_bitmask, name)) and hasattr(torch.ops.guided_bitmask_here, name)
with torch._subclasses.FakeTensorMode():
    guided_bitmask.apply_bitmask_(torch.empty(2, 40), torch.empty(2, 2, dtype=torch.int32))
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja, which torch builds extensions with")
def test_package_has_its_operators(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPERATORS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
