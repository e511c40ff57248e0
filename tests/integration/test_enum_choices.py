"""A choice of the members of an Enum: every face gives the member back, as the Enum itself as a constraint does."""

from __future__ import annotations

import asyncio
import enum
import json
from functools import cache
from typing import Any, Literal

import pytest
import torch
import transformers

import hf_guided as hg
from hf_guided.generation.row_answers import RowSettings
from hf_guided.integrations.answer_columns import AnswerColumns
from tests import vocabularies
from tests.integration import models


class Color(enum.Enum):
    RED = "red"
    DARK = "dark red"
    BLUE = "blue"


class Word(str, enum.Enum):
    YES = "yes"
    NO = "no"


ASKED: dict[str, tuple[Any, list[Any]]] = {
    "an Enum": (hg.Choice(Color), list(Color)),
    "an Enum of str": (hg.Choice(Word), list(Word)),
    "members": (hg.Choice([Color.RED, Color.BLUE]), [Color.RED, Color.BLUE]),
    "a Literal of members": (hg.Choice(Literal[Color.DARK, Color.BLUE]), [Color.DARK, Color.BLUE]),
    "a Literal": (hg.Choice(Literal["red", "blue"]), ["red", "blue"]),
    "texts": (hg.Choice(["red", "blue"]), ["red", "blue"]),
}
PROMPTS = ["a", "bb bb"]
SHORT: dict[str, Any] = {"do_sample": False, "max_new_tokens": 20}


@cache
def stage() -> tuple[Any, Any]:
    tokenizer = vocabularies.demo()
    return models.llama(tokenizer), tokenizer


def check(value: Any, text: str, values: list[Any]) -> None:
    """The very member, or a plain text."""
    assert any(value is one for one in values) if isinstance(values[0], enum.Enum) else value in values
    assert type(value) is type(values[0])
    assert text == (value.value if isinstance(value, enum.Enum) else value)


@pytest.mark.parametrize("name", ASKED)
def test_results_streams_and_short_calls(name: str) -> None:
    asked, values = ASKED[name]
    model, tokenizer = stage()
    for kwargs in ({}, {"jump_forward": False}, {"continuous_batching": True}, {"num_beams": 2}):
        results = hg.generate(model, tokenizer, PROMPTS, asked, **SHORT, **kwargs)
        for result in results:
            check(result.value, result.text, values)
    results = hg.generate(model, tokenizer, PROMPTS, asked, **SHORT)
    parts = list(hg.generate(model, tokenizer, PROMPTS, asked, **SHORT, stream=True))
    last = {part.index: part for part in parts if part.result is not None}
    assert [last[i].result for i in range(len(PROMPTS))] == results
    assert all(part.value is part.result.value for part in last.values())
    short = hg.Model(model, tokenizer, **SHORT)
    assert short(PROMPTS[0], asked) is results[0].value or short(PROMPTS[0], asked) == results[0].value
    assert short.batch(PROMPTS, asked) == [result.value for result in results]
    assert asyncio.run(short.acall(PROMPTS[0], asked)) == results[0].value
    assert hg.generate(model, tokenizer, PROMPTS, [asked, None], **SHORT)[0].value == results[0].value


@pytest.mark.parametrize("name", ASKED)
def test_scores_name_the_same_values(name: str) -> None:
    asked, values = ASKED[name]
    [scores] = hg.score(*stage(), PROMPTS[0], asked)
    assert list(scores.options) == values
    torch.manual_seed(0)
    sampling: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 20}
    assert all(result.value in scores.options for result in hg.generate(*stage(), PROMPTS, asked, **sampling))


def test_the_pipeline_and_columns() -> None:
    hg.register()
    model, tokenizer = stage()
    pipe = transformers.pipeline("guided-generation", model=model, tokenizer=tokenizer)
    [record] = pipe(PROMPTS[0], response_format=hg.Choice(Color), **SHORT)
    check(record["value"], record["generated_text"], list(Color))
    answering = AnswerColumns(model, tokenizer, hg.Choice(Color), RowSettings(temperature=0), prompt_column="in")
    columns = answering({"in": PROMPTS})
    assert [json.loads(value) for value in columns["value"]] == columns["text"]
    assert all(Color(text) for text in columns["text"])


def test_an_answer_beside_tool_calls() -> None:
    calls = hg.ToolCalls([], "qwen_3", choice="none", answer=hg.Choice(Color))
    assert calls.parse("dark red").value is Color.DARK


def test_the_first_of_two_options_with_one_text() -> None:
    assert hg.Choice([Color.RED, "red", "blue"]).parse("red") is Color.RED
    assert hg.Choice(["red", Color.RED, "blue"]).parse("red") == "red"
    with pytest.raises(ValueError, match="none of the options"):
        hg.Choice(Color).parse("green")


def test_a_plain_list_of_members_is_refused_with_the_call_that_takes_it() -> None:
    with pytest.raises(hg.InvalidConstraint, match=r"use hg\.Choice\(\[Color\.RED"):
        hg.generate(*stage(), PROMPTS, [Color.RED, Color.BLUE], **SHORT)
