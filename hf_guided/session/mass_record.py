"""The probability that the format and the limits leave, and whether the token limit has changed an answer.

Near its limit a row may choose only tokens after which its text can still end, and where the limit of its thinking is
reached, only the end of the thinking. At such a *narrowed* step, the mask of the format alone is known beside the mask
that is applied, and the scores before the mask say which share the limit left of the probability of all tokens that the
format allows. Other steps are weighed only where the caller asks what the format has left: the sum of the probabilities
of the tokens that it allows. The product of both, over all steps, is the probability that the masks have left.

The sums are computed on the device of the scores, and are read when a row has ended: no step waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..backends.matcher import Narrowed
from ..trace.events import LimitStep
from ..vocabulary.bitmask import allocate_bitmask, unpack
from .result import GuidedResult
from .row import Row
from .transfers import sent_to, to_device

_HALF = 0.5


class _Weighed(NamedTuple):
    """A narrowed step: the line of what ``weighed`` has returned, and whether the limit is that of the thinking."""

    values: Tensor
    line: int
    thinking: bool

    def read(self) -> LimitStep:
        log_mass, preferred, overruled, _ = self.values[self.line].tolist()
        return LimitStep(log_mass, int(preferred), bool(overruled), self.thinking)


def weighed(scores: Tensor, narrowed: Sequence[Narrowed]) -> Tensor:
    """The share that a limit leaves of the probability of the tokens that the format allows, and their probability.

    Args:
        scores: (positions, vocab) floating point, any device, before the masks; read only.
        narrowed: the masks of each position.

    Returns:
        (positions, 4) float64 (float32 where the device has no other) on that device: the logarithm of the share; the
        most probable token that the format allows; 1 where the limit forbids it; the logarithm of the probability.
    """
    words = np.stack([mask for both in narrowed for mask in (both.by_format, both.by_both)])  # (2 * positions, words)
    allowed = unpack(sent_to(torch.from_numpy(words), scores.device), scores.shape[-1])
    by_format, by_both = allowed[0::2], allowed[1::2]  # (positions, vocab)
    wide = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    of_format = wide.masked_fill(~by_format, -torch.inf)
    log_sums = torch.stack(
        [scores.logsumexp(-1) for scores in (wide, of_format, wide.masked_fill(~by_both, -torch.inf))]
    )
    mass, share = _logarithms(log_sums)
    best = of_format.max(-1, keepdim=True)
    overruled = ~by_both.gather(-1, best.indices) & (best.values > -torch.inf)
    return torch.stack([share, best.indices[:, 0].to(wide.dtype), overruled[:, 0].to(wide.dtype), mass], -1)


def _logarithms(log_sums: Tensor) -> Tensor:
    """The logarithms of the shares that sums have of the sums before them; given the logarithms (sums, positions)."""
    logarithms = log_sums.diff(dim=0)
    return torch.where(logarithms.isnan(), 0.0, logarithms).clamp_(max=0.0)  # NaN without a finite score


class MassRecord:
    """What the limits and the format have left in one generate() call, by row and by index of the chosen token.

    Args:
        weighs_all: whether all steps are weighed, not only the narrowed ones.
    """

    def __init__(self, *, weighs_all: bool = False) -> None:
        self.weighs_all = weighs_all
        self.clear()

    def clear(self) -> None:
        """Forget the last call."""
        # Of the last scores: the narrowed steps by position; the logarithm of what the format left, (positions,).
        self._step: dict[int, _Weighed] = {}
        self._masses: Tensor | None = None
        # The same for each noted token, by row and index, with its position.
        self._rows: dict[int, dict[int, tuple[_Weighed | None, Tensor | None, int]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to note."""
        return not (self.weighs_all or self._step or self._rows)

    def see(self, scores: Tensor, narrowed: Mapping[int, Narrowed], log_sums: Tensor | None = None) -> None:
        """Weigh the positions of a step.

        Args:
            scores: (positions, vocab) before the masks; read only.
            narrowed: the masks of the positions that a limit has narrowed, and maybe of others.
            log_sums: (positions, 2) log-sum-exp of the scores before and after the masks, on their device; needed if
                all steps are weighed, for positions that ``narrowed`` does not have.
        """
        self._step = {}
        self._masses = None if log_sums is None else _logarithms(log_sums.T)[0]
        if narrowed:
            positions = to_device(list(narrowed), scores.device)
            values = weighed(scores[positions], list(narrowed.values()))
            self._step = {
                position: _Weighed(values, line, both.thinking)
                for line, (position, both) in enumerate(narrowed.items())
                if both.narrows
            }
            if self.weighs_all and self._masses is None:
                self._masses = values.new_full((len(scores),), torch.nan)  # positions without masses are not noted
            if self._masses is not None:
                self._masses[positions] = values[:, 3].to(self._masses.dtype)

    @property
    def step(self) -> dict[int, LimitStep]:
        """The effects of the limits at the positions of the last scores; waits for the device if they did anything."""
        return {position: value.read() for position, value in self._step.items()}

    def note(self, row: int, index: int, position: int) -> None:
        """Note that the token with this index in a row's output is chosen at this position of the last scores.

        This replaces an earlier choice at the index: that of a draft, which may have been rejected.
        """
        self._rows.setdefault(row, {})[index] = self._step.get(position), self._masses, position

    def steps(self, row: int, length: int | None = None) -> dict[int, LimitStep]:
        """The narrowed steps among the first ``length`` output tokens of a row (None: all), by index, ascending.

        Streams: waits for the device if there are any.
        """
        noted = sorted(self._rows.get(row, {}).items())
        counted = noted if length is None else [item for item in noted if item[0] < length]
        return {index: step.read() for index, (step, _, _) in counted if step is not None}

    def log_masses(self, row: int, length: int, *, is_free: bool = False) -> list[float] | None:
        """For each output token of a row, the natural logarithm of the probability that the format left at its step.

        None if not all of the ``length`` tokens are noted. A free row has no format, which leaves everything: 0.0.

        Streams: waits for the device.
        """
        if self.weighs_all and is_free:
            return [0.0] * length
        noted = self._rows.get(row, {})
        found = [noted[index][1:] for index in range(length) if index in noted]
        parts = [masses[position] for masses, position in found if masses is not None]
        if not self.weighs_all or len(parts) < length:
            return None
        values: list[float] = torch.stack(parts).tolist() if parts else []
        return values


def narrowed_along(
    row: Row, token_ids: Sequence[int], tokens_left: int, *, always: bool = False
) -> dict[int, Narrowed]:
    """The narrowed positions along an output, or all of them, by the index of their token.

    The row stands before the first token, and is advanced; ``tokens_left`` is the limit of the output.
    """
    narrowed: dict[int, Narrowed] = {}
    if row.matcher is None or not (always or row.matcher.compiled.keeps_budget):
        return narrowed
    bitmask = allocate_bitmask(1, row.matcher.compiled.vocabulary.padded_size)
    for index, token_id in enumerate(token_ids):
        left = tokens_left - index
        # Filled, not only asked: an engine that searches for a way to the end keeps what it has found.
        if always or row.mask_key(left) is None:
            row.fill(bitmask, 0, left)
            both = row.narrowed(left, bitmask[0].numpy(), always=always)
            if both is not None:
                narrowed[index] = both
        row.advance(token_id)
    return narrowed


def limit_log_mass(steps: Mapping[int, LimitStep]) -> float:
    """The logarithm of the share that the limits left, over all steps; 0.0 where they never narrowed the mask."""
    return math.fsum(step.log_mass for step in steps.values())


def is_shortened(steps: Mapping[int, LimitStep], *, sampled: bool) -> bool:
    """Whether the token limit has changed an answer; that of the thinking does not count.

    Greedily: whether it has forbidden the token that would have been chosen. For a sample: whether it would more likely
    than not have been another one, because the limit left less than half of the probability.
    """
    steps = {index: step for index, step in steps.items() if not step.thinking}
    if sampled:
        return math.exp(limit_log_mass(steps)) < _HALF
    return any(step.overruled for step in steps.values())


def with_limit(
    result: GuidedResult, steps: Mapping[int, LimitStep], log_masses: Sequence[float] | None, *, sampled: bool | None
) -> GuidedResult:
    """A row's result with what ``MassRecord`` tells of it; unchanged with ``sampled=None``, where that is not known."""
    if sampled is None:
        return result
    log_mass = None if log_masses is None else math.fsum(log_masses)
    shortened = is_shortened(steps, sampled=sampled)
    return replace(result, shortened=shortened, log_mass=log_mass, limit_log_mass=limit_log_mass(steps))
