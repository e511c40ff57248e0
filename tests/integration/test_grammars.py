"""Grammars while a model writes: finished texts by json and re, and the same tokens in every way to generate."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest

import hf_guided as hg
from tests import vocabularies
from tests.effort import repeats
from tests.integration import models
from tests.unit.test_gbnf import JSON, SAMPLES, by_json

HOT = {"do_sample": True, "temperature": 1.6, "max_new_tokens": 200}
WAYS: list[dict[str, Any]] = [{}, {"jump_forward": False}, {"draft": "grammar"}, {"draft": "prompt_lookup"}]


@cache
def loaded() -> tuple[Any, Any, hg.Guide]:
    tokenizer = vocabularies.tiny_byte_level()
    model = models.llama(tokenizer)
    return model, tokenizer, hg.Guide(model, tokenizer)


@pytest.mark.parametrize("name", ["json", "chess", "c"])
def test_finished_texts_of_gbnf(name: str) -> None:
    model, tokenizer, guide = loaded()
    text, oracle, _ = SAMPLES[name]
    results = hg.generate(model, tokenizer, ["x"] * repeats(6, 12), hg.Grammar(text), guide=guide, **HOT)
    finished = [result.text for result in results if result.finish_reason == "stop"]
    assert finished and all(map(oracle, finished))
    assert {result.finish_reason for result in results} <= {"stop", "length"}


def test_a_budget_closes_json_of_gbnf() -> None:
    model, tokenizer, guide = loaded()
    results = hg.generate(model, tokenizer, ["x"] * 8, hg.Grammar(JSON), guide=guide, **{**HOT, "max_new_tokens": 25})
    assert all(result.finish_reason == "stop" and by_json(result.text) for result in results)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ('start: "ab" <|im_end|> /[a-z]{3}/ "--end"', r"ab<\|im_end\|>[a-z]{3}--end"),
        ('start: /[ab]{1,4}/ (<|im_end|> | <tool>) "!"', r"[ab]{1,4}<(\|im_end\||tool)>!"),
        ('start: x " end"\nx[max_tokens=3]: /[a-z]+/', "[a-z]+ end"),
        ('start: "<" value ">"\nvalue: %json {"enum": [1, "a", null]}', '<(1|"a"|null)>'),
    ],
)
def test_every_way_writes_the_same_tokens(text: str, pattern: str) -> None:
    model, tokenizer, guide = loaded()
    grammar = hg.Grammar(text, "lark")
    results = []
    for way in WAYS:
        [result] = hg.generate(
            model, tokenizer, "the end", grammar, guide=guide, do_sample=False, max_new_tokens=40, **way
        )
        results.append(result.token_ids)
        assert result.finish_reason == "stop" and re.fullmatch(pattern, result.text), result
    inputs = tokenizer("the end", return_tensors="pt")
    written = model.generate(
        **inputs, logits_processor=[guide.logits_processor(grammar)], do_sample=False, max_new_tokens=40
    )
    results.append(written[0, inputs.input_ids.shape[1] :].tolist())
    if "max_tokens" in text or "im_end" in text:  # elsewhere forced text is in the tokenizer's own tokenization
        assert all(tokens == results[0] for tokens in results[1:])


def test_counted_tokens_are_counted() -> None:
    model, tokenizer, guide = loaded()
    grammar = hg.Grammar('start: x "-" <|im_end|>\nx[max_tokens=2]: /[a-z]+/')
    for result in hg.generate(model, tokenizer, ["x"] * 12, grammar, guide=guide, **HOT):
        *counted, dash, mark, _ = result.token_ids
        assert len(counted) <= 2 and tokenizer.decode([dash]) == "-" and tokenizer.decode([mark]) == "<|im_end|>"


def test_json_in_lark_is_written_in_one_spelling() -> None:
    model, tokenizer, guide = loaded()
    schema = {"type": "object", "properties": {"a": {"type": "number", "multipleOf": 0.5}}, "required": ["a"]}
    grammar = hg.Grammar(f"start: %json {json.dumps(schema)}")
    for result in hg.generate(model, tokenizer, ["x"] * 12, grammar, guide=guide, **{**HOT, "max_new_tokens": 60}):
        assert result.finish_reason == "stop" and float(json.loads(result.text)["a"] * 2).is_integer()
