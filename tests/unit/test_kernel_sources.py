"""The kernel project: its layout, and compiling its sources without a GPU, with the compilers that are installed.

NVRTC is NVIDIA's compiler as a library, in the wheel nvidia-cuda-nvrtc; nvcc comes with a CUDA toolkit.
"""

from __future__ import annotations

import ast
import ctypes
import inspect
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_guided.session.mask_kernel import MaskKernel
from tests.kernel_harness import HEADER, ROOT

PROJECT = ROOT / "kernels" / "guided_bitmask"
SOURCE = PROJECT / "guided_bitmask_cuda" / "guided_bitmask.cu"
BINDING = PROJECT / "torch-ext" / "torch_binding.cpp"
KERNELS = [f"{kernel}<{dtype}>" for kernel in ("gb_mask", "gb_end") for dtype in ("GbF32", "GbF16", "GbBf16")]
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
    assert "#include" not in HEADER.read_text()


class Nvrtc:
    """Compiles CUDA C++ to code for one architecture."""

    def __init__(self, library: Path):
        self._library = ctypes.CDLL(str(library))

    def compiled(self, source: str, kernels: list[str], arch: str) -> bytes:
        """The binary for "sm_90", or the text for "compute_90"."""
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), source.encode(), b"guided_bitmask.cu", 0, None, None)
        for kernel in kernels:
            self._call("AddNameExpression", program, kernel.encode())
        options = [b"-std=c++17", f"-arch={arch}".encode()]
        try:
            self._call("CompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options))
        except AssertionError:
            pytest.fail(self._result("ProgramLog", program).decode())
        return self._result("PTX" if arch.startswith("compute") else "CUBIN", program)

    def _result(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"Get{what}", program, text)
        return text.raw

    def _call(self, name: str, *arguments: Any) -> None:
        assert getattr(self._library, f"nvrtc{name}")(*arguments) == 0, name


@pytest.fixture(scope="module")
def nvrtc() -> Nvrtc:
    spec = find_spec("nvidia")
    folders = [] if spec is None else [str(path) for path in spec.submodule_search_locations or ()]
    for folder in folders:
        for library in Path(folder).rglob("libnvrtc.so.*"):
            return Nvrtc(library)
    pytest.skip("needs NVRTC, of the wheel nvidia-cuda-nvrtc")


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


def stack_bytes(cubin: bytes) -> list[int]:
    """The stack frame of each kernel in a cubin, where registers are spilled to.

    NVRTC does not report it. The section .nv.info has the attribute EIATTR_FRAME_SIZE: bytes 04 11, length 8, the
    number of a symbol, and a size.
    """
    info = elf_sections(cubin)[".nv.info"]
    return [struct.unpack_from("<II", info, found.end())[1] for found in re.finditer(rb"\x04\x11\x08\x00", info)]


ARCHITECTURES = [
    "sm_90",
    *(pytest.param(f"sm_{number}", marks=pytest.mark.slow) for number in (75, 80, 86, 89, 100, 103, 120)),
]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_nvrtc_compiles_the_kernels_without_spilling(nvrtc: Nvrtc, arch: str) -> None:
    code = nvrtc.compiled(HEADER.read_text(), KERNELS, arch)
    assert len([name for name in elf_sections(code) if name.startswith(".text.")]) == len(KERNELS)
    assert stack_bytes(code) == [0] * len(KERNELS)


@pytest.mark.parametrize("kernel", [kernel for kernel in KERNELS if "mask" in kernel])
def test_aligned_scores_are_loaded_and_stored_16_bytes_at_once(nvrtc: Nvrtc, kernel: str) -> None:
    text = nvrtc.compiled(HEADER.read_text(), [kernel], "compute_90").decode()
    for direction in "ld", "st":
        assert len(re.findall(rf"{direction}\.global[.a-z]*\.v4\.[bu]32", text)) >= 4, "each of the units of a thread"


@pytest.mark.slow
@needs_nvcc
def test_nvcc_compiles_the_torch_extension_without_spilling(tmp_path: Path) -> None:
    includes = [f"-I{TORCH}", f"-I{TORCH / 'torch' / 'csrc' / 'api' / 'include'}"]
    # A torch without CUDA has all headers except the one that its build generates.
    macros = ["-DC10_USING_CUSTOM_GENERATED_MACROS", "-DCUDA_KERNEL"]
    flags = ["-std=c++20", "-arch=sm_90", "-Xptxas", "-v"]
    command = [str(NVCC), *flags, *macros, *includes, "-c", str(SOURCE), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert str(PROJECT) not in done.stderr  # no warning about our own lines
    sizes = "(\\d+) bytes stack frame, (\\d+) bytes spill stores, (\\d+) bytes spill loads"
    assert re.findall(sizes, done.stderr) == [("0", "0", "0")] * len(KERNELS)


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


def arguments_of(source: str, name: str) -> ast.arguments:
    [found] = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found.args


def test_package_and_operator_have_the_arguments_of_a_mask_kernel() -> None:
    ours = arguments_of(textwrap.dedent(inspect.getsource(MaskKernel)), "__call__")
    del ours.args[0]  # self
    package = (PROJECT / "torch-ext" / "guided_bitmask" / "__init__.py").read_text()
    assert ast.unparse(arguments_of(package, "apply_masks")) == ast.unparse(ours)
    [schema] = re.findall(r'ops\.def\(\s*"([^;]+)"\);', BINDING.read_text())
    parsed = torch._C.parse_schema(re.sub(r'"\s*"', "", schema))
    assert [argument.name for argument in parsed.arguments] == [one.arg for one in ours.args]
    assert [argument.name for argument in parsed.arguments if argument.alias_info] == ["log_sums"]


OPERATORS = """
import sys
from pathlib import Path
import torch
from tests.kernel_project import build

folder = Path(sys.argv[1])
build(folder, cuda=False)
sys.path.insert(0, str(folder))
import guided_bitmask

with torch._subclasses.FakeTensorMode():
    words = torch.empty(2, 2, dtype=torch.int32)
    masked, alive = guided_bitmask.apply_masks(torch.empty(40, 3).T.half(), words, words[0])
assert masked.shape == (3, 40) and masked.dtype == torch.float16 and masked.is_contiguous()
assert alive.shape == (3,) and alive.dtype == torch.int32
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ninja") is None, reason="needs ninja, which torch builds extensions with")
def test_package_has_its_operator(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPERATORS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
