"""Which token each row takes, without asking the host: processors, masks, and greedy or sampling.

Sampling is by Philox, a generator without a state: each row draws with a seed of its own at the place where it is, so
what it draws does not depend on the batch, and a step that is undone has used up nothing. The seeds come from torch's
generator for the CPU, once per generate() call, so ``torch.manual_seed`` governs them. The tokens are not those that
transformers would draw with that seed, but of the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import generation

from ..decode.scores import Scoring
from .candidates import pick
from .kernels import Kernels
from .lane import Lane

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
_FILTER = {  # in the order of ``candidates.pick``, which is that of generate()
    generation.TemperatureLogitsWarper: "temperature",
    generation.TopKLogitsWarper: "top_k",
    generation.TopPLogitsWarper: "top_p",
    generation.MinPLogitsWarper: "min_p",
}


def others(processors: Sequence[Any]) -> list[str]:
    """Names of the processors that are not known to be plain functions on the device."""
    return [type(one).__name__ for one in processors if type(one) not in _PLAIN]


@dataclass(frozen=True)
class Filters:
    """What ``candidates.pick`` does by itself, faster than one warper after the other.

    Args:
        temperature: what scores are divided by.
        top_k: the k best; None: all.
        top_p: the best with this probability together; None: all.
        min_p: those with this share of the best one's probability; None: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    @classmethod
    def of(cls, warpers: Sequence[Any]) -> Filters | None:
        """The same as these warpers; None if they are others, or in another order."""
        given = {type(one): one for one in warpers}
        in_order = [kind for kind in _FILTER if kind in given]
        if [type(one) for one in warpers] != in_order:
            return None
        for one in warpers:
            if getattr(one, "filter_value", -math.inf) != -math.inf or getattr(one, "min_tokens_to_keep", 1) != 1:
                return None
        return cls(**{_FILTER[kind]: getattr(one, _FILTER[kind]) for kind, one in given.items()})


class DeviceChoice:
    """Chooses for all rows of a lane.

    Args:
        lane: the rows.
        kernels: what moves them.
        scoring: the processors, all of them plain functions.
        do_sample: whether to sample, or take the best.
        seeds: of what each row draws; None has torch's generator draw them.
    """

    def __init__(
        self, lane: Lane, kernels: Kernels, scoring: Scoring, *, do_sample: bool, seeds: Sequence[int] | None = None
    ):
        self._lane = lane
        self._kernels = kernels
        self._before = scoring.before
        device = lane.length.device
        filters = Filters.of(scoring.after)
        self._warpers = scoring.after if filters is None else []
        self._filters = Filters() if filters is None else filters
        heat = self._filters.temperature if do_sample else 0.0
        self._temperature = torch.full((lane.rows,), heat, device=device)
        self._seed: Tensor | None = None  # torch's generator is left alone where nothing is drawn
        if do_sample:
            drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (lane.rows,)) if seeds is None else torch.tensor(seeds)
            self._seed = drawn.to(device)

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
        for processor in self._before:
            scores = processor(ids, scores)
        if self._before:  # some give back what they were given
            scores = scores.contiguous()
        self._kernels.step_(lane, scores)
        for processor in self._warpers:
            scores = processor(ids, scores)
        return pick(
            scores,
            lane.masks,
            lane.slot_of,
            self._temperature,
            self._seed,
            lane.length,
            top_k=self._filters.top_k,
            top_p=self._filters.top_p,
            min_p=self._filters.min_p,
            kernels=self._kernels,
        )
