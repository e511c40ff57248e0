"""The CUDA kernel as plain C++ under AddressSanitizer and UndefinedBehaviorSanitizer, called with torch tensors.

``build(folder)`` compiles tests/kernel_harness.cpp with the device source; a ``Harness`` is a process of it. A read or
write outside of a tensor's storage ends the process.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import torch
from torch import Tensor

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "kernels" / "guided_bitmask" / "guided_bitmask_cuda" / "guided_bitmask.cuh"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)  # as the harness numbers them
THREADS = 256  # the threads of a block
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror", "-Wno-unknown-pragmas"),
    "-Wno-maybe-uninitialized",  # g++ cannot know that a score that was not loaded is overwritten
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


class HarnessFailure(Exception):
    """The process ended: a sanitizer's report, or a wrong call."""


def build(folder: Path, source: str | None = None) -> Path:
    """Compile the harness.

    Args:
        folder: where to.
        source: taken instead of the device source, for mutants.
    """
    compiler = shutil.which("g++")
    assert compiler, "the kernels' tests need g++"
    (folder / HEADER.name).write_text(HEADER.read_text() if source is None else source)
    program = folder / "kernel_harness"
    flags = FLAGS if source is None else (*FLAGS, "-O0", "-w")  # soon built; may leave a variable unused
    command = [compiler, *flags, f"-I{folder}", str(ROOT / "tests" / "kernel_harness.cpp"), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


class Harness:
    """A process that runs the kernels; used by one thread."""

    def __init__(self, program: Path):
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def close(self) -> None:
        self._process.communicate()

    def apply_masks(
        self,
        scores: Tensor,
        masks: Tensor,
        slots: Tensor,
        own: Tensor | None = None,
        stops: Tensor | None = None,
        log_sums: Tensor | None = None,
        *,
        blocks: int = 1,
    ) -> tuple[Tensor, Tensor]:
        """As ``MaskKernel``, with tensors on the CPU; a row is spread over this many blocks."""
        (rows, vocab), storage = scores.shape, scores.untyped_storage()
        own = masks[:0] if own is None else own
        sizes = (len(masks), len(own), masks.shape[1], len(slots), -1 if stops is None else len(stops))
        request = (DTYPES.index(scores.dtype), rows, vocab, scores.stride(0), storage.nbytes(), scores.storage_offset())
        whole = torch.empty(0, dtype=torch.uint8).set_(storage)
        stops = torch.empty(0, dtype=torch.int64) if stops is None else stops
        buffers = [tensor.numpy().tobytes() for tensor in (whole, masks, own, slots, stops)]
        assert self._process.stdin
        try:
            self._process.stdin.write(
                struct.pack("<13q", *request, *sizes, blocks, log_sums is not None) + b"".join(buffers)
            )
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()
        masked = self._receive(rows * vocab, scores.dtype).reshape(rows, vocab)
        alive = self._receive(rows, torch.int32)
        if log_sums is not None:  # as guided_bitmask.cu does
            log_sums.copy_(
                self._receive(rows * blocks * THREADS * 2, torch.float32).view(rows, blocks * THREADS, 2).logsumexp(1)
            )
        return masked, alive

    def _receive(self, count: int, dtype: torch.dtype) -> Tensor:
        assert self._process.stdout
        data = self._process.stdout.read(count * dtype.itemsize)
        if len(data) < count * dtype.itemsize:
            self._fail()
        return torch.frombuffer(bytearray(data), dtype=dtype) if data else torch.empty(0, dtype=dtype)

    def _fail(self) -> None:
        assert self._process.stderr
        raise HarnessFailure(self._process.stderr.read().decode(errors="replace"))
