"""Whatever generate() does, an output closes before its tokens are used up; judged by json, jsonschema and re."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch
from transformers import LogitsProcessor

import hf_guided as hg
from tests import vocabularies
from tests.integration import models
from tests.pairs import once_each

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"enum": ["a", "longer"]}},
        "n": {"type": "integer"},
    },
    "required": ["name", "n"],
    "additionalProperties": False,
}
DIFFERENT = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True, "minItems": 2},
        "n": {"type": "integer"},
    },
    "required": ["name", "tags"],
    "minProperties": 4,
}
HOT = {"do_sample": True, "temperature": 2.0, "top_k": 0}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": HOT,
    "num_return_sequences": {**HOT, "num_return_sequences": 3},
    "beams": {"do_sample": False, "num_beams": 3},
    "beam_sampling": {**HOT, "num_beams": 2},
    "prompt_lookup": {"do_sample": False, "prompt_lookup_num_tokens": 3},
}


class NeverEnds(LogitsProcessor):
    """Takes from every token what it has with an end, or a quote, in it: a model that only wants to go on."""

    def __init__(self, vocabulary: Any):
        ends = [i for i, text in enumerate(vocabulary.token_bytes) if text is not None and set(text) & set(b'"}]')]
        self._ends = torch.tensor([*ends, *vocabulary.stop_token_ids])

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self._ends] -= 100.0
        return scores


@cache
def stage() -> tuple[Any, Any, hg.Guide]:
    tokenizer = vocabularies.demo()
    model = models.llama(tokenizer)
    return model, tokenizer, hg.Guide(model, tokenizer)


def minimum(constraint: Any) -> int:
    found = stage()[2].compile(constraint).matcher().min_tokens_to_finish()
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("mode", "share", "wish"),
    once_each(
        MODES,
        [1.0, 1.3, 2.0, 4.0],
        ["hot", "never_ends"],
        keep=["sampling-1.0-never_ends"],
    ),
)
def test_every_output_closes_in_time(mode: str, share: float, wish: str) -> None:
    eager = wish == "never_ends"
    model, tokenizer, guide = stage()
    torch.manual_seed(int(10 * share) + eager)
    kwargs = dict(MODES[mode])
    if eager:
        kwargs["logits_processor"] = [NeverEnds(guide.vocabulary)]
    any_order = hg.JsonSchema(DIFFERENT, key_order="any", extra="allow")
    asked = [hg.JsonSchema(SCHEMA), hg.Regex(r"([a-z]+ ){2}[0-9]{2,}"), ["yes", "not in this life"], any_order]
    budget = int(share * max(map(minimum, asked)))
    results = hg.generate(
        model, tokenizer, ["a", "bb bb", "c", "d"], asked, guide=guide, max_new_tokens=budget, progress=False, **kwargs
    )
    per_prompt = kwargs.get("num_return_sequences", 1)
    assert len(results) == 4 * per_prompt
    for i, result in enumerate(results):
        assert result.finish_reason == "stop", result
        assert len(result.token_ids) <= budget
        if i < per_prompt:
            jsonschema.validate(json.loads(result.text), SCHEMA)
        elif i < 2 * per_prompt:
            assert re.fullmatch(r"([a-z]+ ){2}[0-9]{2,}", result.text)
        elif i < 3 * per_prompt:
            assert result.text in asked[2]
        else:
            jsonschema.validate(json.loads(result.text), DIFFERENT)


def test_a_budget_on_the_processor_and_a_prefix() -> None:
    model, tokenizer, guide = stage()
    inputs = tokenizer("x", return_tensors="pt")
    prefix = '{"name": "An'
    torch.manual_seed(0)
    for budget in range(8, 30, 3):
        processor = guide.logits_processor(hg.JsonSchema(SCHEMA), max_new_tokens=budget, prefix=prefix)
        output = model.generate(
            **inputs, **HOT, max_new_tokens=budget, logits_processor=[NeverEnds(guide.vocabulary), processor]
        )
        new = output[0, inputs["input_ids"].shape[1] :]
        text = prefix + tokenizer.decode(new, skip_special_tokens=True)
        jsonschema.validate(json.loads(text), SCHEMA)


def test_an_encoder_decoder_closes_in_time() -> None:
    tokenizer = vocabularies.demo()
    model = models.t5(tokenizer)
    torch.manual_seed(0)
    results = hg.generate(
        model, tokenizer, ["a", "b"], hg.JsonSchema(SCHEMA), max_new_tokens=minimum(hg.JsonSchema(SCHEMA)) + 3, **HOT
    )
    for result in results:
        jsonschema.validate(json.loads(result.text), SCHEMA)


def test_too_few_tokens_are_an_error_that_says_how_many_are_enough() -> None:
    model, tokenizer, guide = stage()
    least = minimum(hg.JsonSchema(SCHEMA))
    with pytest.raises(
        hg.BudgetTooSmall, match=rf"max_new_tokens={least - 1} is too small.* to at least {least}"
    ) as told:
        hg.generate(model, tokenizer, "a", hg.JsonSchema(SCHEMA), guide=guide, max_new_tokens=least - 1)
    assert told.value.minimum == least
    processor = guide.logits_processor(hg.JsonSchema(SCHEMA), max_new_tokens=3)
    with pytest.raises(hg.BudgetTooSmall):
        model.generate(**tokenizer("x", return_tensors="pt"), max_new_tokens=3, logits_processor=[processor])


@pytest.mark.parametrize("budget", ["20", 2.5, True, 0])
def test_a_budget_that_is_no_number(budget: Any) -> None:
    with pytest.raises(ValueError, match="max_new_tokens: expected an int of 1 or more, or None, got"):
        stage()[2].logits_processor(["yes"], max_new_tokens=budget)
    model, tokenizer, guide = stage()
    with pytest.raises(ValueError, match="max_new_tokens: expected an int of 1 or more, or None, got"):
        hg.generate(model, tokenizer, "a", ["yes"], guide=guide, max_new_tokens=budget)


def test_a_maximal_length_is_a_budget_too() -> None:
    model, tokenizer, guide = stage()
    prompt = "a b c" * 20  # if it were not counted, the answer would be cut
    length = len(tokenizer(prompt)["input_ids"]) + minimum(hg.JsonSchema(SCHEMA)) + 2
    torch.manual_seed(0)
    [result] = hg.generate(model, tokenizer, prompt, hg.JsonSchema(SCHEMA), guide=guide, max_length=length, **HOT)
    assert result.finish_reason == "stop"


def test_free_rows_have_no_budget() -> None:
    model, tokenizer, guide = stage()
    torch.manual_seed(0)
    free, guided = hg.generate(
        model, tokenizer, ["a", "a"], [None, hg.Regex("[a-z]+")], guide=guide, max_new_tokens=7, **HOT
    )
    assert guided.finish_reason == "stop"
    assert len(free.token_ids) <= 7
