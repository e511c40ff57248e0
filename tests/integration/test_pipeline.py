"""Pipelines: the task of our own, and the plain text-generation pipeline with our processor."""

from __future__ import annotations

import dataclasses
import json
import re

import jsonschema
import pydantic
import pytest
import torch
from transformers import pipeline
from transformers.pipelines import PIPELINE_REGISTRY
from transformers.pipelines.pt_utils import KeyDataset

import hf_guided as hg
from hf_guided import demo
from hf_guided.generation.pipeline import GuidedGenerationPipeline

INVOICE, BOOKING, PERSON = demo.examples(3, seed=5)
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
ENDLESS = hg.Grammar("start: /[a-z]{3000}/")  # no search finds the end
HOT = {"do_sample": True, "temperature": 1.8, "top_k": 0}


@pytest.fixture(scope="module")
def loaded():
    return demo.load()


@pytest.fixture(scope="module")
def guided(loaded):
    hg.register()
    return pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1])


@pytest.fixture(scope="module")
def plain(loaded):
    return pipeline("text-generation", model=loaded[0], tokenizer=loaded[1])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def is_record_of(example: demo.Example, text: str) -> bool:
    jsonschema.validate(json.loads(text), example.schema)
    return list(json.loads(text)) == list(example.schema["properties"])


# -- hg.register() -----------------------------------------------------------------------------------------------------


def test_register_twice_is_register_once(caplog):
    hg.register()
    before = PIPELINE_REGISTRY.supported_tasks["guided-generation"]
    hg.register()
    assert PIPELINE_REGISTRY.supported_tasks["guided-generation"] is before
    assert before["impl"] is GuidedGenerationPipeline
    assert "already registered" not in caplog.text


def test_a_pipeline_loads_a_saved_model(tmp_path, loaded):
    hg.register()
    for part in loaded:
        part.save_pretrained(tmp_path)
    [out] = pipeline("guided-generation", model=str(tmp_path))(INVOICE.prompt, response_format=INVOICE.schema)
    assert is_record_of(INVOICE, out["generated_text"])


# -- one prompt --------------------------------------------------------------------------------------------------------


def test_one_prompt(guided):
    [out] = guided(INVOICE.prompt, response_format=INVOICE.schema, **HOT)
    assert set(out) == {"generated_text", "value", "finish_reason"}
    assert is_record_of(INVOICE, out["generated_text"])
    assert out["value"] == json.loads(out["generated_text"])
    assert out["finish_reason"] == "stop"


def test_same_answer_as_generate(guided, loaded):
    [out] = guided(BOOKING.prompt, response_format=BOOKING.schema, do_sample=False)
    [result] = hg.generate(*loaded, BOOKING.prompt, BOOKING.schema, do_sample=False)
    assert (out["generated_text"], out["value"]) == (result.text, result.value)


def test_full_text(guided):
    [out] = guided(INVOICE.prompt, response_format=["yes", "no"], return_full_text=True)
    assert out["generated_text"] == INVOICE.prompt + out["value"]
    assert out["value"] in ("yes", "no")


def test_tensors(guided, loaded):
    [out] = guided("x", response_format=["yes", "no"], return_tensors=True)
    assert out["value"] in loaded[1].decode(out["generated_token_ids"])


@pytest.mark.parametrize("full", [False, True])
def test_the_text_is_exact(guided, monkeypatch, full):
    """SentencePiece tokenizers drop a leading space in decode(); a guided text is what its constraint says."""
    decode = guided.tokenizer.decode
    monkeypatch.setattr(guided.tokenizer, "decode", lambda *args, **kwargs: decode(*args, **kwargs).strip())
    [out] = guided("x", response_format=re.compile(r" a , b \. "), return_full_text=full)
    assert out["generated_text"] == ("x" if full else "") + " a , b . "


def test_values_are_of_the_type_asked_for(guided):
    Invoice = pydantic.create_model("Invoice", currency=(str, pydantic.Field(pattern="^[A-Z]{3}$")), paid=(bool, ...))
    Flag = dataclasses.make_dataclass("Flag", [("on", bool)])
    outs = guided(["x", "y"], response_format=[Invoice, Flag], **HOT)
    assert isinstance(outs[0][0]["value"], Invoice)
    assert isinstance(outs[1][0]["value"], Flag)


def test_an_answer_closes_within_the_tokens_there_are(guided):
    with pytest.raises(hg.BudgetTooSmall, match="max_new_tokens=4 is too small") as told:
        guided(INVOICE.prompt, response_format=INVOICE.schema, max_new_tokens=4)
    [out] = guided(INVOICE.prompt, response_format=INVOICE.schema, max_new_tokens=told.value.minimum)
    assert out["finish_reason"] == "stop"
    jsonschema.validate(json.loads(out["generated_text"]), INVOICE.schema)


def test_an_answer_that_is_cut(guided):
    with pytest.warns(UserWarning, match=r"llguidance found no way to the end of .*may be cut by max_new_tokens=4"):
        [out] = guided(INVOICE.prompt, response_format=ENDLESS, max_new_tokens=4)
    assert (out["value"], out["finish_reason"]) == (None, "length")
    assert out["generated_text"]


def test_a_value_its_type_refuses_says_why(guided):
    class Never(pydantic.BaseModel):
        paid: bool

        @pydantic.field_validator("paid")
        @classmethod
        def refuse(cls, value):
            raise ValueError("never good enough")

    [out] = guided("x", response_format=Never)
    assert (out["value"], out["finish_reason"]) == (None, "stop")
    assert "never good enough" in out["error"]


def test_several_sequences(guided):
    outs = guided(INVOICE.prompt, response_format=INVOICE.schema, num_return_sequences=3, **HOT)
    assert len(outs) == 3
    assert all(is_record_of(INVOICE, out["generated_text"]) for out in outs)
    assert len({out["generated_text"] for out in outs}) > 1


def test_beams(guided):
    outs = guided(PERSON.prompt, response_format=PERSON.schema, num_beams=3, num_return_sequences=2, do_sample=False)
    assert all(is_record_of(PERSON, out["generated_text"]) for out in outs)


def test_assistant_model(loaded):
    hg.register()
    pipe = pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1], assistant_model=demo.load_draft())
    [out] = pipe(PERSON.prompt, response_format=PERSON.schema, do_sample=False)
    [alone] = hg.generate(*loaded, PERSON.prompt, PERSON.schema, do_sample=False)
    assert out["generated_text"] == alone.text


def test_empty_prompt(guided):
    [out] = guided("", response_format=["yes", "no"])
    assert out["value"] in ("yes", "no")
    assert out["finish_reason"] == "stop"


# -- the fast loop -----------------------------------------------------------------------------------------------------


@pytest.fixture
def passes(guided):
    """Forward passes of the model, as a list that grows."""
    calls: list[None] = []
    handle = guided.model.register_forward_pre_hook(lambda *_: calls.append(None))
    yield calls
    handle.remove()


@pytest.mark.parametrize("batch_size", [1, 3])
def test_jump_forward_gives_the_answers_of_generate(guided, loaded, passes, batch_size):
    examples = demo.examples(3, seed=5)
    prompts, schemas = [example.prompt for example in examples], [example.schema for example in examples]
    asked = {"response_format": schemas, "batch_size": batch_size, "do_sample": False, "max_new_tokens": 250}
    outs = guided(prompts, jump_forward=True, **asked)
    fast = len(passes)
    results = hg.generate(*loaded, prompts, schemas, do_sample=False, max_new_tokens=250)
    texts = [out["generated_text"] for [out] in outs]
    assert texts == [result.text for result in results]
    passes.clear()
    assert texts == [out["generated_text"] for [out] in guided(prompts, **asked)]
    assert fast < len(passes)  # without the argument, each token takes a forward pass


def test_jump_forward_is_a_default_of_the_pipeline(loaded, passes):
    pipe = pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1], jump_forward=True)
    pipe("x", response_format=hg.Regex("[0-9]{60}!{30}"), do_sample=False)
    fast = len(passes)
    passes.clear()
    pipe("x", response_format=hg.Regex("[0-9]{60}!{30}"), do_sample=False, jump_forward=False)
    assert fast < len(passes)


def test_jump_forward_with_sampling_and_several_sequences(guided):
    outs = guided([INVOICE.prompt], response_format=INVOICE.schema, num_return_sequences=3, jump_forward=True, **HOT)
    assert len(outs[0]) == 3
    assert all(is_record_of(INVOICE, out["generated_text"]) for out in outs[0])


def test_jump_forward_where_only_generate_can_run(guided):
    """Beams run in transformers' own loop."""
    args = {"response_format": PERSON.schema, "num_beams": 3, "do_sample": False}
    assert guided(PERSON.prompt, jump_forward=True, **args) == guided(PERSON.prompt, **args)


def test_jump_forward_has_to_be_a_flag(guided):
    with pytest.raises(hg.InvalidArgument, match="jump_forward: expected True or False"):
        guided("x", response_format=["yes", "no"], jump_forward="on")
    with pytest.raises(hg.UnknownArgument, match="jump_forward"):
        guided("x", response_format=["yes", "no"], jump_foward=True)


# -- many prompts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [*(pytest.param(size, marks=pytest.mark.slow) for size in (1, 2, 5)), 3])
def test_each_prompt_meets_its_own_constraint(guided, batch_size):
    tasks = demo.examples(7, seed=2)
    outs = guided(
        [task.prompt for task in tasks],
        response_format=[*(task.schema for task in tasks[:-1]), ["last"]],
        batch_size=batch_size,
        **HOT,
    )
    assert len(outs) == 7
    assert all(
        is_record_of(task, out[0]["generated_text"])
        for task, out in zip(tasks, outs, strict=False)
        if task is not tasks[-1]
    )
    assert outs[-1][0]["value"] == "last"


def test_batches_with_several_sequences(guided):
    tasks = demo.examples(3, seed=2)
    outs = guided(
        [task.prompt for task in tasks],
        response_format=[task.schema for task in tasks],
        batch_size=2,
        num_return_sequences=2,
        **HOT,
    )
    assert [len(out) for out in outs] == [2, 2, 2]
    for task, out in zip(tasks, outs, strict=True):
        assert all(is_record_of(task, one["generated_text"]) and one["value"] for one in out)


def test_a_batch_gives_what_rows_give_alone(guided):
    tasks = demo.examples(4, seed=9)
    prompts, schemas = [task.prompt for task in tasks], [task.schema for task in tasks]
    together = guided(prompts, response_format=schemas, batch_size=4, do_sample=False)
    alone = guided(prompts, response_format=schemas, batch_size=1, do_sample=False)
    assert [one[0]["value"] for one in together] == [one[0]["value"] for one in alone]


def test_free_rows_are_as_in_the_plain_pipeline(guided, plain):
    prompts = [INVOICE.prompt, BOOKING.prompt, PERSON.prompt]
    args = {"do_sample": False, "max_new_tokens": 60, "batch_size": 3, "return_full_text": False}
    outs = guided(prompts, response_format=[None, ["only"], None], **args)
    free = plain(prompts, **args)
    assert outs[0][0]["generated_text"] == outs[0][0]["value"] == free[0][0]["generated_text"]
    assert outs[1][0]["value"] == "only"
    assert outs[2][0]["generated_text"] == free[2][0]["generated_text"]


def test_data_sets_and_generators_stream(guided):
    schema = INVOICE.schema
    tasks = demo.examples(6, seed=4)[::3]
    data = KeyDataset([{"text": task.prompt} for task in tasks], "text")
    outs = list(guided(data, response_format=schema, batch_size=2, **HOT))
    assert all(is_record_of(INVOICE, out[0]["generated_text"]) for out in outs)
    outs = list(guided((task.prompt for task in tasks), response_format=schema, **HOT))
    assert len(outs) == 2
    assert all(is_record_of(INVOICE, out[0]["generated_text"]) for out in outs)


def test_a_constraint_given_once_is_the_default(loaded):
    hg.register()
    pipe = pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1], response_format=["yes", "no"])
    assert pipe("x")[0]["value"] in ("yes", "no")
    assert pipe("x", response_format=["other"])[0]["value"] == "other"
    assert pipe("x", response_format=None, max_new_tokens=4, do_sample=False)[0]["finish_reason"] == "length"


# -- chats -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def chatting(guided, monkeypatch):
    monkeypatch.setattr(guided.tokenizer, "chat_template", TEMPLATE)
    return guided


def test_a_chat(chatting):
    chat = [{"role": "user", "content": INVOICE.prompt}]
    [out] = chatting(chat, response_format=INVOICE.schema)
    assert is_record_of(INVOICE, out["generated_text"])
    [out] = chatting(chat, response_format=INVOICE.schema, return_full_text=True)
    assert out["generated_text"][:-1] == chat
    assert out["generated_text"][-1]["role"] == "assistant"
    assert is_record_of(INVOICE, out["generated_text"][-1]["content"])


def test_chats_and_texts_with_a_constraint_each(chatting):
    outs = chatting(
        [[{"role": "user", "content": INVOICE.prompt}], BOOKING.prompt],
        response_format=[INVOICE.schema, BOOKING.schema],
        batch_size=2,
    )
    assert is_record_of(INVOICE, outs[0][0]["generated_text"])
    assert is_record_of(BOOKING, outs[1][0]["generated_text"])


def test_the_assistants_last_message_is_the_beginning_of_the_answer(chatting):
    begun = '{"number": "INV-1234", "seller": "'
    chat = [{"role": "user", "content": INVOICE.prompt}, {"role": "assistant", "content": begun}]
    [out] = chatting(chat, response_format=INVOICE.schema)
    assert is_record_of(INVOICE, begun + out["generated_text"])
    assert out["value"]["number"] == "INV-1234"
    [full] = chatting(chat, response_format=INVOICE.schema, return_full_text=True, do_sample=False)
    assert is_record_of(INVOICE, full["generated_text"][-1]["content"])


# -- mistakes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompts", "response_format", "error"),
    [
        (["a", "b"], [["x"], ["y"], None], hg.BatchSizeError),
        ("ab", [["x"], ["y"]], hg.BatchSizeError),
        ([{"role": "user", "content": text} for text in "ab"], [["x"], ["y"]], hg.BatchSizeError),
        (["a"], {"type": "no such type"}, hg.InvalidConstraint),
        (["a", "b"], [["x"], {"anything": 1}], hg.InvalidConstraint),
        (["a", "b"], [["x"], {"type": "number", "multipleOf": 3}], hg.UnsupportedConstraint),
        (["a", "b"], [["x"], {"type": "number", "multipleOf": 3}], hg.UnsupportedConstraint),  # the backend below
    ],
)
def test_mistakes_raise_before_anything_is_generated(guided, monkeypatch, prompts, response_format, error):
    monkeypatch.setattr(guided.model, "generate", lambda **_: pytest.fail("generate() was called"))
    with pytest.raises(error):
        guided(prompts, response_format=response_format, backend="xgrammar")


def test_the_backend_of_the_pipeline_is_the_default_of_its_calls(loaded, monkeypatch):
    hg.register()
    pipe = pipeline("guided-generation", model=loaded[0], tokenizer=loaded[1], backend="xgrammar")
    prompts, constraints = ["a", "b"], [["x"], hg.Grammar('start: "50"')]
    with monkeypatch.context() as patch, pytest.raises(hg.UnsupportedConstraint):
        patch.setattr(pipe.model, "generate", lambda **_: pytest.fail("generate() was called"))
        pipe(prompts, response_format=constraints)
    with pytest.warns(UserWarning, match="keeps no token limit"):
        answers = pipe(prompts, response_format=constraints, backend="llguidance")
    assert answers[1][0]["value"] == "50"


def test_a_call_without_a_constraint_is_a_mistake(guided):
    with pytest.raises(TypeError, match="response_format"):
        guided("x")


def test_an_unknown_backend(guided):
    with pytest.raises(hg.InvalidConstraint, match="unknown backend"):
        guided("x", response_format=["a"], backend="none")


def test_named_backend(guided):
    with pytest.warns(UserWarning, match='xgrammar keeps no token limit, so texts may be cut; backend="auto" closes'):
        assert guided("x", response_format=["a", "b"], backend="xgrammar")[0]["value"] in ("a", "b")


# -- the plain pipeline ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_plain_pipeline_with_a_list_of_prompts(plain, loaded, batch_size):
    """One processor, several generate() calls of batches that differ in length, the last one smaller."""
    processor = hg.Guide(loaded[0], loaded[1]).logits_processor(INVOICE.schema)
    prompts = [task.prompt for task in demo.examples(15, seed=6) if task.kind == "invoice"]
    outs = plain(
        prompts,
        logits_processor=[processor],
        batch_size=batch_size,
        return_full_text=False,
        max_new_tokens=200,
        **HOT,
    )
    assert len(outs) == 5
    assert all(is_record_of(INVOICE, out[0]["generated_text"]) for out in outs)


def test_plain_pipeline_reuses_a_processor(plain, loaded):
    processor = hg.Guide(loaded[0], loaded[1]).logits_processor(BOOKING.schema)
    args = {"logits_processor": [processor], "max_new_tokens": 200}
    first = plain(BOOKING.prompt, return_full_text=True, **args)[0]["generated_text"]
    assert is_record_of(BOOKING, first.removeprefix(BOOKING.prompt))
    # A second prompt that begins with the whole first text, and the first prompt once more.
    longer = first + "\n" + BOOKING.prompt
    for prompt in (longer, BOOKING.prompt):
        [out] = plain(prompt, return_full_text=False, **args)
        assert is_record_of(BOOKING, out["generated_text"])


def test_plain_pipeline_with_one_constraint_per_prompt(plain, loaded):
    processor = hg.Guide(loaded[0], loaded[1]).logits_processor([INVOICE.schema, None, ["yes", "no"]])
    outs = plain(
        [INVOICE.prompt, "free", "choose"],
        logits_processor=[processor],
        batch_size=3,
        return_full_text=False,
        max_new_tokens=200,
        **HOT,
    )
    assert is_record_of(INVOICE, outs[0][0]["generated_text"])
    assert outs[2][0]["generated_text"] in ("yes", "no")
