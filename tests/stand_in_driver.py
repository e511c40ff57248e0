"""A CUDA driver that launches nothing, so that cuda-core itself is run without a GPU; see stand_in_driver.c.

``python -m tests.stand_in_driver`` runs with the folder of the compiled driver in LD_LIBRARY_PATH, and with warnings as
errors. It launches every kernel of a step on three streams, and checks what reaches the driver.
"""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_guided.hf.device.kernels import LaunchedKernels
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.launches import THREADS, Launch
from hf_guided.hf.device.nvrtc import Launcher
from hf_guided.hf.device.prepared import PreparedLaunch
from hf_guided.hf.device.row_output import RowOutput
from hf_guided.hf.device.staging import Staging
from hf_guided.hf.device.tables import VocabularyTables
from tests.toy import letters

SOURCE = Path(__file__).with_suffix(".c")
ROWS = 2


def build(folder: Path) -> None:
    """Compile the driver into a folder."""
    compiler = shutil.which("gcc")
    assert compiler, "the stand-in driver needs gcc"
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", str(SOURCE)]
    subprocess.run([*command, "-o", str(folder / "libcuda.so.1")], check=True)


class Driver:
    """What the driver has seen."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libcuda.so.1")

    def _value(self, kind: Any, name: str) -> Any:
        return kind.in_dll(self._library, name)

    def expect(self, parameters: int) -> None:
        self._value(ctypes.c_int, "stand_in_parameters").value = parameters

    def last(self, parameters: int) -> tuple[str, tuple[int, ...], int, int, list[int]]:
        """The last launch: kernel, grid, threads, stream, parameters as signed 64-bit numbers."""
        return (
            self._value(ctypes.c_char * 64, "stand_in_kernel").value.decode(),
            tuple(self._value(ctypes.c_uint * 2, "stand_in_grid")),
            self._value(ctypes.c_uint, "stand_in_block").value,
            self._value(ctypes.c_uint64, "stand_in_stream").value,
            list(self._value(ctypes.c_int64 * 32, "stand_in_words"))[:parameters],
        )

    @property
    def count(self) -> int:
        count: int = self._value(ctypes.c_longlong, "stand_in_count").value
        return count


class CheckedLauncher(Launcher):
    """Compares what reaches the driver with the launch that was prepared."""

    def __init__(self, driver: Driver):
        super().__init__(None)
        self.driver = driver
        self.stream = 0

    def prepare(self, launch: Launch) -> PreparedLaunch:
        run = super().prepare(launch)

        def checked(replaced: Tensor | None = None) -> None:
            before, size = self.driver.count, len(launch.arguments)
            self.driver.expect(size)
            run(replaced)
            first = launch.arguments[0] if replaced is None else replaced
            words = [
                argument.data_ptr() if isinstance(argument, Tensor) else argument or 0
                for argument in (first, *launch.arguments[1:])
            ]
            assert self.driver.count == before + 1
            assert self.driver.last(size) == (launch.kernel, launch.grid, THREADS, self.stream, words), launch

        return checked

    def module(self, index: int) -> Any:
        """The stand-in loads any bytes."""
        from cuda.core import ObjectCode

        return ObjectCode.from_cubin(b"\x7fELF")


def main() -> None:
    launcher = CheckedLauncher(Driver())
    torch.cuda.current_device = lambda: None  # type: ignore[assignment,return-value]
    torch._C._cuda_getCurrentRawStream = lambda index: launcher.stream  # type: ignore[assignment]
    kernels = LaunchedKernels("stand-in", launcher, lambda device: 4)
    vocabulary = letters("abcdefghij")
    lane = Lane.allocate(VocabularyTables.of(vocabulary), [], ROWS, 4)
    staging = Staging(torch.device("cpu"))
    output = RowOutput.of(lane, staging, eos_token_ids=[1], pad_token_id=7, fallbacks=[0, 0])
    sample = kernels.sampler(lane, torch.ones(ROWS), None, output)
    for launcher.stream in (0x1230, 0, 0x4560, 0x1230):  # 0: the default stream
        for dtype in (torch.float32, torch.float32, torch.bfloat16):
            logits = torch.zeros(ROWS, vocabulary.padded_size, dtype=dtype)
            kernels.step_(lane, logits)
            sample(logits)
    entered: list[int] = []

    @contextlib.contextmanager
    def device(index: int) -> Any:
        entered.append(index)
        yield

    torch.cuda.current_device = lambda: 1
    torch.cuda.device = device  # type: ignore[assignment,misc]
    kernels.apply_slots_(torch.zeros(1, 40), torch.zeros(1, 2, dtype=torch.int32))
    assert entered == [None], "a launch on another device than the current one"
    print(launcher.driver.count, "launches")


if __name__ == "__main__":
    main()
