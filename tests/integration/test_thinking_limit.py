"""Thinking that would fill the token limit: how much of it thinking takes, and who says that it was ended.

The oracle reads the bytes of the tokens: what comes before the answer is counted there, and the answer is read by
``json`` and ``jsonschema``. The models are random and hot, or write a script.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any

import jsonschema
import openai
import pytest
import torch
import transformers
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.guide import calls_of
from hf_guided.serve import models
from tests.integration.test_reasoning import HOT, MODES, PROMPTS, loaded
from tests.integration.test_serve_answers import THINKING, THINKS
from tests.pairs import once_each
from tests.serving import client, serving

# A quarter of the limit is enough for every answer.
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["kind", "n"],
    "additionalProperties": False,
}
ASKED = hg.JsonSchema(SCHEMA, whitespace="compact")
LIMIT = 100
SHARE = 75


class Writes(LogitsProcessor):
    """A model that wants to write these tokens after its prompt, and then any."""

    def __init__(self, prompt: int, token_ids: Sequence[int]):
        self.prompt, self.token_ids = prompt, list(token_ids)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        written = input_ids.shape[1] - self.prompt
        if written < len(self.token_ids):
            scores = scores.clone()
            scores[:, self.token_ids[written]] += 100.0
        return scores


class Never(LogitsProcessor):
    """A model that does not write such a character where it need not, and so never ends its thinking."""

    def __init__(self, guide: hg.Guide, character: bytes = b"/"):
        self.token_ids = [i for i, data in enumerate(guide.vocabulary.token_bytes) if data and character in data]
        self.amount = 1000.0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self.token_ids] -= self.amount
        return scores


def before_answer(guide: hg.Guide, token_ids: Sequence[int]) -> int:
    """How many tokens end with the end marker, or before it."""
    data = b""
    for number, token_id in enumerate(token_ids, 1):
        data += guide.vocabulary.decode_bytes([token_id])
        if b"</think>" in data:
            return number
    return len(token_ids)


def check(guide: hg.Guide, result: hg.GuidedResult, prompt: str) -> None:
    """A result whose model would have thought for ever."""
    assert result.finish_reason == "stop" and len(result.token_ids) <= LIMIT
    jsonschema.validate(json.loads(result.text), SCHEMA)
    assert result.thinking_cut == (prompt != "all")
    written = guide.vocabulary.decode_bytes(result.token_ids).decode(errors="replace")
    if prompt == "all":
        assert result.thinking is None and written == result.text
        return
    used = before_answer(guide, result.token_ids)
    assert SHARE - 12 <= used <= SHARE
    opening = "<think>" if prompt == "nothing" else ""
    assert written.replace("\n", "") == f"{opening}{result.thinking}</think>{result.text}".replace("\n", "")


def generated(prompts: Any, name: str = "demo", **kwargs: Any) -> list[Any]:
    model, tokenizer, guide = loaded(name)
    given = {"reasoning": hg.Reasoning(), "max_new_tokens": LIMIT, "guide": guide, "do_sample": False} | kwargs
    given["logits_processor"] = [*given.get("logits_processor", []), Never(guide)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hg.generate(model, tokenizer, prompts, given.pop("asked", ASKED), **given)


@pytest.mark.parametrize(
    ("name", "mode"), once_each(["byte-level", "demo"], [*MODES, "several", "several, plain"], keep=["demo-beams"])
)
def test_thinking_leaves_a_quarter_for_the_answer(name: str, mode: str) -> None:
    several = {"several": {"num_return_sequences": 3}, "several, plain": {"num_return_sequences": 3}}
    kwargs: dict[str, Any] = MODES.get(mode, HOT | several.get(mode, {}))
    if mode == "several, plain":
        kwargs["jump_forward"] = False
    guide = loaded(name)[2]
    torch.manual_seed(1)
    results = generated(list(PROMPTS.values()), name, **kwargs)
    copies = kwargs.get("num_return_sequences", 1)
    for i, result in enumerate(results):
        check(guide, result, list(PROMPTS)[i // copies])
        if "num_beams" in kwargs:
            assert result.shortened is None and result.limit_log_mass is None
        else:  # the answer had room: what thinking lost does not shorten it
            assert result.shortened is False and (result.limit_log_mass < 0.0) == result.thinking_cut


def test_an_assistant_drafts_thinking() -> None:
    guide = loaded("demo")[2]
    [plain] = generated(PROMPTS["nothing"], jump_forward=False)
    [assisted] = generated(PROMPTS["nothing"], assistant_model=loaded("demo", 1)[0])
    assert assisted.token_ids == plain.token_ids
    check(guide, assisted, "nothing")
    [drafted] = generated(PROMPTS["nothing"], draft=loaded("demo", 1)[0])
    check(guide, drafted, "nothing")


def thought(guide: hg.Guide, tokens: int, *, ends: bool) -> list[int]:
    """The tokens of a thinking with so many tokens between its markers."""
    gate = calls_of(guide).gate(hg.Reasoning())
    assert gate is not None
    [letter] = [i for i, data in enumerate(guide.vocabulary.token_bytes) if data == b"a"][:1]
    end = guide.vocabulary.encode_bytes(b"</think>") if ends else []
    return [*gate.start_ids, *[letter] * tokens, *end]


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("most", [None, 12, 40])
@pytest.mark.parametrize("tokens", [0, 3, 11, 30, 90])
def test_a_model_that_ends_its_thinking_is_not_cut(jump_forward: bool, most: int | None, tokens: int) -> None:
    model, tokenizer, guide = loaded("demo")
    script = thought(guide, tokens, ends=True)
    prompt = tokenizer(PROMPTS["nothing"])["input_ids"]
    [result] = hg.generate(
        model,
        tokenizer,
        PROMPTS["nothing"],
        ASKED,
        guide=guide,
        reasoning=hg.Reasoning(max_tokens=most),
        max_new_tokens=LIMIT,
        do_sample=False,
        logits_processor=[Writes(len(prompt), script)],
        jump_forward=jump_forward,
    )
    room = 60 if most is None else most
    assert result.thinking_cut == (tokens > room)
    if tokens <= room:
        assert result.token_ids[: len(script)] == script and result.thinking == "a" * tokens
    elif most is not None:
        assert result.thinking == "a" * most
    jsonschema.validate(json.loads(result.text), SCHEMA)


def test_more_than_three_quarters_may_be_asked_for() -> None:
    guide = loaded("demo")[2]
    for most in (LIMIT, 85):
        [result] = generated(PROMPTS["nothing"], reasoning=hg.Reasoning(max_tokens=most), asked=hg.Choice(["yes"]))
        assert result.value == "yes" and result.thinking_cut
        assert before_answer(guide, result.token_ids) > 85 and len(result.token_ids) <= LIMIT


def test_an_answer_that_needs_more_than_a_quarter_has_it() -> None:
    guide = loaded("demo")[2]
    long = hg.Choice(["x" * 60])
    needed = guide.compile(long).matcher().min_tokens_to_finish()
    assert needed is not None and needed > 30
    [result] = generated(PROMPTS["nothing"], asked=long)
    assert result.value == "x" * 60 and result.thinking_cut
    assert before_answer(guide, result.token_ids) <= LIMIT - needed


@pytest.mark.parametrize("backend", ["native", "llguidance", "xgrammar", "outlines"])
def test_engines_that_keep_no_limit_leave_a_quarter(backend: str) -> None:
    guide = loaded("demo")[2]
    [result] = generated(PROMPTS["nothing"], asked=hg.Regex("[ab]{5}"), backend=backend)
    assert result.finish_reason == "stop" and result.thinking_cut
    assert SHARE - 12 <= before_answer(guide, result.token_ids) <= SHARE


def test_an_answer_is_shortened_by_its_own_steps_only() -> None:
    """The oracle: the same answer after the same tokens as its prompt, without thinking."""
    model, tokenizer, guide = loaded("demo")
    asked = hg.Regex("[a-z]{1,200}!")
    [result] = generated(PROMPTS["nothing"], asked=asked)
    used = before_answer(guide, result.token_ids)
    inputs = torch.tensor([[*tokenizer(PROMPTS["nothing"])["input_ids"], *result.token_ids[:used]]])
    processor = guide.logits_processor(asked, max_new_tokens=LIMIT - used)
    output = model.generate(
        input_ids=inputs,
        attention_mask=torch.ones_like(inputs),
        do_sample=False,
        max_new_tokens=LIMIT - used,
        logits_processor=[Never(guide), processor],
    )
    assert output[0, inputs.shape[1] :].tolist() == result.token_ids[used:]
    steps = processor.limit_steps(0)
    assert result.thinking_cut and result.shortened == any(step.overruled for step in steps.values())
    assert steps and result.limit_log_mass < sum(step.log_mass for step in steps.values()), "thinking was cut, too"


@pytest.mark.parametrize("jump_forward", [True, False])
def test_a_marker_that_other_code_forbids_is_a_dead_end(jump_forward: bool) -> None:
    model, tokenizer, guide = loaded("demo")
    never = Never(guide)
    never.amount = float("inf")
    given: dict[str, Any] = {"guide": guide, "do_sample": False, "max_new_tokens": LIMIT, "jump_forward": jump_forward}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        [result] = hg.generate(
            model, tokenizer, PROMPTS["start"], ASKED, **given, reasoning=hg.Reasoning(), logits_processor=[never]
        )
    assert (result.finish_reason, result.text, result.value) == ("dead_end", "", None)
    assert result.thinking_cut and len(result.token_ids) <= SHARE and "finite score" in (result.error or "")


def test_a_processor_without_a_limit_lets_the_model_think() -> None:
    model, tokenizer, guide = loaded("demo")
    inputs = tokenizer(PROMPTS["nothing"], return_tensors="pt", return_token_type_ids=False)
    start = inputs["input_ids"].shape[1]

    def thinks(**own: Any) -> hg.GuidedResult:
        processor = guide.logits_processor(ASKED, reasoning=hg.Reasoning(), **own)
        output = model.generate(
            **inputs, do_sample=False, max_new_tokens=LIMIT, logits_processor=[Never(guide), processor]
        )
        ids, prompt = output[0, start:].tolist(), inputs["input_ids"][0].tolist()
        return guide.read(ASKED, ids, reasoning=hg.Reasoning(), prompt=prompt, **own)

    endless = thinks()
    assert (endless.finish_reason, endless.text, endless.thinking_cut) == ("length", "", False)
    check(guide, thinks(max_new_tokens=LIMIT), "nothing")


def test_a_decoder_reads_the_limit_of_its_call() -> None:
    model, tokenizer, guide = loaded("demo")
    inputs = tokenizer(PROMPTS["nothing"], return_tensors="pt", return_token_type_ids=False)
    output = model.generate(
        **inputs,
        do_sample=False,
        max_new_tokens=LIMIT,
        logits_processor=[Never(guide)],
        custom_generate=guide.decoder(ASKED, reasoning=hg.Reasoning()),
    )
    ids, prompt = output[0, inputs["input_ids"].shape[1] :].tolist(), inputs["input_ids"][0].tolist()
    check(guide, guide.read(ASKED, ids, reasoning=hg.Reasoning(), prompt=prompt, max_new_tokens=LIMIT), "nothing")


@pytest.mark.parametrize("more", [{}, {"logprobs": True}, {"trace": True}, {"jump_forward": False}], ids=str)
def test_a_stream_says_the_same(more: dict[str, Any]) -> None:
    [whole] = generated(PROMPTS["nothing"], **more)
    *_, last = generated(PROMPTS["nothing"], **more, stream=True)
    assert last.result == whole and last.result.thinking_cut and last.thinking == whole.thinking
    if "trace" in more:
        assert last.result.trace.thinking_cut and '"thinkingCut":true' in whole.trace.html()
    assert "thinking cut" in whole._repr_html_()


def test_the_pipeline_says_it() -> None:
    hg.register()
    model, tokenizer, guide = loaded("demo")
    pipe = transformers.pipeline("guided-generation", model=model, tokenizer=tokenizer, reasoning=hg.Reasoning())
    for prompt, text in PROMPTS.items():
        [record] = pipe(
            text, response_format=ASKED, do_sample=False, max_new_tokens=LIMIT, logits_processor=[Never(guide)]
        )
        assert record.get("thinking_cut") is (None if prompt == "all" else True)


SCHEMA_FORMAT: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "kind", "schema": SCHEMA}}


def slashes() -> dict[str, int]:
    """A bias against every token that begins an end marker; the answers need none of them."""
    _, tokenizer = demo.load()
    return {
        str(i): -100 for text, i in tokenizer.get_vocab().items() if "/" in text and i not in tokenizer.all_special_ids
    }


def said(api: openai.OpenAI, *, stream: bool, **asked: Any) -> list[tuple[str, str, dict[str, Any]]]:
    """For each choice its content, its thinking and what the server says of limits."""
    given = {"model": "demo", "messages": [{"role": "user", "content": "What is it? "}], "temperature": 0, **asked}
    found: Any = api.chat.completions.create(**given, stream=stream)
    texts: dict[int, list[Any]] = {}
    for choice in [c for chunk in found for c in chunk.choices] if stream else found.choices:
        text = texts.setdefault(choice.index, ["", "", {}])
        piece = choice.delta if stream else choice.message
        text[0] += piece.content or ""
        text[1] += getattr(piece, "reasoning_content", None) or ""
        text[2] |= (choice.model_extra or {}).get("hf_guided", {})
    return [tuple(text) for _, text in sorted(texts.items())]


@pytest.mark.parametrize("batching", [False, True], ids=["one by one", "shared batches"])
@pytest.mark.parametrize("template", [THINKS, THINKING], ids=["written by the model", "begun by the prompt"])
def test_the_server_says_it(template: str, batching: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", template)
    asked: dict[str, Any] = {"response_format": SCHEMA_FORMAT, "max_tokens": 2 * LIMIT, "logit_bias": slashes()}
    with serving(continuous_batching=batching) as url, client(url) as api:
        for stream in (False, True):
            for content, thinking, own in said(api, stream=stream, **asked, n=2 - stream):
                jsonschema.validate(json.loads(content), SCHEMA)
                assert thinking and own == {"shortened": False, "thinking_cut": True}
        whole = api.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "What is it? "}], temperature=0, **asked
        )
        used = whole.usage.completion_tokens_details.reasoning_tokens
        assert 2 * SHARE - 12 <= used <= 2 * SHARE + 2 and whole.usage.completion_tokens <= 2 * LIMIT
        # An answer that a stop string ends, after thinking that was cut.
        [(_, _, own)] = said(api, stream=False, **asked, stop=['"kind"'])
        assert own["thinking_cut"]
        off = {"chat_template_kwargs": {"enable_thinking": False}}
        [(content, _, own)] = said(api, stream=False, **asked, extra_body=off)
        assert own == {"shortened": False, "thinking_cut": False}
        jsonschema.validate(json.loads(content), SCHEMA)


def test_the_server_keeps_the_number_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKS)
    asked: dict[str, Any] = {"response_format": SCHEMA_FORMAT, "max_tokens": 2 * LIMIT, "logit_bias": slashes()}
    with serving(max_thinking_tokens=9) as url, client(url) as api:
        for stream in (False, True):
            [(_, thinking, own)] = said(api, stream=stream, **asked)
            assert own["thinking_cut"] and len(thinking) < 60
    # A free answer goes its own way, as without the server's option.
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKING)
    free = {"max_tokens": 40, "extra_body": {"temperature": 1.5, "seed": 1}}
    with serving(max_thinking_tokens=9) as limited, serving() as plain:
        texts = [said(client(url), stream=False, **free, logit_bias=slashes()) for url in (limited, plain)]
    assert texts[0] == texts[1] and texts[0][0][1]
