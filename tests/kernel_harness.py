"""The kernels as plain C++ under AddressSanitizer and UndefinedBehaviorSanitizer, called with torch tensors.

``build(folder)`` compiles tests/kernel_harness.cpp with the device source; a ``Harness`` is a process of it. Blocks run
in an order shuffled by ``seed``, threads too, one after the other: what a launch's blocks hand to each other shows as a
difference from the reference, and what they touch outside of a tensor's storage ends the process.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hf_guided.hf.device.kernels import LaunchedKernels
from hf_guided.hf.device.lane import DESCRIPTOR_WORDS, Lane
from hf_guided.hf.device.launches import (
    Launch,
    StepBuffers,
    TableBuffers,
    apply_launch,
    build_launch,
    pick_launch,
    sample_launch,
    step_launches,
)
from hf_guided.hf.device.prepared import PreparedLaunch, Sampler

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "kernels" / "guided_bitmask" / "guided_bitmask_cuda" / "guided_bitmask.cuh"
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror"),
    "-Wno-maybe-uninitialized",  # g++ cannot know that thread 0 is among the threads
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
    """A process that runs kernels; used by one thread."""

    def __init__(self, program: Path):
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def close(self) -> None:
        self._process.communicate()

    def run(self, launch: Launch, *, seed: int = 0, blocks: int | None = None, tables: Sequence[Tensor] = ()) -> None:
        """Run one kernel; tensors come back as it left them.

        Args:
            launch: what to run; of its tensors, which lie on the CPU, all else that is in their storage travels too.
            seed: of the order of blocks and threads.
            blocks: in x, instead of the launch's own.
            tables: tensors whose addresses are in the descriptors among the arguments.
        """
        grid = launch.grid if blocks is None else (blocks, launch.grid[1])
        if not all(grid):
            return
        sent: dict[int, tuple[int, Tensor]] = {}

        def place_of(tensor: Tensor) -> tuple[int, int]:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in sent:
                sent[storage.data_ptr()] = len(sent), tensor
                self._send(
                    b"B" + struct.pack("<IQ", len(sent) - 1, storage.nbytes()) + _bytes(storage).numpy().tobytes()
                )
            return sent[storage.data_ptr()][0], tensor.storage_offset() * tensor.element_size()

        call = b"L" + bytes([len(launch.kernel)]) + launch.kernel.encode()
        call += struct.pack("<QQQI", *grid, seed, len(launch.arguments))
        for argument in launch.arguments:
            if isinstance(argument, Tensor):
                call += b"p" + struct.pack("<IQ", *place_of(argument))
            else:
                call += b"0" if argument is None else b"i" + struct.pack("<q", argument)
        back = list(sent.values())
        at_address = {table.data_ptr(): table for table in tables}
        for words in launch.arguments if tables else ():
            if isinstance(words, Tensor) and words.dtype == torch.int64 and words.shape[1:] == (DESCRIPTOR_WORDS,):
                addresses = [(place, one) for place, one in enumerate(words.flatten().tolist()) if one in at_address]
                if addresses:  # and not tokens of as many columns
                    number, _ = place_of(words)
                    back = [one for one in back if one[0] != number]  # the harness's own addresses mean nothing here
                    for place, address in addresses:
                        target = place_of(at_address[address])
                        self._send(b"P" + struct.pack("<IQIQ", number, 8 * place, *target))
        self._send(call)
        for number, tensor in back:
            self._send(b"D" + struct.pack("<I", number))
            storage = tensor.untyped_storage()
            received = self._receive(storage.nbytes())
            if received:
                _bytes(storage).copy_(torch.frombuffer(bytearray(received), dtype=torch.uint8))

    def _send(self, data: bytes) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _receive(self, size: int) -> bytes:
        assert self._process.stdout
        data = self._process.stdout.read(size)
        if len(data) < size:
            self._fail()
        return data

    def _fail(self) -> None:
        assert self._process.stderr
        raise HarnessFailure(self._process.stderr.read().decode(errors="replace"))

    def apply_(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None = None,
        alive: Tensor | None = None,
        *,
        blocks: int | None = None,
        seed: int = 0,
    ) -> None:
        """As ``reference.apply_slots_``."""
        self.run(apply_launch(logits, masks, row_slots, alive), blocks=blocks, seed=seed)

    def step_(
        self, lane: Lane, logits: Tensor, alive: Tensor | None = None, *, blocks: int | None = None, seed: int = 0
    ) -> None:
        """As ``reference.step_``."""
        buffers = StepBuffers.of(lane.buffers)
        advance, build, _ = step_launches(logits, buffers, processors=2)
        masks, tables = buffers.masks, tables_of(lane)
        apply = apply_launch(logits, masks.masks, masks.slot_of, alive, masks.work_count)
        self.run(advance, seed=seed, tables=tables)
        self.run(build, blocks=blocks, seed=seed + 1, tables=tables)
        self.run(apply, blocks=blocks, seed=seed + 2, tables=tables)

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor,
        position: Tensor,
        *,
        parts: int = 3,
        order: int = 0,
    ) -> Tensor:
        """As ``sampling.masked_sample``."""
        best = torch.full((len(logits), parts), -1)  # to be overwritten, as the tokens
        found = torch.full((len(logits),), -7)
        self.run(sample_launch(logits, masks, row_slots, temperature, seed, position, best), seed=order)
        self.run(pick_launch(found, best), seed=order)
        return found


class OnCpu:
    """Runs launches on a harness, in place of a GPU; knows the tables of the lane that they are for."""

    def __init__(self, harness: Harness):
        self.harness = harness
        self.tables: list[Tensor] = []

    def prepare(self, launch: Launch) -> PreparedLaunch:
        """As ``prepared.Launcher``."""

        def run(replaced: Tensor | None = None) -> None:
            first = launch.arguments[0] if replaced is None else replaced
            now = launch._replace(arguments=(first, *launch.arguments[1:]))
            self.harness.run(now, seed=len(launch.arguments), tables=self.tables)

        return run


class HarnessKernels(LaunchedKernels):
    """The kernels' source as plain C++, launched as on a GPU; counts its calls.

    Args:
        harness: runs the kernels.
    """

    def __init__(self, harness: Harness):
        self._on_cpu = OnCpu(harness)
        super().__init__("harness", self._on_cpu, lambda device: 3)
        self.steps = self.draws = 0

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        self.steps += 1
        self._on_cpu.tables = tables_of(lane)
        super().step_(lane, logits, alive)

    def fill_pool_(self, lane: Lane) -> None:
        self._on_cpu.tables = tables_of(lane)
        super().fill_pool_(lane)

    def sampler(self, *given: Any) -> Sampler:
        sample = super().sampler(*given)

        def counted(logits: Tensor) -> Tensor:
            self.draws += 1
            return sample(logits)

        return counted


class HarnessOps:
    """The operators of the kernel package, on the harness; the tables of a lane have to be set before its step."""

    def __init__(self, harness: Harness):
        self.on_cpu = OnCpu(harness)

    def _run(self, *launches: Launch) -> None:
        for launch in launches:
            self.on_cpu.prepare(launch)()

    def apply_bitmask_(self, *given: Tensor | None) -> None:
        self._run(apply_launch(*given))  # type: ignore[arg-type]

    def automaton_step_(self, logits: Tensor, *buffers: Tensor, alive: Tensor | None) -> None:
        of_lane = StepBuffers.of(buffers)
        masks = of_lane.masks
        apply = apply_launch(logits, masks.masks, masks.slot_of, alive, masks.work_count)
        self._run(*step_launches(logits, of_lane, processors=3)[:2], apply)

    def build_masks_(self, work: Tensor, work_count: Tensor, *buffers: Tensor) -> None:
        *tables, masks = buffers
        self._run(build_launch(work, work_count, TableBuffers(*tables), masks, processors=3))

    def masked_sample_(self, next_tokens: Tensor, best: Tensor, *given: Any) -> None:
        self._run(sample_launch(*given, best), pick_launch(next_tokens, best))


def tables_of(lane: Lane) -> list[Tensor]:
    """What the addresses in a lane's descriptors belong to."""
    return [tensor for language in lane.languages for tensor in language.tensors]


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    """All of a storage; changes with it."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)
