"""Invalid values of arguments are refused before anything runs, with a message that says what was expected."""

from __future__ import annotations

import copy
import math
import re
from itertools import product
from typing import Any

import numpy as np
import pydantic
import pytest
import torch
from transformers import GenerationConfig, TextStreamer

import hf_guided as hg
from hf_guided import demo
from hf_guided.constraints.argument_checks import CALL, SETTINGS, check_settings
from hf_guided.generation.arguments import GenerateArguments

CHAT = [{"role": "user", "content": "Hi"}]


class Person(pydantic.BaseModel):
    name: str


@pytest.fixture(scope="module")
def model_and_tokenizer() -> Any:
    return demo.load()


@pytest.fixture(autouse=True)
def no_forward_pass(model_and_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_and_tokenizer[0], "forward", lambda *_, **__: pytest.fail("the model ran"))


WRONG = [
    ("batch_size", None, "an int of 1 or more"),
    ("batch_size", 0, "an int of 1 or more"),
    ("batch_size", 1.5, "an int of 1 or more"),
    ("batch_size", "8", "an int of 1 or more"),
    ("batch_size", True, "an int of 1 or more"),
    ("retries", -1, "an int from 0 to 1000"),
    ("retries", 10**9, "an int from 0 to 1000"),
    ("retries", None, "an int from 0 to 1000"),
    ("num_beams", 0, "an int of 1 or more"),
    ("num_beams", "2", "an int of 1 or more"),
    ("num_return_sequences", 0, "an int of 1 or more"),
    ("num_return_sequences", 3, "expected 1 for greedy decoding"),
    ("streamer", 5, "put() and end()"),
    ("stop_strings", [1, 2], "a text or a list of texts"),
    ("stop_strings", [], "one or more"),
    ("temperature", -1.0, "a number of 0 or more"),
    ("temperature", "hot", "a number of 0 or more"),
    ("temperature", math.nan, "a number of 0 or more"),
    ("temperature", math.inf, "a number of 0 or more"),
    ("top_p", 2.0, "a number from 0 to 1"),
    ("top_k", -1, "an int of 0 or more"),
    ("min_p", -0.5, "a number from 0 to 1"),
    ("typical_p", 3, "a number above 0, up to 1"),
    ("repetition_penalty", 0.0, "a float above 0"),
    ("max_new_tokens", "8", "an int of 1 or more"),
    ("max_new_tokens", True, "an int of 1 or more"),
    ("min_new_tokens", -1, "an int of 0 or more"),
    ("max_length", -5, "an int of 1 or more"),
    ("max_length", "5", "an int of 1 or more"),
    ("max_time", -1.0, "seconds above 0"),
    ("eos_token_id", "a", "a token id or a list of token ids"),
    ("pad_token_id", -5, "an int of 0 or more"),
    ("logits_processor", len, "a list of logits processors"),
    ("stopping_criteria", 5, "a list of stopping criteria"),
    ("suppress_tokens", 5, "a list of token ids"),
    ("sequence_bias", {65: 4.0}, "a dict of tuples of token ids"),
    ("sequence_bias", {(65,): 4}, "a dict of tuples of token ids"),
    ("sequence_bias", [[[-1], 4.0]], "a list of lists of them"),
    ("sequence_bias", [[65, 4.0]], "a list of lists of them"),
    ("assistant_model", 5, "a model that can generate"),
    ("generation_config", {"num_beams": 2}, "a transformers.GenerationConfig"),
    ("continuous_batching", "yes", "True, False or a ContinuousBatchingConfig"),
    ("jump_forward", "no", "True or False"),
    ("stats", 5, "True, False or a function"),
    ("describe", "yes", "True or False"),
    ("stream", "yes", "True or False"),
    ("guide", 5, "an hg.Guide or None"),
    ("documents", {"title": "a", "text": "b"}, "got one dict; pass [document]"),
    ("documents", "a text", "put the documents into a list"),
    ("documents", ["a text"], "got 'a text' at index 0"),
    ("documents", [["a text"]], "got ['a text'] at index 0"),
]


@pytest.mark.parametrize(("name", "value", "expected"), WRONG)
def test_invalid_value_is_refused_before_a_forward_pass(
    model_and_tokenizer: Any, name: str, value: Any, expected: str
) -> None:
    with pytest.raises(hg.InvalidArgument, match=re.escape(expected)) as caught:
        hg.generate(*model_and_tokenizer, "Hi", Person, **{name: value})
    assert caught.value.name == name and str(caught.value).startswith(f"{name}: expected")
    assert isinstance(caught.value, (ValueError, TypeError)) and "got " in str(caught.value)


@pytest.mark.parametrize("value", [0.0, -1.0, 2, "hot"])
def test_sampling_needs_a_temperature_above_zero(model_and_tokenizer: Any, value: Any) -> None:
    with pytest.raises(hg.InvalidArgument, match=r"temperature: expected .*; for greedy decoding leave"):
        hg.generate(*model_and_tokenizer, "Hi", ["yes"], do_sample=True, temperature=value)
    config = GenerationConfig(do_sample=True)
    config.temperature = value
    with pytest.raises(hg.InvalidArgument, match="temperature: expected"):
        hg.generate(*model_and_tokenizer, "Hi", ["yes"], generation_config=config)


def test_rules_name_real_arguments_and_accept_valid_values() -> None:
    assert set(SETTINGS) <= set(GenerateArguments.__annotations__)
    assert set(CALL) <= {*GenerateArguments.__annotations__, "stream"}
    check_settings({}.get)
    check_settings(GenerationConfig(**GenerationConfig()._get_default_generation_params()).__dict__.get)
    good: dict[str, Any] = {
        "do_sample": True,
        "eos_token_id": torch.tensor([1, 2]),
        "max_new_tokens": np.int64(5),
        "num_return_sequences": 3,
        "repetition_penalty": 1,
        "sequence_bias": {(1, 2): 0.5, (np.int64(3),): -float("inf")},
        "stop_strings": "x",
        "streamer": TextStreamer(None),
        "suppress_tokens": (1, 2),
        "temperature": np.float64(0.5),
        "top_k": 0,
        "top_p": 1,
        "typical_p": 1.0,
    }
    check_settings(good.get)
    check_settings({"sequence_bias": [[[1, 2], 0.5]]}.get)
    check_settings({"num_beams": 3, "num_return_sequences": 3, "temperature": 0.0}.get)


def test_other_calls_refuse_invalid_values(model_and_tokenizer: Any) -> None:
    from transformers import pipeline

    hg.register()
    guide = hg.Guide(*model_and_tokenizer)
    guided = pipeline("guided-generation", model=model_and_tokenizer[0], tokenizer=model_and_tokenizer[1])
    cases: list[tuple[Any, str]] = [
        (lambda: guided("Hi", response_format=["yes"], num_beams=0), "num_beams"),
        (lambda: guided("Hi", response_format=["yes"], temperature=-1.0), "temperature"),
        (lambda: guided(CHAT, response_format=["yes"], documents={"text": "x"}), "documents"),
        (lambda: hg.score(*model_and_tokenizer, "Hi", ["yes"], batch_size=None), "batch_size"),
        (lambda: hg.score(*model_and_tokenizer, "Hi", ["yes"], max_prefixes="x"), "max_prefixes"),
        (lambda: hg.score(*model_and_tokenizer, "Hi", ["yes"], guide=5), "guide"),
        (lambda: guide.decoder(["yes"], streamer=5), "streamer"),
        (lambda: guide.decoder(["yes"], stop_strings=[1, 2]), "stop_strings"),
        (lambda: guide.decoder(["yes"], stop_strings=5), "stop_strings"),
        (lambda: guide.decoder(["yes"], seeds=5), "seeds"),
        (lambda: guide.decoder(["yes"], jump_forward="no"), "jump_forward"),
        (lambda: guide.logits_processor(["yes"], stop_token_ids=5), "stop_token_ids"),
        (lambda: guide.logits_processor(["yes"], stop_token_ids="x"), "stop_token_ids"),
        (lambda: guide.logits_processor(["yes"], overlap="yes"), "overlap"),
    ]
    for call, name in cases:
        with pytest.raises(hg.InvalidArgument, match=f"^{name}: expected"):
            call()
    with pytest.raises(hg.InvalidConstraint, match="prefix: expected a str"):
        guide.logits_processor(["yes"], prefix=5)


def test_retries_stop_after_success(model_and_tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from hf_guided.generation import run as batches

    checked = []
    monkeypatch.setattr(
        model_and_tokenizer[0], "forward", type(model_and_tokenizer[0]).forward.__get__(model_and_tokenizer[0])
    )
    refused = batches._was_refused
    monkeypatch.setattr(batches, "_was_refused", lambda result: checked.append(result) or refused(result))
    [result] = hg.generate(*model_and_tokenizer, "Hi", ["yes"], retries=1000)
    assert result.value == "yes" and len(checked) == 1


@pytest.mark.parametrize(
    "constraint",
    [Person, {"type": "object"}, re.compile("a"), hg.Regex("a"), list[int]],
    ids=lambda constraint: str(constraint)[:20],
)
@pytest.mark.parametrize("prompt", ["a prompt", ["a", "b"], CHAT, [CHAT]], ids=["text", "texts", "chat", "chats"])
def test_swapped_prompts_and_constraint_are_refused(model_and_tokenizer: Any, constraint: Any, prompt: Any) -> None:
    with pytest.raises(hg.InvalidArgument, match="prompts before the constraint.*swap the two"):
        hg.generate(*model_and_tokenizer, constraint, prompt)
    with pytest.raises(hg.InvalidArgument, match="swap the two"):
        hg.Model(*model_and_tokenizer)(constraint, prompt)


def test_prompt_in_the_position_of_the_constraint_is_refused(model_and_tokenizer: Any) -> None:
    with pytest.raises(hg.InvalidArgument, match="a chat is a prompt"):
        hg.generate(*model_and_tokenizer, "x", CHAT)
    with pytest.raises(hg.InvalidConstraint, match="a prompt comes before the constraint"):
        hg.generate(*model_and_tokenizer, ["yes", "no"], "a prompt")


def test_error_for_max_length_suggests_max_new_tokens(model_and_tokenizer: Any) -> None:
    model, tokenizer = model_and_tokenizer
    prompts = ["Hello there, my friend", "Hi"]
    lengths = [len(tokenizer(prompt)["input_ids"]) for prompt in prompts]
    for longest in (1, max(lengths)):
        message = (
            f"the {max(lengths)} tokens of the longest prompt.*max_length={max(lengths)} \\+ N is max_new_tokens=N"
        )
        with pytest.raises(hg.InvalidArgument, match=message):
            hg.generate(model, tokenizer, prompts, ["yes"], max_length=longest)
    config = GenerationConfig(max_length=1, eos_token_id=tokenizer.eos_token_id)
    with pytest.raises(hg.InvalidArgument, match="max_length: expected more than"):
        hg.generate(model, tokenizer, prompts, ["yes"], generation_config=config)
    with pytest.raises(hg.BudgetTooSmall, match=f"max_length={max(lengths) + 1} leaves 1 token.*pass max_new_tokens"):
        hg.generate(model, tokenizer, prompts, Person, max_length=max(lengths) + 1)


def test_error_for_an_invalid_tokenizer_names_its_type(model_and_tokenizer: Any) -> None:
    for call, given in product((hg.generate, hg.score), (None, object(), 5, model_and_tokenizer[1].backend_tokenizer)):
        with pytest.raises(hg.TokenizerError, match=f"got {type(given).__name__}; load it: AutoTokenizer"):
            call(model_and_tokenizer[0], given, "Hi", ["yes"])


def test_error_for_an_invalid_model_names_its_type(model_and_tokenizer: Any) -> None:
    for given in (model_and_tokenizer[0].config, model_and_tokenizer[0].model):
        with pytest.raises(hg.UnsupportedModel, match=f"got {type(given).__name__}; load it with a class"):
            hg.generate(given, model_and_tokenizer[1], "Hi", ["yes"])


def test_error_for_a_missing_chat_template_says_what_to_set(model_and_tokenizer: Any) -> None:
    from transformers import pipeline

    hg.register()
    tokenizer = copy.deepcopy(model_and_tokenizer[1])
    tokenizer.chat_template = None
    guided = pipeline("guided-generation", model=model_and_tokenizer[0], tokenizer=tokenizer)
    for call in (
        lambda: hg.generate(model_and_tokenizer[0], tokenizer, CHAT, ["yes"]),
        lambda: hg.score(model_and_tokenizer[0], tokenizer, CHAT, ["yes"]),
        lambda: guided(CHAT, response_format=["yes"]),
    ):
        with pytest.raises(hg.PromptError, match=r"has no chat template.*set tokenizer.chat_template.*plain text"):
            call()
