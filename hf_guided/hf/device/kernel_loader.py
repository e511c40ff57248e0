"""Finds the kernels for a device, and the reasons why faster ones are not available.

In this order: the kernel from the Hub, if a repository is named (Hub loading is opt-in); the same source compiled by
NVRTC, on an NVIDIA GPU with the extra ``cuda`` installed; plain torch, which is always available. The choice changes
only the speed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ...options import KernelOptions
from .kernels import Kernels, LaunchedKernels, OpKernels, TorchKernels


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Args:
        kernels: the fastest that work.
        why_not: for each faster source, why it is not available.
    """

    kernels: Kernels
    why_not: dict[str, str]


class NotHere(Exception):
    """A source of kernels is not available; the text is the reason."""


def nvrtc_version() -> tuple[int, int]:
    """The version of the NVRTC that cuda-core finds; raises NotHere."""
    try:
        import cuda.core  # noqa: F401
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise NotHere(f"cuda-core is not installed ({error}); pip install 'hf-guided[cuda]'") from None
    try:
        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # the library is loaded only now
        raise NotHere(f"NVRTC does not load: {type(error).__name__}: {error}") from None
    return major, minor


def check_majors() -> None:
    """Raise NotHere unless NVRTC and torch have the same CUDA major version."""
    if torch.version.cuda is None:
        raise NotHere("this torch was built without CUDA")
    major, wanted = nvrtc_version()[0], int(torch.version.cuda.split(".")[0])
    if major != wanted:
        raise NotHere(f"NVRTC has CUDA {major}, torch has CUDA {wanted}; install the NVIDIA wheels of one of them")


def find(options: KernelOptions | None = None, device: torch.device | str = "cuda") -> Found:
    """The fastest kernels that work on a device.

    Args:
        options: None reads the environment.
        device: where the logits are.
    """
    options = KernelOptions.from_env() if options is None else options
    device = torch.device(device)
    why_not: dict[str, str] = {}
    for name, load in ("hub", _from_hub), ("nvrtc", _from_nvrtc):
        try:
            if options.torch_only:
                raise NotHere("plain torch was requested, by HF_GUIDED_TORCH_ONLY or torch_only=True")
            return Found(load(options, device), why_not)
        except NotHere as error:
            why_not[name] = str(error)
    return Found(TorchKernels(), why_not)


def _needs_cuda(device: torch.device) -> None:
    if device.type != "cuda":
        raise NotHere(f"it needs an NVIDIA GPU, the logits are on {device.type}")
    if torch.version.cuda is None:
        raise NotHere("this torch was built without CUDA")
    if not torch.cuda.is_available():
        raise NotHere("torch sees no NVIDIA GPU")


def _from_hub(options: KernelOptions, device: torch.device) -> Kernels:
    if options.hub_repository is None:
        raise NotHere("no repository was named; HF_GUIDED_KERNEL_REPOSITORY names one")
    _needs_cuda(device)
    try:
        from kernels import get_kernel
    except ImportError as error:
        raise NotHere(f"the package kernels is not installed ({error}); pip install kernels") from None
    try:
        module = get_kernel(options.hub_repository, version=1)
    except Exception as error:  # no network, no build for this torch, no trust: all reasons are handled alike
        raise NotHere(f"{options.hub_repository} did not load: {type(error).__name__}: {error}") from None
    return OpKernels("hub", module)


def _from_nvrtc(options: KernelOptions, device: torch.device) -> Kernels:
    _needs_cuda(device)
    check_majors()
    from .nvrtc import Launcher

    launcher = Launcher(options.cache_directory)
    try:
        launcher.module(torch.cuda.current_device() if device.index is None else device.index)
    except Exception as error:  # a GPU unknown to NVRTC, an old driver: plain torch is used
        raise NotHere(f"the kernels did not compile or load: {type(error).__name__}: {error}") from None
    return LaunchedKernels("nvrtc", launcher)
