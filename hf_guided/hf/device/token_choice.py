"""Chooses each row's token without waiting for the host: processors, masks, and greedy or sampling.

Sampling uses Philox, a generator without a state: each row draws with a seed of its own at its position, so its draws
do not depend on the batch, and a rolled-back step consumes nothing. The seeds come from torch's generator for the CPU,
once per generate() call, so ``torch.manual_seed`` determines them. The tokens differ from those that transformers would
draw with that seed, but have the same distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import generation

from ..decode.scores import Scoring
from .candidates import filtered
from .device_logprobs import StepScores
from .kernels import Kernels
from .lane import Lane
from .reference import allowed_tokens
from .row_output import RowOutput
from .staging import Staging

# Functions of the tokens so far and the scores, on their device: they keep no state and read no numbers.
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
_FILTER = {  # in the order of ``candidates.filtered``, which is that of generate()
    generation.TemperatureLogitsWarper: "temperature",
    generation.TopKLogitsWarper: "top_k",
    generation.TopPLogitsWarper: "top_p",
    generation.MinPLogitsWarper: "min_p",
}


def unsupported_processors(processors: Sequence[Any]) -> list[str]:
    """Names of the processors that are not known to be pure functions on the device."""
    return [type(processor).__name__ for processor in processors if type(processor) not in _PLAIN]


@dataclass(frozen=True)
class Filters:
    """Filters that ``candidates.filtered`` applies itself, faster than one warper after the other.

    Args:
        temperature: the divisor of the scores.
        top_k: the k best; None: all.
        top_p: the best with this probability together; None: all.
        min_p: those with at least this share of the best one's probability; None: all.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    @classmethod
    def of(cls, warpers: Sequence[Any]) -> Filters | None:
        """The equivalent of these warpers; None if there are others, or another order."""
        given = {type(warper): warper for warper in warpers}
        in_order = [kind for kind in _FILTER if kind in given]
        if [type(warper) for warper in warpers] != in_order:
            return None
        for warper in warpers:
            if getattr(warper, "filter_value", -math.inf) != -math.inf or getattr(warper, "min_tokens_to_keep", 1) != 1:
                return None
        return cls(**{_FILTER[kind]: getattr(warper, _FILTER[kind]) for kind, warper in given.items()})


class DeviceChoice:
    """Chooses for all rows of a lane.

    Args:
        lane: the rows.
        kernels: advance them.
        scoring: the processors, all of them pure functions.
        output: where the tokens are appended.
        staging: brings temperatures and seeds to the device when the caller sends it.
        do_sample: whether to sample rather than take the best.
        seeds: of each row's draws; None draws the seeds with torch's generator.
        keep_scores: whether to keep the scores of each step, for log probabilities.
    """

    def __init__(
        self,
        lane: Lane,
        kernels: Kernels,
        scoring: Scoring,
        output: RowOutput,
        staging: Staging,
        *,
        do_sample: bool,
        seeds: Sequence[int] | None = None,
        keep_scores: bool = False,
    ):
        self._lane = lane
        self._kernels = kernels
        self._before, self._after = scoring.before, scoring.after
        self._keeps_scores = keep_scores
        self.scores: StepScores | None = None  # of the last step
        filters = Filters.of(scoring.after)
        self._warpers = scoring.after if filters is None else []
        self.reads_ids = bool(self._before or self._warpers)  # whether the tokens so far have to be passed
        self._filters = Filters() if filters is None else filters
        heat = self._filters.temperature if do_sample else 0.0
        self._temperature = staging.put(np.full(lane.rows, heat), torch.float32)
        seed: Tensor | None = None  # without sampling, torch's generator is not used
        if do_sample:
            drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (lane.rows,)).numpy() if seeds is None else seeds
            seed = staging.put(np.asarray(drawn, np.int64), torch.int64)
        self._sample = kernels.sampler(lane, self._temperature, seed, output)

    def __call__(self, ids: Tensor, logits: Tensor) -> Tensor:
        """Advance the lane over its tokens, choose the next ones, and append them.

        Args:
            ids: (rows, length) int64, prompts and output so far; not used unless ``reads_ids``.
            logits: (rows, vocab) float32, written.

        Returns:
            (rows,) int64, a new tensor; -1 if no allowed token has a finite score.

        Streams: runs on the current stream; the host does not wait.
        """
        lane, scores = self._lane, logits
        raw = logits.clone() if self._keeps_scores else None
        for processor in self._before:
            scores = processor(ids, scores)
        if self._before:  # some return their argument
            scores = scores.contiguous()
        self._kernels.step_(lane, scores)
        if raw is not None:
            self._keep(ids, raw, scores)
        for processor in self._warpers:
            scores = processor(ids, scores)
        filters = self._filters
        scores = filtered(
            scores,
            lane.masks,
            lane.slot_of,
            self._temperature,
            top_k=filters.top_k,
            top_p=filters.top_p,
            min_p=filters.min_p,
            kernels=self._kernels,
        )
        return self._sample(scores)

    def _keep(self, ids: Tensor, raw: Tensor, scores: Tensor) -> None:
        """Keep what the tokens are chosen from, with the filters that ``filtered`` applies in another way."""
        lane = self._lane
        allowed = allowed_tokens(lane.masks, lane.slot_of, *raw.shape)
        for processor in self._after:
            scores = processor(ids, scores)
        self.scores = StepScores(raw, raw.masked_fill(~allowed, -math.inf), scores)
