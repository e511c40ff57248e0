"""The kernels, compiled at first use by NVRTC: no CUDA toolkit, no nvcc.

NVIDIA's cuda-core (the extra ``cuda``) finds the NVRTC of CUDA builds of torch, compiles the device source for the GPU
(about 0.5 s) and launches the kernels. Compiled code is cached on disk.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .launches import THREADS, Launch
from .prepared import PreparedLaunch, nothing

_NAME = "guided_bitmask.cuh"
_PROJECT = "kernels/guided_bitmask/guided_bitmask_cuda"
_STANDARD = "c++17"


def device_source() -> str:
    """The kernels' source: next to this file in an installed package, in the kernel project in a checkout."""
    installed = Path(__file__).with_name(_NAME)
    source = installed if installed.exists() else Path(__file__).parents[3] / _PROJECT / _NAME
    return source.read_text(encoding="utf-8")


def kept(directory: Path | None, parts: tuple[str, ...], make: Callable[[], bytes]) -> bytes:
    """The cached result for these parts, from any process; made and cached if there is none.

    Args:
        directory: of the cache; None caches nothing. A directory that is not writable is no error.
        parts: everything that the result depends on.
        make: makes the result.
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
        os.replace(temporary, path)  # atomic, also with other writers
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
        Exception: NVRTC's own errors, also if it is missing.
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
    """Launches kernels on the current streams of any GPU; thread safe.

    The objects that cuda-core needs for a launch are made once and kept: a kernel for each name, a configuration for
    each grid, and a stream object for each of torch's streams, which live as long as the process.

    Args:
        directory: see ``kept``.
    """

    def __init__(self, directory: Path | None):
        self._directory = directory
        self._modules: dict[int, Any] = {}
        self._kernels: dict[tuple[int, str], Any] = {}
        self._streams: dict[tuple[int, int], Any] = {}
        self._lock = threading.Lock()

    def prepare(self, launch: Launch) -> PreparedLaunch:
        """See ``prepared.Launcher``."""
        if not all(launch.grid):
            return nothing
        from cuda.core import launch as put

        index = next(argument.device.index for argument in launch.arguments if isinstance(argument, Tensor))
        kernel, config = self._kernel(index, launch.kernel), _config(launch.grid)
        # cuda-core takes an int for 64 bits, address or number; the kernels take no other types.
        first, *others = [
            argument.data_ptr() if isinstance(argument, Tensor) else argument or 0 for argument in launch.arguments
        ]

        def run(replaced: Tensor | None = None) -> None:
            word = first if replaced is None else replaced.data_ptr()
            if torch.cuda.current_device() == index:
                put(self._current_stream(index), config, kernel, word, *others)
            else:
                with torch.cuda.device(index):
                    put(self._current_stream(index), config, kernel, word, *others)

        return run

    def _current_stream(self, index: int) -> Any:
        # The number of the stream costs a tenth of torch.cuda.current_stream(), which makes an object.
        handle = torch._C._cuda_getCurrentRawStream(index)
        stream = self._streams.get((index, handle))
        if stream is None:
            from cuda.core import Stream

            stream = self._streams[index, handle] = Stream.from_handle(handle)
        return stream

    def _kernel(self, index: int, name: str) -> Any:
        kernel = self._kernels.get((index, name))
        if kernel is None:
            kernel = self._kernels[index, name] = self.module(index).get_kernel(name)
        return kernel

    def module(self, index: int) -> Any:
        """The kernels on a device, loaded by the first call; raises the errors of ``compiled``."""
        from cuda.core import Device, ObjectCode

        with self._lock:
            if index not in self._modules:
                major, minor = torch.cuda.get_device_capability(index)
                code = compiled(f"sm_{major}{minor}", self._directory)
                with torch.cuda.device(index):
                    Device(index).set_current()  # torch's own, the primary context
                    self._modules[index] = ObjectCode.from_cubin(code)
            return self._modules[index]


@lru_cache(maxsize=256)
def _config(grid: tuple[int, int]) -> Any:
    from cuda.core import LaunchConfig

    return LaunchConfig(grid=grid, block=THREADS)
