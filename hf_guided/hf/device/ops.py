"""The kernels as torch operators, so that CUDA graphs and ``torch.compile`` know which tensors they write."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import Library

from .launches import (
    NUM_STEP_BUFFERS,
    Launch,
    StepBuffers,
    TableBuffers,
    apply_launch,
    build_launch,
    sample_launches,
    step_launches,
)

# As in kernels/guided_bitmask/torch-ext/torch_binding.cpp.
_SCHEMAS = (
    "apply_bitmask_(Tensor(a!) logits, Tensor bitmask, Tensor? row_slots=None, Tensor(b!)? alive=None) -> ()",
    "automaton_step_(Tensor(a!) logits, Tensor tokens, Tensor length, Tensor(b!) shadow, Tensor(c!) history, "
    "Tensor(d!) known, Tensor language_of, Tensor start, Tensor limit, Tensor languages, Tensor token_bytes, "
    "Tensor token_start, Tensor token_length, Tensor stops, Tensor(e!) claims, Tensor(f!) masks, "
    "Tensor(g!) state_of, Tensor(h!) slot_of, Tensor(i!) work, Tensor(j!) work_count, Tensor(k!)? alive=None) -> ()",
    "build_masks_(Tensor work, Tensor work_count, Tensor languages, Tensor token_bytes, Tensor token_start, "
    "Tensor token_length, Tensor stops, Tensor(a!) masks) -> ()",
    "masked_sample_(Tensor(a!) next_tokens, Tensor(b!) best, Tensor logits, Tensor bitmask, Tensor? row_slots, "
    "Tensor temperature, Tensor seed, Tensor position) -> ()",
)


def register(
    namespace: str, device: str, run: Callable[[Launch], None], processors: Callable[[torch.device], int]
) -> Library:
    """Define the operators in a namespace of their own.

    Args:
        namespace: in ``torch.ops``.
        device: of the tensors, "CUDA" or "CPU".
        run: launches one kernel on the current stream.
        processors: returns a device's number of multiprocessors.

    Returns:
        Keeps them registered while it exists.
    """

    def apply_bitmask_(
        logits: Tensor, bitmask: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        run(apply_launch(logits, bitmask, row_slots, alive))

    def automaton_step_(logits: Tensor, *buffers: Tensor) -> None:
        (alive,) = buffers[NUM_STEP_BUFFERS:] or (None,)  # torch leaves out a last argument that is its default
        of_lane = StepBuffers.of(buffers[:NUM_STEP_BUFFERS])
        for launch in step_launches(logits, of_lane, alive, processors=processors(logits.device)):
            run(launch)

    def build_masks_(work: Tensor, work_count: Tensor, *buffers: Tensor) -> None:
        *tables, masks = buffers
        run(build_launch(work, work_count, TableBuffers(*tables), masks, processors=processors(work.device)))

    def masked_sample_(
        next_tokens: Tensor,
        best: Tensor,
        logits: Tensor,
        bitmask: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor,
        position: Tensor,
    ) -> None:
        for launch in sample_launches(next_tokens, best, logits, bitmask, row_slots, temperature, seed, position):
            run(launch)

    functions = apply_bitmask_, automaton_step_, build_masks_, masked_sample_
    library = Library(namespace, "DEF")  # type: ignore[no-untyped-call]
    for schema, function in zip(_SCHEMAS, functions, strict=True):
        name = library.define(schema)  # type: ignore[no-untyped-call]
        library.impl(name, function, device)  # type: ignore[no-untyped-call]
        torch.library.register_fake(f"{namespace}::{name}", _writes_only, lib=library)
    return library


def _writes_only(*_: object) -> None:
    """All results are written into arguments."""
