"""The functions that advance a lane, as plain torch or as CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from . import reference, sampling
from .lane import Lane
from .launches import StepBuffers, apply_launch, build_launch, sample_parts
from .prepared import Launcher, PreparedSample, PreparedStep, Sampler
from .row_output import RowOutput


class Kernels(Protocol):
    """Masks and samples on one kind of device; all on the current stream."""

    name: str

    def apply_slots_(
        self, logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        """See ``reference.apply_slots_``."""
        ...

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        """See ``reference.step_``."""
        ...

    def fill_pool_(self, lane: Lane) -> None:
        """See ``reference.fill_pool_``."""
        ...

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        """See ``sampling.masked_sample``."""
        ...

    def sampler(self, lane: Lane, temperature: Tensor, seed: Tensor | None, output: RowOutput) -> Sampler:
        """A function that picks every row's next token, and appends it.

        Args:
            lane: the rows, after ``step_``.
            temperature: (rows,) float32, as for ``masked_sample``; not written later.
            seed: (rows,) int64, as for ``masked_sample``.
            output: of the lane.

        Returns:
            A function of the logits, (rows, vocab). It returns the choice of ``masked_sample``, a new tensor.
        """
        ...


def processors_of(device: torch.device) -> int:
    """Multiprocessors of a GPU; 1 of anything else."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


class TorchKernels:
    """The reference; runs on every device, and waits for it."""

    name = "torch"
    apply_slots_ = staticmethod(reference.apply_slots_)
    step_ = staticmethod(reference.step_)
    fill_pool_ = staticmethod(reference.fill_pool_)
    masked_sample = staticmethod(sampling.masked_sample)

    def sampler(self, lane: Lane, temperature: Tensor, seed: Tensor | None, output: RowOutput) -> Sampler:
        """See ``Kernels.sampler``."""
        return _sampler(self, lane, temperature, seed, output)


class OpKernels:
    """Operators of a torch extension, built ahead of time from the same source; the host never waits.

    Args:
        name: how they were found.
        ops: has ``apply_bitmask_``, ``automaton_step_``, ``build_masks_`` and ``masked_sample_``.
    """

    def __init__(self, name: str, ops: Any):
        self.name = name
        self._ops = ops

    def apply_slots_(
        self, logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        """See ``reference.apply_slots_``."""
        self._ops.apply_bitmask_(logits, masks, row_slots, alive)

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        """See ``reference.step_``."""
        self._ops.automaton_step_(logits, *lane.buffers, alive=alive)

    def fill_pool_(self, lane: Lane) -> None:
        """See ``reference.fill_pool_``."""
        work = lane.claim_all()
        count = torch.full((1,), len(work), dtype=torch.int32, device=work.device)
        vocabulary = lane.vocabulary
        texts = vocabulary.token_bytes, vocabulary.token_start, vocabulary.token_length, vocabulary.stops
        self._ops.build_masks_(work, count, lane.descriptors, *texts, lane.masks)

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        """See ``sampling.masked_sample``."""
        rows, vocab = logits.shape
        parts = sample_parts(rows, vocab, processors_of(logits.device))
        best = torch.empty(rows, parts, dtype=torch.int64, device=logits.device)
        tokens = torch.empty(rows, dtype=torch.int64, device=logits.device)
        seed = torch.zeros_like(tokens) if seed is None else seed
        self._ops.masked_sample_(tokens, best, logits, masks, row_slots, temperature, seed, position)
        return tokens

    def sampler(self, lane: Lane, temperature: Tensor, seed: Tensor | None, output: RowOutput) -> Sampler:
        """See ``Kernels.sampler``."""
        return _sampler(self, lane, temperature, seed, output)


class LaunchedKernels:
    """CUDA kernels that a launcher puts on the current stream; the host never waits.

    Args:
        name: how they were found.
        launcher: launches them.
        processors: returns a device's number of multiprocessors.
    """

    def __init__(self, name: str, launcher: Launcher, processors: Callable[[torch.device], int] = processors_of):
        self.name = name
        self._launcher = launcher
        self._processors = processors
        self._steps: WeakKeyDictionary[Lane, PreparedStep] = WeakKeyDictionary()

    def apply_slots_(
        self, logits: Tensor, masks: Tensor, row_slots: Tensor | None = None, alive: Tensor | None = None
    ) -> None:
        """See ``reference.apply_slots_``."""
        self._launcher.prepare(apply_launch(logits, masks, row_slots, alive))()

    def step_(self, lane: Lane, logits: Tensor, alive: Tensor | None = None) -> None:
        """See ``reference.step_``."""
        step = self._steps.get(lane)
        if step is None:
            step = self._steps[lane] = PreparedStep(lane, self._launcher, self._processors(logits.device))
        step(logits, alive)

    def fill_pool_(self, lane: Lane) -> None:
        """See ``reference.fill_pool_``."""
        work = lane.claim_all()
        count = torch.full((1,), len(work), dtype=torch.int32, device=work.device)
        buffers = StepBuffers.of(lane.buffers)
        processors = self._processors(work.device)
        self._launcher.prepare(build_launch(work, count, buffers.tables, lane.masks, processors=processors))()

    def masked_sample(
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        """See ``sampling.masked_sample``."""
        processors = self._processors(logits.device)
        return PreparedSample(self._launcher, processors, masks, row_slots, temperature, seed, position)(logits)

    def sampler(self, lane: Lane, temperature: Tensor, seed: Tensor | None, output: RowOutput) -> Sampler:
        """See ``Kernels.sampler``."""
        processors = self._processors(lane.length.device)
        given = lane.masks, lane.slot_of, temperature, seed, lane.length
        return PreparedSample(self._launcher, processors, *given, output)


def _sampler(kernels: Kernels, lane: Lane, temperature: Tensor, seed: Tensor | None, output: RowOutput) -> Sampler:
    """For kernels that pick and append one after the other."""

    def sample(logits: Tensor) -> Tensor:
        chosen = kernels.masked_sample(logits, lane.masks, lane.slot_of, temperature, seed, lane.length)
        output.append_(chosen)
        return chosen

    return sample
