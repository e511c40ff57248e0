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

import torch
from torch import Tensor

from hf_guided.device.lane import Lane

ROOT = Path(__file__).parents[1]
HEADER = ROOT / "kernels" / "guided_bitmask" / "guided_bitmask_cuda" / "guided_bitmask.cuh"
FLAGS = (
    *("-std=c++17", "-O1", "-g1", "-fno-strict-aliasing", "-Wall", "-Wextra", "-Werror"),
    "-Wno-maybe-uninitialized",  # g++ cannot know that thread 0 is among the threads
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)
SUFFIX = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
THREADS = 256


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

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int],
        arguments: Sequence[Tensor | int | None],
        *,
        seed: int,
        descriptors: tuple[Tensor, Sequence[Sequence[Tensor | None]]] | None = None,
    ) -> None:
        """Run one kernel; tensors come back as it left them.

        Args:
            kernel: its name.
            grid: blocks in x and y; with none nothing is launched.
            arguments: tensors on the CPU (what else is in their storage travels too), numbers, None.
            seed: of the order of blocks and threads.
            descriptors: a tensor among the arguments, and for each line the tensors whose addresses its first words
                are.
        """
        if not all(grid):
            return
        sent: dict[int, tuple[int, Tensor]] = {}

        def place(tensor: Tensor) -> tuple[int, int]:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in sent:
                sent[storage.data_ptr()] = len(sent), tensor
                self._send(
                    b"B" + struct.pack("<IQ", len(sent) - 1, storage.nbytes()) + _bytes(storage).numpy().tobytes()
                )
            return sent[storage.data_ptr()][0], tensor.storage_offset() * tensor.element_size()

        call = b"L" + bytes([len(kernel)]) + kernel.encode()
        call += struct.pack("<QQQI", *grid, seed, len(arguments))
        for argument in arguments:
            if isinstance(argument, Tensor):
                call += b"p" + struct.pack("<IQ", *place(argument))
            else:
                call += b"0" if argument is None else b"i" + struct.pack("<q", argument)
        back = list(sent.values())
        if descriptors is not None:
            words, tables = descriptors
            number, _ = place(words)
            back = [one for one in back if one[0] != number]  # the harness's addresses mean nothing here
            for line, pointers in enumerate(tables):
                for column, table in enumerate(pointers):
                    if table is not None:
                        offset = 8 * (line * words.shape[1] + column)
                        self._send(b"P" + struct.pack("<IQIQ", number, offset, *place(table)))
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
        work_count: Tensor | None = None,
        *,
        blocks: int = 3,
        seed: int = 0,
    ) -> None:
        """As ``apply_slots_``."""
        rows, vocab = logits.shape
        arguments = [logits, logits.stride(0), vocab, masks, masks.stride(0), masks.shape[1]]
        self.launch(
            f"gb_apply_{SUFFIX[logits.dtype]}",
            (blocks, rows),
            [*arguments, row_slots, alive, work_count],
            seed=seed,
        )

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None, *, blocks: int = 3, seed: int = 0) -> None:
        """As ``reference.step_``."""
        tables = [(one.table, one.byte_class, one.flags, one.needed) for one in lane.languages]
        vocabulary = lane.vocabulary
        bytes_of = [vocabulary.token_bytes, vocabulary.token_start, vocabulary.token_length]
        tokens = [*bytes_of, len(vocabulary.token_start), vocabulary.stops, len(vocabulary.stops)]
        self.launch(
            "gb_advance",
            (1, lane.rows),
            [
                *(lane.tokens, lane.tokens.stride(0), lane.length, lane.capacity),
                *(lane.shadow, lane.history, lane.known, lane.language_of, lane.start, lane.limit),
                *(lane.descriptors, *tokens, lane.claims, len(lane.claims)),
                *(lane.state_of, lane.slot_of, lane.work, lane.work_count),
            ],
            seed=seed,
            descriptors=(lane.descriptors, tables),
        )
        masks = [lane.masks, lane.masks.stride(0), lane.masks.shape[1]]
        self.launch(
            "gb_build",
            (blocks, 1),
            [lane.work, lane.work_count, lane.descriptors, *tokens, *masks],
            seed=seed + 1,
            descriptors=(lane.descriptors, tables),
        )
        self.apply_(logits, lane.masks, lane.slot_of, alive, lane.work_count, blocks=blocks, seed=seed + 2)

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
        rows, vocab = logits.shape
        best = torch.full((rows, parts), -1)  # to be overwritten
        found = torch.full((rows,), -7)
        arguments = [logits, logits.stride(0), vocab, masks, masks.stride(0), masks.shape[1], row_slots]
        self.launch(
            f"gb_sample_{SUFFIX[logits.dtype]}",
            (parts, rows),
            [*arguments, temperature, seed, position, best],
            seed=order,
        )
        self.launch("gb_pick", (1, rows), [best, parts, found], seed=order + 1)
        return found


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    """All of a storage; changes with it."""
    return torch.empty(0, dtype=torch.uint8).set_(storage)
