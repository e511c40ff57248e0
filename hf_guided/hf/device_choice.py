"""Which token each row takes, without asking the host: processors, masks, and greedy or sampling.

Sampling is by Philox, a generator without a state: each row draws with a seed of its own at the place where it is, so
what it draws does not depend on the batch, and a step that is undone has used up nothing. The seeds come from torch's
generator for the CPU, once per generate() call, so ``torch.manual_seed`` governs them. The tokens are not those that
transformers would draw with that seed, but of the same distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import generation

from ..device.kernels import Kernels
from ..device.lane import Lane
from .sampling import Scoring

# Functions of the tokens so far and the scores, on their device: they remember no calls and ask for no numbers.
_PLAIN = (
    generation.TemperatureLogitsWarper,
    generation.TopKLogitsWarper,
    generation.TopPLogitsWarper,
    generation.MinPLogitsWarper,
    generation.TypicalLogitsWarper,
    generation.EpsilonLogitsWarper,
    generation.RepetitionPenaltyLogitsProcessor,
    generation.MinLengthLogitsProcessor,
    generation.MinNewTokensLengthLogitsProcessor,
    generation.SuppressTokensLogitsProcessor,
    generation.SuppressTokensAtBeginLogitsProcessor,
    generation.ForcedBOSTokenLogitsProcessor,
    generation.ForcedEOSTokenLogitsProcessor,
    generation.InfNanRemoveLogitsProcessor,
    generation.LogitNormalization,
)


def others(processors: Sequence[Any]) -> list[str]:
    """Names of the processors that are not known to be plain functions on the device."""
    return [type(one).__name__ for one in processors if type(one) not in _PLAIN]


class DeviceChoice:
    """Chooses for all rows of a lane.

    Args:
        lane: the rows.
        kernels: what moves them.
        scoring: the processors, all of them plain functions.
        do_sample: whether to sample, or take the best.
    """

    def __init__(self, lane: Lane, kernels: Kernels, scoring: Scoring, *, do_sample: bool):
        self._lane = lane
        self._kernels = kernels
        self._scoring = scoring
        device = lane.length.device
        # The warpers change the temperature.
        self._temperature = torch.full((lane.rows,), float(do_sample), device=device)
        if do_sample:
            seed = torch.randint(-(1 << 63), (1 << 63) - 1, (lane.rows,))
        else:
            seed = torch.zeros(lane.rows, dtype=torch.int64)  # draws nothing, as nothing is drawn elsewhere
        self._seed = seed.to(device)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Move the lane to where its tokens lead, and choose the next ones.

        Args:
            ids: (rows, length) int64, prompts and output so far.
            logits: (rows, vocab) float32, written.

        Returns:
            (rows,) int64, a new tensor; -1 where nothing that is allowed has a finite score.

        Streams: on the current one; the host does not wait.
        """
        lane, scores = self._lane, logits
        for processor in self._scoring.before:
            scores = processor(ids, scores)
        if self._scoring.before:  # some give back what they were given
            scores = scores.contiguous()
        self._kernels.step_(lane, scores)
        for processor in self._scoring.after:
            scores = processor(ids, scores)
        return self._kernels.masked_sample(scores, lane.masks, lane.slot_of, self._temperature, self._seed, lane.length)
