"""Tool calls of every family: what hot random models write, what chat templates write, and that both are read back.

Two oracles that are not ours: transformers' own parser of responses, told each family's syntax by a pattern, reads what
was generated; and chat templates in each family's syntax, rendered by transformers, write what has to be accepted.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pydantic
import pytest
import torch
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided.constraints.tool_formats import formats
from hf_guided.generation.partial import PartialRow
from tests.integration import models
from tests.pairs import one_in
from tests.tool_families import FAMILIES, STARTS, flat, parsed, template

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1, "maxLength": 6},
        "days": {"type": "integer", "minimum": -3, "maximum": 14},
        "codes": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2, "uniqueItems": False},
        "unit": {"enum": ["c", "f", 5]},
        "note": {"type": ["string", "null"], "maxLength": 4},
    },
    "required": ["city", "unit"],
}
SCHEMAS = {"weather": PARAMETERS, "now": {"type": "object", "properties": {}, "additionalProperties": False}}
TOOLS = [{"type": "function", "function": {"name": name, "parameters": one}} for name, one in SCHEMAS.items()]
CHOICES = ("auto", "required", "weather", "now", "none")
CALLS = [
    hg.ToolCall("weather", {"city": 'Ö "x"', "days": 3, "codes": ["a", "<"], "unit": "c"}),
    hg.ToolCall("now", {}),
    hg.ToolCall("weather", {"city": "5", "unit": 5, "note": None}),
]


def test_every_family_is_tested() -> None:
    assert sorted(FAMILIES) == formats()


@pytest.fixture(scope="module")
def guide(demo: PreTrainedTokenizerBase) -> hg.Guide:
    return hg.Guide(models.llama(demo), demo)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_a_chat_template_writes_is_accepted_and_read_back(guide: hg.Guide, name: str) -> None:
    tokenizer = guide.tokenizer
    for calls in (CALLS, CALLS[1:2]):
        answer = hg.ToolAnswer("", tuple(calls))
        text = tokenizer.apply_chat_template([answer.message], chat_template=template(name), tokenize=False)
        for choice in ("auto", "required"):
            asked = hg.ToolCalls(TOOLS, name, choice)
            matcher = guide.compile(asked).matcher()
            token_ids = guide.vocabulary.encode_bytes(text.encode())
            assert matcher.validate_tokens([*token_ids, tokenizer.eos_token_id]) == len(token_ids) + 1, text
            assert asked.parse(text).calls == answer.calls
        matcher = guide.compile(hg.ToolCalls(TOOLS, name, "none")).matcher()
        assert matcher.validate_tokens(token_ids) < len(token_ids)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_format_is_read_from_the_chat_template(guide: hg.Guide, name: str) -> None:
    class Tokenizer:
        def get_chat_template(self, tools: Any) -> str:
            return template(name)

    found = hg.ToolCalls(TOOLS).for_tokenizer(Tokenizer())
    alike = {"qwen_3_5": "qwen_3_coder", "json": "qwen_3"}
    assert found.format == alike.get(name, name)


def test_a_template_of_another_kind_is_refused(demo: PreTrainedTokenizerBase) -> None:
    with pytest.raises(hg.InvalidConstraint, match="say which format"):
        hg.Guide(len(demo), demo).compile(hg.ToolCalls(TOOLS))


@pytest.mark.parametrize("name", one_in(3, FAMILIES))
def test_hot_models_write_valid_calls(guide: hg.Guide, name: str) -> None:
    model, tokenizer = models.llama(guide.tokenizer, seed=len(name)), guide.tokenizer
    model.config.max_position_embeddings = 4096
    family = FAMILIES[name]
    # In a section of calls, the text may stop only behind its end, and a hot model goes on calling.
    asked = [hg.ToolCalls(TOOLS, name, choice, parallel=not family.begin) for choice in CHOICES]
    # A text that may be anything does not come to a call by chance.
    start = family.before + (family.begin or STARTS.get(name, "<tool_call>"))
    prefixes = [start, family.before or None, family.before or None, family.before or None, family.before or None]
    prefixes[-1] = "<|channel|>final<|message|>hi<|return|>" if name == "harmony" else prefixes[-1]
    ids = models.prompts(range(10, 200), len(asked), 5, seed=3)
    torch.manual_seed(7)
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        logits_processor=[guide.logits_processor(asked, prefix=prefixes)],
        sequence_bias={(tokenizer.eos_token_id,): 30.0},
        do_sample=True,
        temperature=3.0,
        top_k=0,
        max_new_tokens=700,
    )
    for constraint, prefix, row in zip(asked, prefixes, out, strict=True):
        result = guide.read(constraint, row[ids.shape[1] :].tolist(), prefix=prefix)
        assert (result.finish_reason, result.error) == ("stop", None), result.text
        called = [call.name for call in result.value.calls]
        if constraint.choice == "none":
            assert not called
            continue
        assert called
        assert constraint.choice not in SCHEMAS or called == [constraint.choice]
        for call in result.value.calls:
            jsonschema.validate(call.arguments, {**SCHEMAS[call.name], "additionalProperties": False})
        ours = [(call.name, flat(call.arguments)) for call in result.value.calls]
        assert ours == parsed(name, result.text)


@pytest.mark.parametrize("parallel", [True, False])
@pytest.mark.parametrize("name", FAMILIES)
def test_one_call_or_several(guide: hg.Guide, name: str, parallel: bool) -> None:
    message = hg.ToolAnswer("", (CALLS[1], CALLS[1])).message
    text = guide.tokenizer.apply_chat_template([message], chat_template=template(name), tokenize=False)
    constraint = hg.ToolCalls(TOOLS, name, "required", parallel=parallel)
    token_ids = guide.vocabulary.encode_bytes(text.encode())
    assert (guide.compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)) is parallel
    if parallel:
        assert [call.name for call in constraint.parse(text).calls] == [CALLS[1].name] * 2
    else:
        with pytest.raises(ValueError, match="not an answer with tool calls"):
            constraint.parse(text)


class Report(pydantic.BaseModel):
    rain: bool
    days: int = pydantic.Field(ge=1, le=9)


@pytest.mark.parametrize("name", ["llama", "qwen_3", "harmony", "kimi_k3"])
def test_a_stream_of_an_answer_in_a_format(guide: hg.Guide, name: str) -> None:
    tools = hg.ToolCalls(TOOLS, name, answer=Report)
    before, after = {
        "harmony": ("<|channel|>final<|message|>", "<|return|>"),
        "kimi_k3": ("", "<|close|>response<|sep|><|close|>message<|sep|>"),
    }.get(name, ("", ""))
    text = f'{before}{{"rain": true, "days": 3}}{after}'
    for size in (1, 3, 100):
        row = PartialRow(0, guide.reader(tools))
        token_ids = [*guide.vocabulary.encode_bytes(text.encode()), guide.tokenizer.eos_token_id]
        pieces = [token_ids[start : start + size] for start in range(0, len(token_ids), size)]
        partials = [partial for piece in pieces if (partial := row.add_tokens(piece)) is not None]
        closed = [pointer for partial in partials for pointer in partial.closed]
        assert closed == ["/value/rain", "/value/days", "/value", ""]
        result = partials[-1].result
        assert result is not None and result.value == partials[-1].value
        assert result.value == hg.ToolAnswer('{"rain": true, "days": 3}', (), Report(rain=True, days=3))
        for partial in partials:
            value = partial.value.value if partial.value is not None else None
            assert value is None or value.rain in (None, True) and value.days in (None, 3)


@pytest.mark.parametrize("name", ["llama", "qwen_3", "harmony"])
def test_an_answer_in_a_format_or_calls_after_thinking(guide: hg.Guide, name: str) -> None:
    model, tokenizer = models.llama(guide.tokenizer, seed=3), guide.tokenizer
    tools = hg.ToolCalls(TOOLS, name, parallel=False, answer=Report)
    kinds = set()
    for seed in range(6):
        torch.manual_seed(seed)
        results = hg.generate(
            model,
            tokenizer,
            ["Go: "] * 4,
            tools,
            guide=guide,
            reasoning=hg.Reasoning(max_tokens=6),
            max_new_tokens=200,
            do_sample=True,
            temperature=3.0,
            top_k=0,
            show_tools=False,
        )
        for result in results:
            assert (result.finish_reason, result.error) == ("stop", None) and result.thinking is not None
            answer = result.value
            kinds.add(bool(answer.calls))
            assert len(answer.calls) < 2 and bool(answer.calls) == (answer.value is None)
            assert answer.value is None or answer.value == Report.model_validate_json(answer.text)
            for call in answer.calls:
                jsonschema.validate(call.arguments, {**SCHEMAS[call.name], "additionalProperties": False})
    assert False in kinds
