"""The share of the probability that a token limit takes away, and whether it has changed an answer.

Near its limit a row may choose only tokens after which its text can still end. At such a *narrowed* step, the mask of
the format alone is known beside the mask that is applied, and the scores before the mask say which share the limit left
of the probability of all tokens that the format allows. Other steps are not weighed, and cost nothing.

The sums are computed on the device of the scores, and are read when a row has ended: no step waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

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


def weighed(scores: Tensor, narrowed: Sequence[Narrowed]) -> Tensor:
    """The share that a limit leaves of the probability of the tokens that the format allows.

    Args:
        scores: (positions, vocab) floating point, any device, before the masks; read only.
        narrowed: the masks of each position.

    Returns:
        (positions, 3) float64 (float32 where the device has no other) on that device: the logarithm of the share; the
        most probable token that the format allows; 1 where the limit forbids it.
    """
    words = torch.from_numpy(np.stack([mask for masks in narrowed for mask in masks]))  # (2 * positions, words)
    allowed = unpack(sent_to(words, scores.device), scores.shape[-1])
    by_format, by_both = allowed[0::2], allowed[1::2]  # (positions, vocab)
    wide = scores.to(torch.float32 if scores.device.type == "mps" else torch.float64)
    of_format = wide.masked_fill(~by_format, -torch.inf)
    share = wide.masked_fill(~by_both, -torch.inf).logsumexp(-1) - of_format.logsumexp(-1)
    share = torch.where(share.isnan(), 0.0, share).clamp_(max=0.0)  # without a finite score the format leaves nothing
    best = of_format.max(-1, keepdim=True)
    overruled = ~by_both.gather(-1, best.indices) & (best.values > -torch.inf)
    return torch.stack([share, best.indices[:, 0].to(wide.dtype), overruled[:, 0].to(wide.dtype)], -1)


class LimitRecord:
    """The narrowed steps of one generate() call, by row and by index of the token that was chosen."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the last call."""
        # What ``weighed`` returned, and the line there: of the last scores by position, and by row and index.
        self._step: dict[int, tuple[Tensor, int]] = {}
        self._rows: dict[int, dict[int, tuple[Tensor, int]]] = {}

    @property
    def is_empty(self) -> bool:
        """Whether ``note`` would do nothing."""
        return not (self._step or self._rows)

    def see(self, scores: Tensor, narrowed: Mapping[int, Narrowed]) -> None:
        """Weigh the narrowed positions of a step.

        Args:
            scores: (positions, vocab) before the masks; read only.
            narrowed: the masks of the positions that the limit has narrowed.
        """
        self._step = {}
        if narrowed:
            positions = to_device(list(narrowed), scores.device)
            values = weighed(scores[positions], list(narrowed.values()))
            self._step = {position: (values, line) for line, position in enumerate(narrowed)}

    @property
    def step(self) -> dict[int, LimitStep]:
        """The effects of the limit at the positions of the last scores; waits for the device if it did anything."""
        return {position: _read(*value) for position, value in self._step.items()}

    def note(self, row: int, index: int, position: int) -> None:
        """Note that the token with this index in a row's output is chosen at this position of the last scores.

        This replaces an earlier choice at the index: that of a draft, which may have been rejected.
        """
        if position in self._step:
            self._rows.setdefault(row, {})[index] = self._step[position]
        elif row in self._rows:
            self._rows[row].pop(index, None)

    def steps(self, row: int, length: int | None = None) -> dict[int, LimitStep]:
        """The narrowed steps of a row, by the index of their token, ascending.

        Args:
            row: its number.
            length: number of its output tokens, after which nothing counts; None counts all.

        Streams: waits for the device if there are any.
        """
        found = self._rows.get(row, {})
        return {index: _read(*found[index]) for index in sorted(found) if length is None or index < length}


def _read(values: Tensor, line: int) -> LimitStep:
    log_mass, preferred, overruled = values[line].tolist()
    return LimitStep(log_mass, int(preferred), bool(overruled))


def narrowed_along(row: Row, token_ids: Sequence[int], tokens_left: int) -> dict[int, Narrowed]:
    """The narrowed positions along an output, by the index of their token.

    Args:
        row: before the first token; advanced.
        token_ids: of the output.
        tokens_left: the limit of the output.
    """
    narrowed: dict[int, Narrowed] = {}
    if row.matcher is None or not row.matcher.compiled.keeps_budget:
        return narrowed
    bitmask = allocate_bitmask(1, row.matcher.compiled.vocabulary.padded_size)
    for index, token_id in enumerate(token_ids):
        left = tokens_left - index
        # Filled, not only asked: an engine that searches for a way to the end keeps what it has found.
        if row.mask_key(left) is None:
            row.fill(bitmask, 0, left)
            both = row.narrowed(left, bitmask[0].numpy())
            if both is not None:
                narrowed[index] = both
        row.advance(token_id)
    return narrowed


def limit_log_mass(steps: Mapping[int, LimitStep]) -> float:
    """The logarithm of the share that the limit left, over all steps; 0.0 where it never narrowed the mask."""
    return math.fsum(step.log_mass for step in steps.values())


def is_shortened(steps: Mapping[int, LimitStep], *, sampled: bool) -> bool:
    """Whether the limit has changed an answer.

    Greedily: whether it has forbidden the token that would have been chosen. For a sample: whether it would more likely
    than not have been another one, because the limit left less than half of the probability.
    """
    if sampled:
        return math.exp(limit_log_mass(steps)) < _HALF
    return any(step.overruled for step in steps.values())


def with_limit(result: GuidedResult, steps: Mapping[int, LimitStep], *, sampled: bool | None) -> GuidedResult:
    """A result that says what the limit did to it; unchanged with ``sampled=None``, where that is not known."""
    if sampled is None:
        return result
    return replace(result, shortened=is_shortened(steps, sampled=sampled), limit_log_mass=limit_log_mass(steps))
