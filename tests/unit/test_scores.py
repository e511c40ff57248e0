"""The order of generate()'s processors and the masks, and which processors forbid drafts or need the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import generation

from hf_guided.hf.decode.processors import Scoring, before_warpers

TOP_K, TEMPERATURE = generation.TopKLogitsWarper(2), generation.TemperatureLogitsWarper(0.5)
PENALTY = generation.RepetitionPenaltyLogitsProcessor(2.0)
SYNTH_ID = generation.SynthIDTextWatermarkLogitsProcessor(2, [1, 2], 16, 16, 8, "cpu")


class CallersProcessor:
    """A processor of the caller. It may keep any state."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        assert ids.dtype == torch.int64
        return scores - ids.sum(1, keepdim=True) * torch.eye(scores.shape[1])[ids.shape[1] % scores.shape[1]]


@pytest.mark.parametrize(
    ("processors", "takes_drafts", "wants_batch"),
    [
        ([], True, False),
        ([TOP_K, TEMPERATURE], True, False),
        ([generation.InfNanRemoveLogitsProcessor(), generation.LogitNormalization()], True, False),
        ([PENALTY, TOP_K], True, True),
        ([SYNTH_ID], False, True),
        ([TOP_K, CallersProcessor()], False, True),
        ([CallersProcessor()], False, True),
    ],
)
def test_processors_decide_drafts_and_batching(processors: list[Any], takes_drafts: bool, wants_batch: bool) -> None:
    scoring = Scoring(processors)
    assert (scoring.takes_drafts, scoring.wants_batch) == (takes_drafts, wants_batch)


@pytest.mark.parametrize(
    "processors", [[], [PENALTY, TOP_K, TEMPERATURE], [TOP_K, PENALTY], [CallersProcessor()], [TEMPERATURE]]
)
@pytest.mark.parametrize("lengths", [[3, 3, 3], [1, 4, 1, 2], [2], [0, 1]])
def test_rows_of_different_lengths_equal_each_row_alone(processors: list[Any], lengths: list[int]) -> None:
    scoring = Scoring(processors)
    first = before_warpers(processors)
    assert (scoring.before, scoring.after) == (processors[:first], processors[first:])
    generator = torch.Generator().manual_seed(len(lengths))
    scores = torch.randn(len(lengths), 8, generator=generator)
    ids = [torch.randint(0, 8, (length,), generator=generator).tolist() for length in lengths]
    forbidden = torch.rand(len(lengths), 8, generator=generator) < 0.3
    original = scores.clone()
    batched = scoring(ids, scores, lambda scores: scores.masked_fill(forbidden, -torch.inf))
    assert torch.equal(scores, original)
    for i, row in enumerate(ids):
        alone = original[i : i + 1]
        for processor in processors[:first]:
            alone = processor(torch.tensor([row], dtype=torch.long), alone)
        alone = alone.masked_fill(forbidden[i], -torch.inf)
        for processor in processors[first:]:
            alone = processor(torch.tensor([row], dtype=torch.long), alone)
        torch.testing.assert_close(batched[i : i + 1], alone)
