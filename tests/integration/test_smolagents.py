"""smolagents' model on transformers, with response_format; its agents too."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import jsonschema
import pytest
import torch
from pydantic import BaseModel, Field

import hf_guided as hg
from hf_guided import demo
from tests import media_models

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the package's own imports
    import smolagents
    from smolagents import CodeAgent, TransformersModel
    from smolagents.models import CODEAGENT_RESPONSE_FORMAT

    from hf_guided.integrations.smolagents import GuidedTransformersModel

EXAMPLE = demo.EXAMPLES[0]
CHAT = [{"role": "user", "content": [{"type": "text", "text": EXAMPLE.prompt}]}]
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "schema": EXAMPLE.schema}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("model")
    model, tokenizer = demo.load()
    tokenizer.chat_template = TEMPLATE
    model.save_pretrained(found)
    tokenizer.save_pretrained(found)
    return str(found)


def make(kind: Any, folder: str, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls transformers by names of old
        return kind(folder, device_map="cpu", **settings)


@pytest.fixture(scope="module")
def hot(folder):
    torch.manual_seed(0)
    return make(GuidedTransformersModel, folder, max_new_tokens=150, do_sample=True, temperature=3.0)


def test_its_own_class_refuses(folder):
    with pytest.raises(ValueError, match="does not support structured outputs"):
        make(TransformersModel, folder, max_new_tokens=50).generate(CHAT, response_format=FORMAT)


def test_a_limit_of_the_call_comes_before_the_models(hot):
    message = hot.generate(CHAT, response_format=FORMAT, max_new_tokens=100)
    assert message.token_usage.output_tokens <= 100
    with pytest.raises(hg.BudgetTooSmall):
        hot.generate(CHAT, response_format=hg.Regex("a{200}"), max_new_tokens=5)


def test_answers_keep_to_the_format(hot):
    for _ in range(4):
        message = hot.generate(CHAT, response_format=FORMAT)
        jsonschema.validate(json.loads(message.content), EXAMPLE.schema)
    text = "".join(delta.content for delta in hot.generate_stream(CHAT, response_format=FORMAT))
    jsonschema.validate(json.loads(text), EXAMPLE.schema)
    # A text that would end it is part of a string here.
    message = hot.generate(CHAT, stop_sequences=['"'], response_format=FORMAT)
    jsonschema.validate(json.loads(message.content), EXAMPLE.schema)


def test_plain_forms(hot):
    class Person(BaseModel):
        name: str = Field(max_length=9)

    Person.model_validate_json(hot.generate(CHAT, response_format=Person).content)
    assert re.fullmatch("[a-c]{4}", hot.generate(CHAT, response_format=re.compile("[a-c]{4}")).content)


def test_without_a_format_it_is_their_model(folder):
    settings = {"max_new_tokens": 40, "do_sample": False}
    theirs, ours = make(TransformersModel, folder, **settings), make(GuidedTransformersModel, folder, **settings)
    assert ours.generate(CHAT).content == theirs.generate(CHAT).content
    assert [one.content for one in ours.generate_stream(CHAT)] == [one.content for one in theirs.generate_stream(CHAT)]


def test_images_are_seen_as_by_the_library(tmp_path):
    pair = media_models.llava()
    for part in pair:
        part.save_pretrained(tmp_path)
    model = make(GuidedTransformersModel, str(tmp_path), max_new_tokens=30, do_sample=False)
    for seed in (1, 2):
        image = media_models.image(seed)
        chat = [{"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image", "image": image}]}]
        [expected] = hg.generate(*pair, [chat], hg.Regex("[a-f]{8}"), do_sample=False, max_new_tokens=30)
        message = model.generate(chat, response_format=hg.Regex("[a-f]{8}"))
        assert message.content == expected.text
        deltas = list(model.generate_stream(chat, response_format=hg.Regex("[a-f]{8}")))
        assert "".join(delta.content for delta in deltas) == expected.text
        assert message.token_usage == deltas[-1].token_usage
        assert message.token_usage.output_tokens == len(expected.token_ids) and message.token_usage.input_tokens > 1


def test_what_cannot_be_promised(hot):
    bad = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "objekt"}}}
    with pytest.raises(hg.InvalidConstraint):
        hot.generate(CHAT, response_format=bad)
    with pytest.raises(hg.InvalidConstraint):
        list(hot.generate_stream(CHAT, response_format=bad))
    with pytest.raises(hg.BudgetTooSmall):
        list(hot.generate_stream(CHAT, response_format={"type": "regex", "regex": "[ab]{5000}"}))


def test_thinking_that_the_template_begins_is_ended_only_without_reasoning(folder):
    model = make(GuidedTransformersModel, folder, max_new_tokens=150, do_sample=False)
    model._templates.chat_template = TEMPLATE + "{% if add_generation_prompt %}<think>{% endif %}{# </think> #}"
    plain = len(model.tokenizer(EXAMPLE.prompt + "<think>", add_special_tokens=False).input_ids)
    ended = len(model.tokenizer(EXAMPLE.prompt + "<think></think>", add_special_tokens=False).input_ids)
    for more, length in ({}, ended), ({"reasoning": hg.Reasoning("<think>", "</think>", max_tokens=8)}, plain):
        assert model.generate(CHAT, response_format=FORMAT, **more).token_usage.input_tokens == length


def test_an_agent_that_wants_structured_answers(folder):
    prompt = "no more than it needs"
    model = make(GuidedTransformersModel, folder, max_new_tokens=120, do_sample=False)
    asked = []

    class Watched(GuidedTransformersModel):
        def __init__(self) -> None:
            self.__dict__.update(model.__dict__)

        def generate(self, messages: Any, *args: Any, **kwargs: Any) -> Any:
            message = super().generate(messages, *args, **kwargs)
            asked.append((kwargs.get("response_format"), message.content))
            return message

    agent = CodeAgent(
        tools=[],
        model=Watched(),
        use_structured_outputs_internally=True,
        max_steps=1,
        verbosity_level=smolagents.LogLevel.OFF,
    )
    agent.run(prompt)
    response_format, content = asked[0]
    assert response_format == CODEAGENT_RESPONSE_FORMAT
    jsonschema.validate(json.loads(content), CODEAGENT_RESPONSE_FORMAT["json_schema"]["schema"])
