"""The kernel project built by torch's own means, as kernel-builder would: a package that its tests can import."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.kernel_harness import ROOT

PROJECT = ROOT / "kernels" / "guided_bitmask"
_REGISTRATION = """
#define TORCH_LIBRARY_EXPAND(NAME, MODULE) TORCH_LIBRARY(NAME, MODULE)
#define REGISTER_EXTENSION(NAME)
"""
_OPS = """
import torch

torch.ops.load_library({library!r})
ops = torch.ops.{name}


def add_op_namespace_prefix(op_name):
    return "{name}::" + op_name
"""


def build(folder: Path, *, cuda: bool = True, name: str = "guided_bitmask_here") -> None:
    """Make the package ``guided_bitmask`` in a folder.

    Args:
        folder: where; has to be on the path of who imports it.
        cuda: with the kernels, which takes nvcc; else operators that are declared and do nothing.
        name: of the operators' namespace, and of the library.
    """
    from torch.utils.cpp_extension import load

    sources = [PROJECT / "torch-ext" / "torch_binding.cpp"]
    if cuda:
        sources.append(PROJECT / "guided_bitmask_cuda" / "guided_bitmask.cu")
    made = folder / "build"
    made.mkdir()
    (made / "registration.h").write_text(_REGISTRATION)
    flags = ["-std=c++20", *(["-DCUDA_KERNEL"] if cuda else [])]
    library = load(
        name,
        [str(source) for source in sources],
        extra_cflags=flags,
        extra_cuda_cflags=flags,
        extra_include_paths=[str(made), str(PROJECT / "torch-ext"), str(PROJECT / "guided_bitmask_cuda")],
        build_directory=str(made),
        with_cuda=cuda,
        is_python_module=False,
    )
    package = folder / "guided_bitmask"
    shutil.copytree(PROJECT / "torch-ext" / "guided_bitmask", package)
    (package / "_ops.py").write_text(_OPS.format(library=str(library), name=name))
