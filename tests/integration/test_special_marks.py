"""Marks around tool calls that a tokenizer has as special tokens: the model writes them as such, as it was taught."""

from __future__ import annotations

import copy
import re
from typing import Any

import jsonschema
import pytest
import torch
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from tests import vocabularies
from tests.integration import models
from tests.integration.test_tool_calls import CALLS, SCHEMAS, TOOLS
from tests.pairs import once_each
from tests.tool_families import FAMILIES, flat, parsed, template

MARKS = {
    "kimi": [
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ],
    "deepseek_v3_1": [
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<｜tool▁call▁end｜>",
    ],
    "mistral": ["[TOOL_CALLS]"],
    "mistral_v11": ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
    "mistral_v13": ["[TOOL_CALLS]", "[ARGS]"],
    "qwen_3": ["<tool_call>", "</tool_call>"],
    "glm_4_7": ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
}
OTHER = "<|im_start|>"


@pytest.fixture(scope="module", params=MARKS)
def family(request: pytest.FixtureRequest) -> tuple[str, PreTrainedTokenizerBase, hg.Guide, Any]:
    """A family's name, a tokenizer with its marks as special tokens, and a model."""
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.add_special_tokens({"extra_special_tokens": [*MARKS[request.param], OTHER, "<think>", "</think>"]})
    model = models.llama(tokenizer, seed=5)
    model.config.max_position_embeddings = 4096
    return request.param, tokenizer, hg.Guide(model, tokenizer), model


def special(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    return {name: tokenizer.convert_tokens_to_ids(name) for name in tokenizer.extra_special_tokens}


def test_what_the_tokenizer_makes_of_a_chat_template_is_accepted_and_read_back(family: Any) -> None:
    name, tokenizer, guide, _ = family
    message = hg.ToolAnswer("", tuple(CALLS)).message
    ids = tokenizer.apply_chat_template([message], chat_template=template(name), tokenize=True, return_dict=False)
    its_own = special(tokenizer)
    assert {its_own[mark] for mark in MARKS[name]} <= set(ids)
    asked = hg.ToolCalls(TOOLS, name, "required")
    for backend in ("native", "auto"):
        matcher = guide.compile(asked, backend=backend).matcher()
        assert matcher.validate_tokens([*ids, tokenizer.eos_token_id]) == len(ids) + 1
    result = guide.read(asked, [*ids, tokenizer.eos_token_id])
    assert (result.finish_reason, result.value.calls) == ("stop", tuple(CALLS))
    assert matcher.validate_tokens([its_own[OTHER]]) == 0
    # Outside of tags they stay what they were.
    assert guide.compile(hg.Regex("(?s).*")).matcher().validate_tokens([its_own[MARKS[name][0]]]) == 0


@pytest.mark.parametrize(
    ("family", "jump_forward", "thinks"), once_each(MARKS, [True, False], [True, False]), indirect=["family"]
)
def test_hot_models_write_them_as_tokens(family: Any, jump_forward: bool, thinks: bool) -> None:
    name, tokenizer, guide, model = family
    asked = hg.ToolCalls(TOOLS, name, "weather", parallel=False)
    torch.manual_seed(1)
    results = hg.generate(
        model,
        tokenizer,
        ["a", "b c", "d"],
        asked,
        guide=guide,
        show_tools=False,  # as a prompt that names them
        jump_forward=jump_forward,
        do_sample=True,
        temperature=2.0,
        max_new_tokens=500,
        reasoning=hg.Reasoning("<think>", "</think>", max_tokens=6) if thinks else None,
    )
    begin = special(tokenizer)[MARKS[name][0]]
    for result in results:
        assert (result.finish_reason, result.error) == ("stop", None), result.text
        [call] = result.value.calls
        jsonschema.validate(call.arguments, {**SCHEMAS["weather"], "additionalProperties": False})
        written = tokenizer.decode(result.token_ids, skip_special_tokens=False).removesuffix(tokenizer.eos_token)
        assert written.endswith(result.text)  # behind the thinking
        assert [(call.name, flat(call.arguments))] == parsed(name, result.text)
        if jump_forward:  # what is forced is written as the tokenizer writes it
            assert begin in result.token_ids
            marks = re.findall("|".join(map(re.escape, MARKS[name])), result.text)
            assert marks and all(special(tokenizer)[mark] in result.token_ids for mark in marks[:1])


def test_hot_models_write_them_where_the_network_keeps_registers(family: Any) -> None:
    name, tokenizer, guide, model = family
    codes = {"type": "array", "items": {"type": "string", "maxLength": 3}, "uniqueItems": True, "maxItems": 4}
    schema = {"type": "object", "properties": {"codes": {**codes, "minItems": 2}}, "required": ["codes"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    asked = hg.ToolCalls([tool], name, "f", parallel=False)
    assert guide.compile(asked).backend == "native"
    torch.manual_seed(1)
    [result] = hg.generate(
        model,
        tokenizer,
        "a",
        asked,
        guide=guide,
        show_tools=False,
        do_sample=True,
        temperature=2.0,
        max_new_tokens=300,
    )
    assert (result.finish_reason, result.error) == ("stop", None), result.text
    [call] = result.value.calls
    jsonschema.Draft202012Validator(schema).validate(call.arguments)
    assert special(tokenizer)[MARKS[name][0]] in result.token_ids


def test_greedy_jumps_write_what_the_tokenizer_writes_for_the_text(family: Any) -> None:
    """A call without choices is forced: all of it is the tokenizer's own tokens, but for the marks after a choice.

    That is Kimi's number of a call, and Mistral's id of a call.
    """
    name, tokenizer, guide, model = family
    asked = hg.ToolCalls(TOOLS, name, "now", parallel=False)
    [result] = hg.generate(
        model, tokenizer, "a", asked, guide=guide, show_tools=False, do_sample=False, max_new_tokens=200
    )
    assert result.finish_reason == "stop" and [call.name for call in result.value.calls] == ["now"]
    its_own = special(tokenizer)
    behind_a_choice = {"kimi": {"<|tool_call_argument_begin|>"}, "mistral_v11": {"[CALL_ID]", "[ARGS]"}}
    for mark in set(MARKS[name]) - behind_a_choice.get(name, set()):
        count = result.text.count(mark)
        assert sum(token_id == its_own[mark] for token_id in result.token_ids) == count, mark


def test_every_family_of_marks_is_one_of_ours() -> None:
    assert MARKS.keys() <= FAMILIES.keys()
