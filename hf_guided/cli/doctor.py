"""The installed packages, the kernels that would be used, and why not faster ones."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch

from ..automaton.core import CORE
from ..hf.device import kernel_loader

_PACKAGES = ("hf-guided", "torch", "transformers", "tokenizers", "numpy")
_ENGINES = ("llguidance", "xgrammar", "outlines-core", "lm-format-enforcer")
_KERNELS = ("cuda-core", "cuda-bindings", "kernels")


def report() -> Iterator[tuple[str, str]]:
    """Pairs of a name and a finding, in reading order."""
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in (*_PACKAGES, *_ENGINES, *_KERNELS):
        yield package, _installed(package)
    yield "compiled core", "none: no C compiler when hf-guided was installed" if CORE is None else "in use"
    yield "CUDA of torch", torch.version.cuda or "none: built without"
    yield "CUDA of NVRTC", _nvrtc()
    yield "CUDA majors", _majors()
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield "GPUs", ", ".join(names) or "none that torch sees"
    loaded = kernel_loader.find()
    yield "kernels", loaded.kernels.name
    for loader, reason in loaded.why_not.items():
        yield f"not {loader}", reason


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _nvrtc() -> str:
    try:
        return ".".join(map(str, kernel_loader.nvrtc_version()))
    except kernel_loader.NotHere as error:
        return f"none: {error}"


def _majors() -> str:
    try:
        kernel_loader.check_majors()
    except kernel_loader.NotHere as error:
        return str(error)
    return "agree"
