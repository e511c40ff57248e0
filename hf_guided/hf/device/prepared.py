"""Launches of a lane that are prepared once: its tensors are checked and read only when a call's logits look different.

A lane's buffers never change, so a step patches one word, the address of its logits: a launch costs the host about one
microsecond, where checking and reading some twenty tensors costs forty.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from .lane import Lane
from .launches import Launch, StepBuffers, apply_launch, pick_launch, sample_launch, sample_parts, step_launches
from .row_output import RowOutput

Form = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


class PreparedLaunch(Protocol):
    """A launch whose arguments are known; keeps their addresses, not the tensors."""

    def __call__(self, replaced: Tensor | None = None, /) -> None:
        """Launch on the current stream.

        Args:
            replaced: stands for the first argument, with its shape, strides, dtype and device; None: that argument.
        """
        ...


class Launcher(Protocol):
    """Runs kernels."""

    def prepare(self, launch: Launch) -> PreparedLaunch:
        """Read the arguments of a launch; a grid without blocks launches nothing."""
        ...


def nothing(_: Tensor | None = None, /) -> None:
    """The launch of no blocks."""


def _form(tensor: Tensor) -> Form:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


class PreparedStep:
    """Advance, build and apply for one lane.

    Args:
        lane: the rows; must live as long as this, which does not keep it alive.
        launcher: runs the kernels.
        processors: multiprocessors of the device.
    """

    def __init__(self, lane: Lane, launcher: Launcher, processors: int):
        self._buffers = StepBuffers.of(lane.buffers)
        self._launcher = launcher
        self._processors = processors
        self._form: Form | None = None
        self._advance: PreparedLaunch = nothing
        self._build: PreparedLaunch = nothing
        self._apply: PreparedLaunch = nothing

    def __call__(self, logits: Tensor, alive: Tensor | None = None) -> None:
        """Take a step; arguments and errors as for ``launches.step_launches``."""
        form = _form(logits)
        if form != self._form:
            launches = step_launches(logits, self._buffers, processors=self._processors)
            self._advance, self._build, self._apply = map(self._launcher.prepare, launches)
            self._form = form
        apply = self._apply
        if alive is not None:
            masks = self._buffers.masks
            apply = self._launcher.prepare(apply_launch(logits, masks.masks, masks.slot_of, alive, masks.work_count))
        self._advance()
        self._build()
        apply(logits)


class PreparedSample:
    """Sample and pick, for tensors that stay the same.

    Args:
        launcher: runs the kernels.
        processors: multiprocessors of the device.
        masks: as for ``sampling.masked_sample``, as are the next four.
        row_slots: or None.
        temperature: (rows,) float32.
        seed: (rows,) int64, or None.
        position: (rows,) int32.
        output: where the tokens are appended; None: nowhere.
    """

    def __init__(
        self,
        launcher: Launcher,
        processors: int,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
        output: RowOutput | None = None,
    ):
        self._launcher = launcher
        self._processors = processors
        seed = torch.zeros(len(temperature), dtype=torch.int64, device=temperature.device) if seed is None else seed
        self._given = masks, row_slots, temperature, seed, position
        self._output = output
        self._form: Form | None = None
        self._best = torch.empty(0)  # (rows, parts) int64; written by one launch and read by the next
        self._sample: PreparedLaunch = nothing
        self._pick: PreparedLaunch = nothing

    def __call__(self, logits: Tensor) -> Tensor:
        """The rows' tokens, (rows,) int64, a new tensor; errors as for ``launches.sample_launch``."""
        chosen = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
        form = _form(logits)
        if form != self._form:
            parts = sample_parts(len(logits), logits.shape[1], self._processors)
            self._best = torch.empty(len(logits), parts, dtype=torch.int64, device=logits.device)
            self._sample = self._launcher.prepare(sample_launch(logits, *self._given, self._best))
            self._pick = self._launcher.prepare(pick_launch(chosen, self._best, self._output))
            self._form = form
        self._sample(logits)
        self._pick(chosen)
        return chosen


Sampler = Callable[[Tensor], Tensor]
