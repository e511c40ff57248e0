"""The installed packages, the kernel that masks scores on each device, and why not a faster one."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import torch

from ..session.mask_kernel import kernel_in_use

_PACKAGES = ("hf-guided", "torch", "transformers", "tokenizers", "numpy")
_ENGINES = ("llguidance", "xgrammar", "outlines-core", "lm-format-enforcer")
_KERNELS = ("triton", "kernels")


def report() -> Iterator[tuple[str, str]]:
    """Pairs of a name and a finding, in reading order."""
    yield "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for package in (*_PACKAGES, *_ENGINES, *_KERNELS):
        yield package, _installed(package)
    yield "compiled core", _core()
    yield "CUDA of torch", torch.version.cuda or "none: built without"
    count = torch.cuda.device_count()
    names = [torch.cuda.get_device_name(index) for index in range(count)]
    yield "GPUs", ", ".join(names) or "none that torch sees"
    for device in [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]:
        name, reason = kernel_in_use(device)
        yield f"masks on {device}", f"{name}: {reason}" if reason else name


def _core() -> str:
    try:
        from ..automaton.core import VERSION
    except ImportError as error:
        return str(error)
    return f"in use, version {VERSION}"


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
