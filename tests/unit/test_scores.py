"""How generate()'s processors are sorted around the masks, and which of them forbid drafts or want the whole batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import generation

from hf_guided.hf.decode.scores import Scoring, before_warpers

TOP_K, TEMPERATURE = generation.TopKLogitsWarper(2), generation.TemperatureLogitsWarper(0.5)
PENALTY = generation.RepetitionPenaltyLogitsProcessor(2.0)
SYNTH_ID = generation.SynthIDTextWatermarkLogitsProcessor(2, [1, 2], 16, 16, 8, "cpu")


class Callers:
    """A processor of the caller's own: nobody knows what it remembers."""

    def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
        return scores - ids.sum(1, keepdim=True) * torch.eye(scores.shape[1])[ids.shape[1] % scores.shape[1]]


@pytest.mark.parametrize(
    ("processors", "takes_drafts", "wants_batch"),
    [
        ([], True, False),
        ([TOP_K, TEMPERATURE], True, False),
        ([generation.InfNanRemoveLogitsProcessor(), generation.LogitNormalization()], True, False),
        ([PENALTY, TOP_K], True, True),
        ([SYNTH_ID], False, True),
        ([TOP_K, Callers()], False, True),
        ([Callers()], False, True),
    ],
)
def test_what_processors_allow(processors: list[Any], takes_drafts: bool, wants_batch: bool) -> None:
    scoring = Scoring(processors)
    assert (scoring.takes_drafts, scoring.wants_batch) == (takes_drafts, wants_batch)


@pytest.mark.parametrize(
    "processors", [[], [PENALTY, TOP_K, TEMPERATURE], [TOP_K, PENALTY], [Callers()], [TEMPERATURE]]
)
@pytest.mark.parametrize("lengths", [[3, 3, 3], [1, 4, 1, 2], [2], [0, 1]])
def test_rows_of_different_lengths_get_what_each_gets_alone(processors: list[Any], lengths: list[int]) -> None:
    scoring = Scoring(processors)
    first = before_warpers(processors)
    assert (scoring.before, scoring.after) == (processors[:first], processors[first:])
    generator = torch.Generator().manual_seed(len(lengths))
    scores = torch.randn(len(lengths), 8, generator=generator)
    ids = [torch.randint(0, 8, (length,), generator=generator).tolist() for length in lengths]
    forbidden = torch.rand(len(lengths), 8, generator=generator) < 0.3
    given = scores.clone()
    together = scoring(ids, scores, lambda scores: scores.masked_fill(forbidden, -torch.inf))
    assert torch.equal(scores, given)
    for i, row in enumerate(ids):
        alone = given[i : i + 1]
        for processor in processors[:first]:
            alone = processor(torch.tensor([row]), alone)
        alone = alone.masked_fill(forbidden[i], -torch.inf)
        for processor in processors[first:]:
            alone = processor(torch.tensor([row]), alone)
        torch.testing.assert_close(together[i : i + 1], alone)
