"""Masks filled while the model runs are those filled in the call: token for token, in every mode and architecture."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel, StoppingCriteria, pipeline

import hf_guided as hg
from hf_guided.generation import pipeline as pipeline_module
from hf_guided.generation.guided_call import GuidedCall
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES
from tests.integration.modes import ENDING_BEAMS, GREEDY, HOT, KINDS, Kind, Stage
from tests.pairs import once_each

PATIENCE = 120.0  # seconds until a test that hangs fails instead
ARCHITECTURES = ["llama", "qwen2", "gpt2", "gemma3", "t5"]
ASKED: list[Any] = [*(kind.constraint for kind in KINDS), None]


@cache
def double(architecture: str) -> PreTrainedModel:
    """In fp64, where the order of additions decides no argmax."""
    return FAMILIES[architecture](vocabularies.demo()).double()


@cache
def stage() -> Stage:
    return Stage("demo", vocabularies.demo())


@cache
def guide_of(architecture: str) -> hg.Guide:
    return hg.Guide(double(architecture), vocabularies.demo())


def generated(
    model: PreTrainedModel, guide: hg.Guide, ids: Tensor, constraint: Any, way: str, **kwargs: Any
) -> tuple[Tensor, int]:
    """All tokens, and in how many calls the masks had been begun before.

    Args:
        way: "plain" without the companion, "off" with it and without overlap, "on" with both.
    """
    processor = guide.logits_processor(constraint, overlap=way == "on")
    torch.manual_seed(0)
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=[processor],
        stopping_criteria=[] if way == "plain" else [processor.companion],
        **{"max_new_tokens": 30, **kwargs},
    )
    return output, processor.stats.foreseen


@pytest.mark.parametrize(("architecture", "rows"), once_each(ARCHITECTURES, [1, 3, 8]))
def test_overlap_on_is_overlap_off(architecture: str, rows: int) -> None:
    model, guide = double(architecture), guide_of(architecture)
    for first in range(0, len(ASKED), rows):
        asked = [ASKED[(first + i) % len(ASKED)] for i in range(rows)]
        ids = models.prompts(stage().text_ids, rows, 5, seed=first)
        expected, none = generated(model, guide, ids, asked, "off", **GREEDY)
        output, foreseen = generated(model, guide, ids, asked, "on", **GREEDY)
        assert torch.equal(output, expected)
        length = output.shape[1] - (1 if model.config.is_encoder_decoder else ids.shape[1])
        assert (none, foreseen) == (0, length - 1), "every call but the first was foreseen"


def with_examples(kind: Kind, seed: int) -> Tensor:
    """Something to look up, and something else; (1, length)."""
    return torch.cat([stage().write(kind.example), stage().prompts(1, seed)[0], stage().write(kind.example)])[None]


MODES: dict[str, Callable[[], dict[str, Any]]] = {
    "greedy": lambda: GREEDY,
    "sampling": lambda: HOT,
    "return sequences": lambda: {"num_return_sequences": 4, **HOT},
    "beams": lambda: {"num_beams": 4, "num_return_sequences": 4, **ENDING_BEAMS, **GREEDY},
    "beam sampling": lambda: {"num_beams": 3, "num_return_sequences": 3, **ENDING_BEAMS, **HOT},
    "assisted": lambda: {"assistant_model": stage().draft, **GREEDY},
    "assisted sampling": lambda: {"assistant_model": stage().draft, **HOT},
    "prompt lookup": lambda: {"prompt_lookup_num_tokens": 4, **GREEDY},
    "static cache": lambda: {"cache_implementation": "static", **GREEDY},
}


@pytest.mark.parametrize(("mode", "kind"), once_each(MODES, [KINDS[0], KINDS[2], KINDS[5]]))
def test_the_companion_changes_no_token(mode: str, kind: Kind) -> None:
    used = 0
    for seed in range(2):
        ids = with_examples(kind, seed)
        plain, on = (
            generated(stage().double, stage().guide, ids, kind.constraint, way, **MODES[mode]())
            for way in ("plain", "on")
        )
        assert torch.equal(plain[0], on[0])
        used += on[1]
    if mode in ("greedy", "sampling", "return sequences", "static cache"):
        assert used > 0
    elif "beam" in mode:
        assert used == 0, "beams are shown with as many rows again, because some of them may end"
    # With drafts it depends on how many of them are taken.


def test_beams_of_several_prompts() -> None:
    asked = [kind.constraint for kind in KINDS[:3]]
    ids = stage().prompts(3, seed=0)
    outputs = [
        generated(stage().double, stage().guide, ids, asked, way, **MODES["beam sampling"]())[0]
        for way in ("plain", "on")
    ]
    assert torch.equal(*outputs)


def test_one_processor_with_its_companion_over_many_calls() -> None:
    """What was foreseen behind the last token of a call is in nobody's way, whatever comes next."""
    kind = KINDS[2]
    processor = stage().guide.logits_processor(kind.constraint)
    for rows, kwargs in [(3, GREEDY), (1, MODES["assisted"]()), (3, HOT), (2, MODES["beams"]()), (3, GREEDY)]:
        ids = stage().prompts(rows, seed=rows)
        torch.manual_seed(0)
        output = stage().double.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=30,
            logits_processor=[processor],
            stopping_criteria=[processor.companion],
            **kwargs,
        )
        assert torch.equal(output, generated(stage().double, stage().guide, ids, kind.constraint, "plain", **kwargs)[0])


def test_a_call_may_be_cut_and_begun_anew() -> None:
    kind = KINDS[2]
    processor = stage().guide.logits_processor(kind.constraint)
    ids = stage().prompts(2, seed=0)
    expected, _ = generated(stage().double, stage().guide, ids, kind.constraint, "plain", **GREEDY)
    for length in (1, 2, 3, 30):
        output = stage().double.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=length,
            logits_processor=[processor],
            stopping_criteria=[processor.companion],
            **GREEDY,
        )
        assert torch.equal(output, expected[:, : output.shape[1]])


def test_two_generations_on_two_threads() -> None:
    """Two processors, one worker; they begin each step together."""
    kinds = KINDS[0], KINDS[2]
    ids = stage().prompts(3, seed=5)
    expected = [generated(stage().double, stage().guide, ids, kind.constraint, "plain", **GREEDY)[0] for kind in kinds]
    together = threading.Barrier(2)

    class Meet(StoppingCriteria):  # type: ignore[misc]
        """Waits for the other thread, for as many steps as both are sure to take."""

        def __init__(self) -> None:
            self.left = 4

        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            if self.left:
                self.left -= 1
                together.wait(PATIENCE)
            return torch.zeros(len(input_ids), dtype=torch.bool)

    def run(kind: Kind) -> tuple[Tensor, int]:
        processor = stage().guide.logits_processor(kind.constraint, overlap=True)
        output = stage().double.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=30,
            logits_processor=[processor],
            stopping_criteria=[Meet(), processor.companion],
            **GREEDY,
        )
        return output, processor.stats.foreseen

    with ThreadPoolExecutor(2) as pool:
        for (output, foreseen), wanted in zip(pool.map(run, kinds), expected, strict=True):
            assert torch.equal(output, wanted) and foreseen == wanted.shape[1] - ids.shape[1] - 1


class Never(StoppingCriteria):  # type: ignore[misc]
    """A criterion of the caller's own."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self.calls += 1
        return torch.zeros(len(input_ids), dtype=torch.bool)


def test_hg_generate_brings_the_companion_to_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_GUIDED_OVERLAP", "1")
    theirs = Never()
    asked = {
        "guide": stage().guide,
        "jump_forward": False,
        "do_sample": False,
        "max_new_tokens": 30,
        "stopping_criteria": [theirs],
    }
    (result,) = hg.generate(stage().model, stage().tokenizer, "ab", KINDS[0].constraint, **asked)
    assert result.stats is not None and result.stats.foreseen == result.stats.calls - 1 > 0
    assert theirs.calls == result.stats.calls


def test_the_pipeline_brings_the_companion(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_GUIDED_OVERLAP", "1")
    hg.register()
    pipe = pipeline("guided-generation", model=stage().model, tokenizer=stage().tokenizer)
    calls: list[GuidedCall] = []

    def remembered(*args: Any, **kwargs: Any) -> GuidedCall:
        calls.append(GuidedCall(*args, **kwargs))
        return calls[-1]

    monkeypatch.setattr(pipeline_module, "GuidedCall", remembered)
    theirs = Never()
    pipe("ab", response_format=KINDS[0].constraint, do_sample=False, max_new_tokens=30, stopping_criteria=[theirs])
    (call,) = calls
    assert call.stats.foreseen == call.stats.calls - 1 > 0
    assert theirs.calls == call.stats.calls


@pytest.mark.parametrize(("asked", "used"), [("0", False), ("1", True), ("", False)])
def test_the_environment_turns_it_on_and_off(asked: str, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU the default is off."""
    monkeypatch.setenv("HF_GUIDED_OVERLAP", asked)
    (result,) = hg.generate(
        stage().model, stage().tokenizer, "ab", KINDS[2].constraint, guide=stage().guide, jump_forward=False
    )
    assert result.stats is not None and (result.stats.foreseen > 0) is used
