"""Thinking first, through every seam: hot random models, judged by ``str.partition``, ``json`` and ``jsonschema``."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import jsonschema
import pytest
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase, pipeline

import hf_guided as hg
from hf_guided.guide import calls_of
from tests.effort import repeats
from tests.integration.models import llama, t5
from tests.pairs import once_each
from tests.vocabularies import demo, tiny_byte_level

SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer"}},
    "required": ["kind", "n"],
}
ASKED = hg.JsonSchema(SCHEMA, whitespace="compact")
BUDGET = 60
THINK = hg.Reasoning(max_tokens=16)
TOKENIZERS = {"byte-level": tiny_byte_level, "demo": demo}
PROMPTS = {"nothing": "What is it? ", "start": "What is it? <think>\n", "all": "What is it? <think>\n</think>\n"}
HOT = {"do_sample": True, "temperature": 2.0, "top_k": 0}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "sampling": HOT,
    "transformers' own loop": {**HOT, "jump_forward": False},
    "beams": {"num_beams": 3, "do_sample": False},
    "beam sampling": {**HOT, "num_beams": 2},
    "prompt lookup": {"do_sample": False, "prompt_lookup_num_tokens": 3},
    "prompt lookup, drafted": {**HOT, "draft": "prompt_lookup"},
    "grammar drafts": {"do_sample": False, "draft": ["grammar", "prompt_lookup"]},
}


@cache
def loaded(name: str, seed: int = 0) -> tuple[Any, PreTrainedTokenizerBase, hg.Guide]:
    tokenizer = TOKENIZERS[name]()
    if name == "demo":  # a template that writes an empty line after thinking
        tokenizer = copy.deepcopy(tokenizer)
        thinks = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{{ '\\n\\n' }}{% endif %}"
        tokenizer.chat_template = f"{{% for m in messages %}}{thinks}{{{{ m.content }}}}{{% endfor %}}"
    model = llama(tokenizer, seed=seed)
    return model, tokenizer, hg.Guide(model, tokenizer)


class Loves(LogitsProcessor):
    """A model that wants nothing but some tokens, wherever they may come."""

    def __init__(self, token_ids: list[int]):
        self.token_ids = token_ids

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self.token_ids] += 10.0
        return scores


def check(result: hg.GuidedResult, guide: hg.Guide, prompt: str, budget: int = BUDGET) -> None:
    """The result against the bytes of its tokens."""
    assert result.finish_reason == "stop" and result.error is None
    assert len(result.token_ids) <= budget
    written = guide.vocabulary.decode_bytes(result.token_ids)
    if prompt == "all":
        assert result.thinking is None
        assert result.text.encode() == written
    else:
        start = b"<think>" if prompt == "nothing" else b""
        assert written.startswith(start)
        thinking, marker, answer = written[len(start) :].partition(b"</think>")
        assert marker and result.text.encode() == answer.removeprefix(b"\n").removeprefix(b"\n")
        assert result.thinking == thinking.decode(errors="replace")
    jsonschema.validate(json.loads(result.text), SCHEMA)
    assert result.value == json.loads(result.text)


def think(name: str = "demo", seed: int = 0, budget: int = BUDGET, **kwargs: Any) -> list[hg.GuidedResult]:
    """Checked results, one for each prompt."""
    model, tokenizer, guide = loaded(name, seed)
    kwargs = {"reasoning": THINK, "max_new_tokens": budget, **kwargs}
    results = hg.generate(model, tokenizer, list(PROMPTS.values()), ASKED, guide=guide, **kwargs)
    for result, prompt in zip(results, PROMPTS, strict=True):
        check(result, guide, prompt, budget)
    return results


@pytest.mark.parametrize(
    ("name", "mode"),
    once_each(TOKENIZERS, MODES, keep=["demo-beams"]),
)
def test_hot_models_think_and_answer(name: str, mode: str) -> None:
    for seed in range(repeats(1, 2)):
        torch.manual_seed(seed)
        think(name, seed, **MODES[mode])


@pytest.mark.parametrize(("backend", "most"), once_each(["native", "native"], [0, 3, None]))
def test_engines_budgets_and_wishes(backend: str, most: int | None) -> None:
    """Models that want to stop at once, or want marks all the time, and so write markers and what sticks to them."""
    _, tokenizer, guide = loaded("demo")
    marks = [i for i, data in enumerate(guide.vocabulary.token_bytes) if data and set(data) & set(b"</>{\n")]
    for wishes in ([tokenizer.eos_token_id], marks):
        for budget in (30, BUDGET):
            torch.manual_seed(budget)
            results = think(
                budget=budget,
                backend=backend,
                reasoning=hg.Reasoning(max_tokens=most),
                logits_processor=[Loves(wishes)],
                **HOT,
            )
            assert all(tokenizer.eos_token_id not in result.token_ids[:-1] for result in results)


def test_a_budget_that_is_too_small_says_what_thinking_takes() -> None:
    model, tokenizer, guide = loaded("demo")
    kwargs: dict[str, Any] = {"guide": guide, "reasoning": THINK, "do_sample": False}
    needed = {}
    for prompt, text in PROMPTS.items():
        with pytest.raises(hg.BudgetTooSmall) as found:
            hg.generate(model, tokenizer, text, ASKED, max_new_tokens=2, **kwargs)
        needed[prompt] = found.value.minimum
        [result] = hg.generate(model, tokenizer, text, ASKED, max_new_tokens=found.value.minimum, **kwargs)
        check(result, guide, prompt, found.value.minimum)
    assert needed["all"] < needed["start"] < needed["nothing"]


@pytest.mark.parametrize("name", TOKENIZERS)
def test_the_loops_agree(name: str) -> None:
    """Greedy: ours without jumps writes transformers' tokens, and drafts change nothing."""
    model, tokenizer, guide = loaded(name)
    inputs = tokenizer(list(PROMPTS.values()), return_tensors="pt", padding=True, return_token_type_ids=False)
    asked = {"reasoning": THINK, "max_new_tokens": BUDGET}

    def run(**seam: Any) -> list[list[int]]:
        output = model.generate(**inputs, do_sample=False, max_new_tokens=BUDGET, **seam)
        found: list[list[int]] = output.tolist()
        return found

    plain = run(logits_processor=[guide.logits_processor(ASKED, **asked)])
    processor = guide.logits_processor(ASKED, overlap=True, **asked)
    assert run(logits_processor=[processor], stopping_criteria=[processor.companion]) == plain
    assert run(custom_generate=guide.decoder(ASKED, jump_forward=False, **asked)) == plain
    jumped = run(custom_generate=guide.decoder(ASKED, **asked))
    flexible = hg.JsonSchema(SCHEMA)
    for draft in ("grammar", "prompt_lookup", model):
        decoder = guide.decoder(ASKED, draft=draft, **asked)
        assert run(custom_generate=decoder) == jumped
        decoder = guide.decoder(flexible, draft=draft, **asked)
        assert run(custom_generate=decoder) == run(custom_generate=guide.decoder(flexible, **asked))
        assert decoder.stats.drafted_tokens > 0


def test_grammar_drafts_begin_behind_the_thinking() -> None:
    model, tokenizer, guide = loaded("demo")
    inputs = tokenizer(PROMPTS["start"], return_tensors="pt", return_token_type_ids=False)
    long_names = {f"a_rather_long_name_{i}": {"type": "boolean"} for i in range(3)}
    flexible = hg.JsonSchema({"type": "object", "properties": long_names, "required": list(long_names)})
    decoder = guide.decoder(flexible, draft="grammar", jump_forward=False, reasoning=THINK)
    model.generate(**inputs, do_sample=False, max_new_tokens=150, custom_generate=decoder)
    assert decoder.stats.accepted_tokens > 8


def test_jumps_write_the_markers() -> None:
    """Both markers come without forward passes of their own, where they are text."""
    model, tokenizer, guide = loaded("demo")
    inputs = tokenizer(PROMPTS["nothing"], return_tensors="pt", return_token_type_ids=False)
    decoder = guide.decoder(hg.Choice(["yes"]), reasoning=hg.Reasoning(max_tokens=2))
    output = model.generate(**inputs, do_sample=False, max_new_tokens=BUDGET, custom_generate=decoder)
    ids = output[0, inputs["input_ids"].shape[1] :].tolist()
    assert guide.vocabulary.decode_bytes(ids).startswith(b"<think>")
    result = guide.read(
        hg.Choice(["yes"]), ids, reasoning=hg.Reasoning(max_tokens=2), prompt=inputs["input_ids"][0].tolist()
    )
    assert result.value == "yes" and decoder.stats.forwards < len(ids) / 2


LONG = hg.Reasoning(max_tokens=30)
OTHER = hg.Reasoning("[thought]", "[/thought]", 8)


@pytest.mark.parametrize(
    ("name", "thinking", "do_sample", "budget"),
    once_each(TOKENIZERS, [THINK, LONG, OTHER, hg.Reasoning("", "so")], [False, True], [BUDGET, 40]),
)
def test_the_fast_loop_thinks_as_the_plain_loop(
    name: str, thinking: hg.Reasoning, do_sample: bool, budget: int
) -> None:
    """Rows before, in and after their thinking, a free one, and limits of the thinking and of the whole output."""
    model, tokenizer, guide = loaded(name)
    tokenizer.padding_side = "left"
    prompts = ["Say. ", f"Say. {thinking.start}\n", "Say it now. ", f"Say. {thinking.end}\n", "Say it. "]
    constraints = [hg.Choice(["yes", "no"]), hg.Regex("[0-9]{2}"), None, ASKED, hg.Regex(r">?(yes)*!")]
    inputs = tokenizer(prompts, return_tensors="pt", padding=True, return_token_type_ids=False)
    asked: dict[str, Any] = {"backend": "native", "reasoning": thinking, "max_new_tokens": budget}
    given: dict[str, Any] = {"max_new_tokens": budget, "do_sample": do_sample, "pad_token_id": tokenizer.pad_token_id}
    decoder = guide.decoder(constraints, jump_forward=False, seeds=range(5), **asked)
    output = model.generate(**inputs, **given, custom_generate=decoder)
    if do_sample:
        drafted = guide.decoder(constraints, jump_forward=False, draft="prompt_lookup", seeds=range(5), **asked)
        assert output.tolist() == model.generate(**inputs, **given, custom_generate=drafted).tolist()
    else:
        plain = guide.logits_processor(constraints, **asked)
        assert output.tolist() == model.generate(**inputs, **given, logits_processor=[plain]).tolist()


def test_assisted_generation_thinks_alike() -> None:
    model, tokenizer, guide = loaded("demo")
    asked: dict[str, Any] = {"guide": guide, "reasoning": THINK, "max_new_tokens": BUDGET, "do_sample": False}
    [plain] = hg.generate(model, tokenizer, PROMPTS["start"], ASKED, jump_forward=False, **asked)
    [assisted] = hg.generate(model, tokenizer, PROMPTS["start"], ASKED, assistant_model=loaded("demo", 1)[0], **asked)
    assert assisted.token_ids == plain.token_ids and assisted.thinking == plain.thinking


def test_an_encoder_decoder_thinks_in_its_decoder() -> None:
    tokenizer = tiny_byte_level()
    model = t5(tokenizer)
    [result] = hg.generate(
        model, tokenizer, PROMPTS["all"], ASKED, reasoning=THINK, max_new_tokens=BUDGET, do_sample=False
    )
    check(result, hg.Guide(model, tokenizer), "nothing")


def test_chat_templates_that_open_the_thinking() -> None:
    from copy import deepcopy

    model, _, _ = loaded("demo")
    tokenizer = deepcopy(demo())
    turns = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    for opened, prompt in (("", "nothing"), ("<think>\n", "start"), ("<think>\n\n</think>\n\n", "all")):
        tokenizer.chat_template = turns + "{% if add_generation_prompt %}" + opened + "{% endif %}"
        chat = [{"role": "user", "content": "Think between <think> and </think>. What is it?"}]
        [result] = hg.generate(model, tokenizer, chat, ASKED, reasoning=THINK, max_new_tokens=BUDGET, **HOT)
        check(result, hg.Guide(model, tokenizer), prompt)


def test_pipelines_think() -> None:
    hg.register()
    model, tokenizer, guide = loaded("demo")
    pipe = pipeline("guided-generation", model=model, tokenizer=tokenizer, reasoning=THINK)
    answers = pipe(list(PROMPTS.values()), response_format=ASKED, max_new_tokens=BUDGET, batch_size=2)
    for [answer], prompt in zip(answers, PROMPTS, strict=True):
        jsonschema.validate(answer["value"], SCHEMA)
        assert json.loads(answer["generated_text"]) == answer["value"] and answer["finish_reason"] == "stop"
        assert ("thinking" in answer) == (prompt != "all")


def test_free_rows_and_cut_thinking() -> None:
    model, tokenizer, guide = loaded("demo")
    endless = hg.Reasoning()
    kwargs: dict[str, Any] = {"guide": guide, "reasoning": endless, "do_sample": False, "max_new_tokens": 20}
    [free] = hg.generate(model, tokenizer, PROMPTS["start"], None, **kwargs)
    [alone] = hg.generate(model, tokenizer, PROMPTS["start"], None, guide=guide, do_sample=False, max_new_tokens=20)
    assert free == alone and free.thinking is None
    gate = calls_of(guide).gate(endless)
    assert gate is not None
    ids = [*gate.start_ids, *tokenizer("so it is", add_special_tokens=False)["input_ids"]]
    cut = guide.read(ASKED, ids, reasoning=endless)
    assert (cut.thinking, cut.text, cut.value, cut.finish_reason) == ("so it is", "", None, "length")


def test_what_cannot_be() -> None:
    model, tokenizer, guide = loaded("demo")
    with pytest.raises(hg.InvalidConstraint, match="prefix, reasoning"):
        guide.logits_processor(ASKED, reasoning=THINK, prefix="{")
    with pytest.raises(hg.InvalidConstraint, match="prefix, reasoning"):
        hg.generate(model, tokenizer, "Hi", ASKED, reasoning=THINK, prefix="{")
    with pytest.raises(hg.InvalidConstraint, match=r"hg\.Reasoning"):
        guide.decoder(ASKED, reasoning=True)
