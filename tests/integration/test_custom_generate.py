"""The folder custom_generate/, a Hub repository that brings the fast loop, loaded by transformers as it loads one."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import re
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest
import torch
from transformers import AutoModelForCausalLM, TextStreamer

import hf_guided as hg
from hf_guided import demo
from hf_guided.generation.custom_generate import FOR_DECODER, generate

REPOSITORY = Path(__file__).parents[2] / "custom_generate"
SCHEMA = demo.SCHEMAS["person"]
SETTINGS = {"do_sample": False, "max_new_tokens": 120}
PEOPLE = [example for example in demo.EXAMPLES if example.kind == "person"]


@pytest.fixture(scope="module")
def loaded():
    return demo.load()


@pytest.fixture
def repository(tmp_path, monkeypatch):
    # transformers copies what it loads into a folder of modules; one that nobody else sees.
    modules = tmp_path / "modules"
    for place in ("transformers.dynamic_module_utils", "transformers.utils.hub"):
        monkeypatch.setattr(f"{place}.HF_MODULES_CACHE", str(modules))
    monkeypatch.setattr(sys, "path", [*sys.path])
    shutil.copytree(REPOSITORY, tmp_path / "repository")
    return str(tmp_path / "repository")


def encoded(tokenizer, *prompts):
    return tokenizer(list(prompts), return_tensors="pt", padding=True, return_token_type_ids=False)


def text_of(tokenizer, inputs, output, row=0):
    return tokenizer.decode(output[row, inputs["input_ids"].shape[1] :], skip_special_tokens=True)


@pytest.mark.parametrize("draft", [None, "prompt_lookup"])
def test_the_tokens_are_the_decoders(loaded, repository, draft):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, *(example.prompt for example in PEOPLE[:2]))
    decoder = hg.Guide(model, tokenizer).decoder([SCHEMA, None], draft=draft)
    expected = model.generate(**inputs, **SETTINGS, custom_generate=decoder)
    output = model.generate(
        **inputs,
        **SETTINGS,
        custom_generate=repository,
        trust_remote_code=True,
        tokenizer=tokenizer,
        response_format=[SCHEMA, None],
        draft=draft,
    )
    assert torch.equal(output, expected)
    jsonschema.validate(json.loads(text_of(tokenizer, inputs, output)), SCHEMA)


def test_samples_are_the_decoders_and_match(loaded, repository):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, "When? ")
    pattern = re.compile("[0-9]{4}-[0-9]{2}")
    hot = {"do_sample": True, "temperature": 3.0, "max_new_tokens": 20}
    guide = hg.Guide(model, tokenizer)
    expected = model.generate(**inputs, **hot, custom_generate=guide.decoder(pattern, seeds=[7]))
    output = model.generate(
        **inputs, **hot, custom_generate=repository, trust_remote_code=True, guide=guide, constraint=pattern, seeds=[7]
    )
    assert torch.equal(output, expected)
    assert pattern.fullmatch(text_of(tokenizer, inputs, output))


def test_what_generate_keeps_from_a_decoding_method_arrives(loaded, repository, capsys):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, PEOPLE[0].prompt)
    asked = {"custom_generate": repository, "trust_remote_code": True, "tokenizer": tokenizer}
    passes = []
    counting = model.register_forward_hook(lambda *_: passes.append(0))
    plain = model.generate(**inputs, **SETTINGS, **asked, response_format=SCHEMA)
    alone = len(passes)
    output = model.generate(
        **inputs,
        **SETTINGS,
        **asked,
        response_format=SCHEMA,
        streamer=TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=True),
        assistant_model=demo.load_draft(),
    )
    counting.remove()
    assert torch.equal(output, plain)
    assert len(passes) - alone < alone  # the assistant's drafts were confirmed several at a time
    assert capsys.readouterr().out.strip() == text_of(tokenizer, inputs, output)
    cut = model.generate(**inputs, **SETTINGS, **asked, response_format=SCHEMA, stop_strings="email")
    assert text_of(tokenizer, inputs, cut).endswith("email")


def test_a_text_closes_within_its_budget(loaded, repository):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, PEOPLE[0].prompt)
    short = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    asked = {"custom_generate": repository, "trust_remote_code": True, "tokenizer": tokenizer, "response_format": short}
    whole = model.generate(**inputs, **SETTINGS, **asked)
    fewer = whole.shape[1] - inputs["input_ids"].shape[1] - 2  # without a budget its last quote would be cut off
    output = model.generate(**inputs, do_sample=False, max_new_tokens=fewer, **asked)
    assert output.shape[1] - inputs["input_ids"].shape[1] <= fewer
    jsonschema.validate(json.loads(text_of(tokenizer, inputs, output)), short)


def test_beams_run_through_transformers_own_loop(loaded, repository):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, "Is it paid? ")
    beams = {"num_beams": 3, "num_return_sequences": 2, "do_sample": False, "max_new_tokens": 20}
    guide = hg.Guide(model, tokenizer)
    expected = model.generate(**inputs, **beams, logits_processor=[guide.logits_processor(["yes", "no"])])
    output = model.generate(
        **inputs,
        **beams,
        custom_generate=repository,
        trust_remote_code=True,
        tokenizer=tokenizer,
        response_format=["yes", "no"],
    )
    assert torch.equal(output, expected)


def test_a_model_that_was_loaded_from_such_a_repository(loaded, repository):
    plain, tokenizer = loaded
    plain.save_pretrained(repository)
    model = AutoModelForCausalLM.from_pretrained(repository, trust_remote_code=True)
    inputs = encoded(tokenizer, PEOPLE[0].prompt)
    free = {"do_sample": False, "max_new_tokens": 30}
    assert torch.equal(model.generate(**inputs, **free), plain.generate(**inputs, **free))
    assert torch.equal(model.generate(inputs["input_ids"], **free), plain.generate(inputs["input_ids"], **free))
    expected = plain.generate(**inputs, **SETTINGS, custom_generate=hg.Guide(plain, tokenizer).decoder(SCHEMA))
    guided = model.generate(**inputs, **SETTINGS, tokenizer=tokenizer, response_format=SCHEMA)
    assert torch.equal(guided, expected)
    [result] = hg.generate(model, tokenizer, PEOPLE[0].prompt, SCHEMA, do_sample=False)  # calls the replaced generate()
    assert result.value == json.loads(text_of(tokenizer, inputs, expected))


def test_mistakes_are_told_apart(loaded, repository):
    model, tokenizer = loaded
    inputs = encoded(tokenizer, "Is it paid? ")
    asked = {"custom_generate": repository, "trust_remote_code": True, "max_new_tokens": 20}
    with pytest.raises(ValueError, match="tokenizer"):
        model.generate(**inputs, **asked, response_format=["yes", "no"])
    with pytest.raises(hg.InvalidConstraint, match="one of the two"):
        model.generate(**inputs, **asked, tokenizer=tokenizer, response_format=["yes"], constraint=["no"])
    with pytest.raises(ValueError, match="assistant_model, draft"):
        model.generate(
            **inputs,
            **asked,
            tokenizer=tokenizer,
            response_format=["yes"],
            assistant_model=model,
            draft="prompt_lookup",
        )
    with pytest.raises(ValueError, match="respons_format"):  # transformers': nobody takes it
        model.generate(**inputs, **asked, tokenizer=tokenizer, respons_format=["yes"])


def test_the_card_asks_for_this_version_and_lists_every_argument():
    name, version = (REPOSITORY / "custom_generate" / "requirements.txt").read_text().strip().split(">=")
    assert (name, version) == ("hf-guided", hg.__version__)
    assert importlib.metadata.version(name) == version
    card = (REPOSITORY / "README.md").read_text()
    assert f"Install version {version} or newer" in card
    named = set(re.findall(r"`([a-z_]+)`", card))
    assert FOR_DECODER < named
    assert set(inspect.signature(generate).parameters) - {"inputs", "model", "arguments"} < named
