"""The kernels compiled at first use by NVRTC: no CUDA toolkit, no nvcc.

NVIDIA's cuda-core (the extra ``cuda``) finds the NVRTC that CUDA builds of torch bring along, compiles the device
source for the GPU at hand (about 0.5 s) and launches it. What was compiled is kept on disk.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .launches import THREADS, Launch

_NAME = "guided_bitmask.cuh"
_PROJECT = "kernels/guided_bitmask/guided_bitmask_cuda"
_STANDARD = "c++17"


def device_source() -> str:
    """The kernels' source: beside this file where the package was installed, in its project in a checkout."""
    beside = Path(__file__).with_name(_NAME)
    found = beside if beside.exists() else Path(__file__).parents[3] / _PROJECT / _NAME
    return found.read_text(encoding="utf-8")


def kept(directory: Path | None, parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """What was made of the same parts before, by any process; made and kept if there is none.

    Args:
        directory: where files are kept; None: nowhere. One that cannot be written to is no error.
        parts: all that the result depends on.
        make: makes it.
    """
    if directory is None:
        return make()
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    path = directory / f"{digest}.cubin"
    try:
        return path.read_bytes()
    except OSError:
        made = make()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(made)
        os.replace(temporary, path)  # whole or not at all, whoever else is writing
    except OSError:
        pass
    return made


def compiled(arch: str, directory: Path | None = None) -> bytes:
    """The kernels as machine code.

    Args:
        arch: of the GPU, as ``sm_90``; it need not be there.
        directory: see ``kept``.

    Raises:
        ImportError: cuda-core is not installed.
        Exception: whatever NVRTC says; also that it is not there.
    """
    import cuda.core
    from cuda.bindings import nvrtc
    from cuda.core import Program, ProgramOptions

    source = device_source()
    version = ".".join(map(str, nvrtc.nvrtcVersion()[1:]))

    def make() -> bytes:
        program = Program(source, "c++", ProgramOptions(std=_STANDARD, arch=arch))
        return bytes(program.compile("cubin").code)

    return kept(directory, (version, cuda.core.__version__, arch, _STANDARD, source), make)


class Launcher:
    """Puts kernels on the current streams of any GPU; thread safe.

    Args:
        directory: see ``kept``.
    """

    def __init__(self, directory: Path | None):
        self._directory = directory
        self._modules: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __call__(self, launch: Launch) -> None:
        """Launch on the current stream of the device that the tensors are on."""
        if not all(launch.grid):
            return
        from cuda.core import LaunchConfig
        from cuda.core import launch as put

        index = next(one.device.index for one in launch.arguments if isinstance(one, Tensor))
        kernel = self.module(index).get_kernel(launch.kernel)
        # cuda-core takes an int for 64 bits, address or number; the kernels take nothing else.
        words = [one.data_ptr() if isinstance(one, Tensor) else one or 0 for one in launch.arguments]
        with torch.cuda.device(index):
            put(torch.cuda.current_stream(index), LaunchConfig(grid=launch.grid, block=THREADS), kernel, *words)

    def module(self, index: int) -> Any:
        """The kernels on a device, loaded at the first call; raises what ``compiled`` raises."""
        from cuda.core import Device, ObjectCode

        with self._lock:
            if index not in self._modules:
                major, minor = torch.cuda.get_device_capability(index)
                code = compiled(f"sm_{major}{minor}", self._directory)
                with torch.cuda.device(index):
                    Device(index).set_current()  # torch's own, the primary context
                    self._modules[index] = ObjectCode.from_cubin(code)
            return self._modules[index]
