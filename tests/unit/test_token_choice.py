"""The token choice of the device lane: the inputs of its sampler, and its use of torch's generator."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import generation

from hf_guided.hf.decode.scores import Scoring
from hf_guided.hf.device.kernels import TorchKernels
from hf_guided.hf.device.lane import Lane
from hf_guided.hf.device.row_output import RowOutput
from hf_guided.hf.device.sampling import masked_sample
from hf_guided.hf.device.staging import Staging
from hf_guided.hf.device.tables import VocabularyTables
from hf_guided.hf.device.token_choice import DeviceChoice
from tests.toy import letters

ROWS = 64
VOCABULARY = letters("abcdefghij")  # 112 tokens
LOGITS = torch.randn(ROWS, VOCABULARY.padded_size, generator=torch.Generator().manual_seed(1))
IDS = torch.zeros(ROWS, 1, dtype=torch.int64)


class RecordingKernels(TorchKernels):
    """Records the arguments of ``masked_sample``."""

    def masked_sample(  # type: ignore[override]
        self,
        logits: Tensor,
        masks: Tensor,
        row_slots: Tensor | None,
        temperature: Tensor,
        seed: Tensor | None,
        position: Tensor,
    ) -> Tensor:
        self.logits, self.temperature, self.seed = logits.clone(), temperature, seed
        return masked_sample(logits, masks, row_slots, temperature, seed, position)


def choose(
    processors: list[Any], *, do_sample: bool = True, seeds: list[int] | None = None
) -> tuple[Tensor, RecordingKernels]:
    """The tokens of unconstrained rows, and the kernels that recorded the inputs."""
    kernels = RecordingKernels()
    lane = Lane.allocate(VocabularyTables.of(VOCABULARY), [], ROWS, 4)
    staging = Staging(torch.device("cpu"))
    output = RowOutput.of(lane, staging, eos_token_ids=[], pad_token_id=0, fallbacks=[0] * ROWS)
    choice = DeviceChoice(lane, kernels, Scoring(processors), output, staging, do_sample=do_sample, seeds=seeds)
    return choice(IDS, LOGITS.clone()), kernels


def test_greedy_does_not_use_the_generator() -> None:
    before = torch.get_rng_state()
    tokens, kernels = choose([], do_sample=False)
    assert torch.equal(torch.get_rng_state(), before)
    assert kernels.seed is None and torch.equal(tokens, LOGITS.argmax(1))


def test_seeds_come_from_the_generator_or_the_caller() -> None:
    seeds_of_calls = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        kernels = choose([])[1]
        assert kernels.seed is not None
        seeds_of_calls.append(kernels.seed.tolist())
    assert seeds_of_calls[0] == seeds_of_calls[1] != seeds_of_calls[2]
    assert len(set(seeds_of_calls[0])) == ROWS
    assert min(seeds_of_calls[0]) < -(2**62) and max(seeds_of_calls[0]) >= 2**62, "the seeds do not use all 64 bits"
    given = list(range(ROWS))
    state = torch.get_rng_state()
    kernels = choose([], seeds=given)[1]
    assert kernels.seed is not None and kernels.seed.tolist() == given
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "warpers",
    [
        [],
        [generation.TemperatureLogitsWarper(0.25)],
        [generation.TopKLogitsWarper(3)],
        [generation.TopKLogitsWarper(80)],
        [generation.TemperatureLogitsWarper(2.0), generation.TopPLogitsWarper(0.7)],
        [generation.MinPLogitsWarper(0.3)],
        [generation.TypicalLogitsWarper(0.6)],  # not one of our filters, so transformers' warper runs
        [generation.TopPLogitsWarper(0.7), generation.TopKLogitsWarper(20)],  # not our order
        [generation.TemperatureLogitsWarper(0.5), generation.TopKLogitsWarper(9, min_tokens_to_keep=2)],
    ],
    ids=lambda warpers: "+".join(type(one).__name__.removesuffix("LogitsWarper") for one in warpers) or "none",
)
def test_sampled_distribution_equals_that_of_the_warpers(warpers: list[Any]) -> None:
    kernels = choose(warpers)[1]
    expected = generation.LogitsProcessorList(warpers)(IDS, LOGITS.clone())
    given = kernels.logits / kernels.temperature[:, None]
    assert torch.equal(given > -torch.inf, expected > -torch.inf)
    torch.testing.assert_close(given.softmax(1), expected.softmax(1))


def test_processors_run_before_the_masks() -> None:
    processors = [generation.SuppressTokensLogitsProcessor([5], device="cpu"), generation.TopKLogitsWarper(1)]
    logits = LOGITS.clone()
    logits[:, 5] = -torch.inf
    tokens, kernels = choose(processors)
    assert torch.equal(tokens, logits.argmax(1))
    assert ((kernels.logits > -torch.inf).sum(1) == 1).all()
