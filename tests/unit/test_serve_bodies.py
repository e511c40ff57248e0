"""From request bodies to calls: values, limits, messages, and the errors of malformed and hostile ones."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig, GenerationMixin

from hf_guided.constraints.tool_calls import ToolCalls
from hf_guided.constraints.values import JsonSchema, Regex
from hf_guided.serve.bodies.chat import read_chat
from hf_guided.serve.bodies.completion import read_completion
from hf_guided.serve.bodies.generation import Defaults
from hf_guided.serve.bodies.response import read_response
from hf_guided.serve.engines.sampler import SharedAnswer
from hf_guided.serve.error_responses import RequestRefused
from hf_guided.serve.job import FILTERS, Call, Chat, Sampling
from hf_guided.serve.options import ServeLimits, ServeOptions
from hf_guided.serve.token_routes import read_detokenize, read_tokenize
from tests.effort import repeats

DEFAULTS = Defaults(ServeOptions("demo"), 1000)
USER = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def limited(**limits: Any) -> Defaults:
    return replace(DEFAULTS, options=ServeOptions("demo", limits=ServeLimits(**limits)))


def chat(*messages: Any, defaults: Defaults = DEFAULTS, **fields: Any) -> Call:
    return read_chat({"messages": list(messages) or [USER], **fields}, defaults)


def response(given: Any = "Hello", defaults: Defaults = DEFAULTS, **fields: Any) -> Call:
    return read_response({"input": given, **fields}, defaults)


def completion(prompt: Any = "Hello", defaults: Defaults = DEFAULTS, **fields: Any) -> Call:
    return read_completion({"prompt": prompt, **fields}, defaults)


def refusal(read: Any, *arguments: Any, **fields: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        read(*arguments, **fields)
    return refused.value


def messages_of(call: Call) -> list[Any]:
    [prompt] = call.prompts
    assert isinstance(prompt, Chat)
    return list(prompt.messages)


HUGE = 10**400
WRONG: list[tuple[dict[str, Any], str]] = [
    *[({"temperature": value}, "temperature") for value in (-1, 101, float("nan"), float("inf"), HUGE, True, "1", [])],
    *[({"top_p": value}, "top_p") for value in (5, -0.1, float("nan"), "0.5", False)],
    *[({"top_k": value}, "top_k") for value in (-2, 1.5, HUGE, True)],
    *[({"min_p": value}, "min_p") for value in (-1, 2)],
    *[({"repetition_penalty": value}, "repetition_penalty") for value in (0, -1, 1e-40, 1e9)],
    *[({"frequency_penalty": value}, "frequency_penalty") for value in (-2.1, 2.1)],
    *[({"presence_penalty": value}, "presence_penalty") for value in (-2.1, 2.1, "x")],
    *[({name: value}, name) for name in ("max_tokens", "n", "best_of") for value in (0, -1, 2.0, HUGE, True, "5")],
    *[({"seed": value}, "seed") for value in ("x", 2**70, -(2**70), 2**63, 1.5, True, HUGE)],
    *[({"stop": value}, "stop") for value in (5, ["a"] * 17, {"a": 1})],
    *[({"stop": value}, f"stop.{at}") for value, at in (("", 0), (["a", "b" * 257], 1), (["a", 5], 1))],
    *[({"stop_token_ids": value}, "stop_token_ids.1") for value in ([1, 1000], [1, -1], [1, HUGE], [1, True])],
    *[({"logit_bias": {key: 1}}, "logit_bias") for key in ("1000", "-1", "x", "1.0", "²", "9" * 400, "")],
    *[({"logit_bias": {"5": v}}, "logit_bias.5") for v in (101, -101, "1", True, None, [], float("nan"), HUGE)],
    ({"logit_bias": {str(i): 1 for i in range(1025)}}, "logit_bias"),
    ({"logit_bias": [[5, 1]]}, "logit_bias"),
    ({"n": 17}, "n"),
    ({"n": 3, "best_of": 2}, "best_of"),
    ({"best_of": 2, "stream": True}, "best_of"),
    ({"stream": "true"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
    ({"response_format": "json"}, "response_format"),
    ({"response_format": {"type": "yaml"}}, "response_format"),
    ({"response_format": {"type": "structural_tag", "format": {"type": "tag"}}}, "response_format"),
    ({"response_format": {"type": "json_object"}, "regex": "a"}, "response_format"),
    ({"guided_json": 5}, "guided_json"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_json": {"const": HUGE}}, "guided_json.const"),
    ({"guided_regex": "("}, "guided_regex"),
    ({"guided_choice": []}, "guided_choice"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs.regex"),
    ({"structured_outputs": {"regexp": "a"}}, "structured_outputs.regexp"),
    ({"generation_config": "{"}, "generation_config"),
    ({"generation_config": '{"temperature": -1}'}, "generation_config.temperature"),
    ({"generation_config": '{"num_beams": 5}'}, "generation_config.num_beams"),
    ({"generation_config": '{"max_new_tokens": 5}', "max_tokens": 6}, "max_tokens"),
    ({"metadata": {"a": "\ud800"}}, "metadata.a"),
]
WRONG_IN_CHATS: list[tuple[dict[str, Any], str]] = [
    ({"messages": []}, "messages"),
    ({"messages": None}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": [5]}, "messages.0"),
    ({"messages": [USER, {"content": "x"}]}, "messages.1.role"),
    *[({"messages": [USER, {"role": role, "content": "x"}]}, "messages.1.role") for role in ("function", None, [], 5)],
    ({"messages": [{"role": "user"}]}, "messages.0.content"),
    ({"messages": [USER, {"role": "user", "content": 5}]}, "messages.1.content"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0.text"),
    ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages.0.content.0.type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "txet": 1}]}]},
        "messages.0.content.0.txet",
    ),
    ({"messages": [{"role": "user", "content": "a", "nmae": "b"}]}, "messages.0.nmae"),
    ({"messages": [{"role": "user", "content": "\udfff"}]}, "messages.0.content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.tool_call_id"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]},
        "messages.0.content.0",
    ),
    *[
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": text}}]}]},
            "messages.0.tool_calls.0.function.arguments",
        )
        for text in ("{", "[]", "5", 5, '{"a": NaN}', "[" * 100_000, '{"a": 1, "a": 2}')
    ],
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": None}]}]}, "messages.0.content.0.text"),
    *[
        ({"messages": [USER, {"role": "assistant", "tool_calls": [call]}]}, f"messages.1.tool_calls.0{path}")
        for call, path in (
            (None, ""),
            ({"function": None}, ".function"),
            ({"id": "1"}, ".function"),
            ({"function": {"arguments": "{}"}}, ".function.name"),
            ({"function": {"name": None}}, ".function.name"),
            ({"function": {"name": ""}}, ".function.name"),
            ({"function": {"name": 5}}, ".function.name"),
            ({"function": {"name": "f", "arguments": []}}, ".function.arguments"),
        )
    ],
    ({"logprobs": 5}, "logprobs"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
    ({"reasoning_effort": "huge"}, "reasoning_effort"),
    ({"tools": {}}, "tools"),
    ({"tools": [{"type": "web_search"}]}, "tools.0.type"),
    ({"tools": [None]}, "tools.0"),
    ({"tools": [{"type": "function"}]}, "tools.0.function"),
    ({"tools": [{"type": "function", "function": None}]}, "tools.0.function"),
    ({"tools": [{"type": "function", "function": {}}]}, "tools.0.function.name"),
    ({"tools": [{"type": "function", "parameters": {}}]}, "tools.0.name"),
    ({"tools": [{"function": {"name": "f"}}]}, "tools.0.type"),
    ({"tools": [{"type": "function", "name": 5}]}, "tools.0.name"),
    ({"tools": [TOOL, TOOL]}, "tools"),
    ({"tool_choice": "required"}, "tool_choice"),
    *[
        ({"tools": [TOOL], "tool_choice": choice}, "tool_choice")
        for choice in (
            ["auto"],
            "f-",
            {"type": "function", "function": {"name": "g"}},
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        )
    ],
    *[
        ({"tools": [{"type": "function", "function": {"name": "a<b"}}], "tool_choice": choice}, "tools")
        for choice in ("required", "f-")
    ],
    ({"tools": [TOOL], "guided_regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ({"chat_template_kwargs": []}, "chat_template_kwargs"),
    *[
        ({"chat_template_kwargs": {name: "x"}}, f"chat_template_kwargs.{name}")
        for name in (
            "chat_template",
            "tokenize",
            "documents",
            "tools",
            "conversation",
            "conversations",
            "messages",
            "add_generation_prompt",
            "continue_final_message",
            "return_dict",
            "tokenizer_kwargs",
            "processor_kwargs",
            "max_length",
            "truncation",
            "bos_token",
            "raise_exception",
        )
    ],
    ({"chat_template_kwargs": {"enable_thinking": "no"}}, "chat_template_kwargs.enable_thinking"),
    (
        {"chat_template_kwargs": {"enable_thinking": False}, "reasoning_effort": "high"},
        "chat_template_kwargs.enable_thinking",
    ),
]
WRONG_IN_COMPLETIONS: list[tuple[dict[str, Any], str]] = [
    *[({"prompt": value}, "prompt") for value in (None, "", [], 5, {}, True, ["a"] * 129)],
    *[
        ({"prompt": value}, f"prompt.{at}")
        for value, at in ((["a", ""], 1), (["a", 5], 1), ([[1], []], 1), ([None], 0))
    ],
    *[({"prompt": value}, "prompt.1") for value in ([1, 1000], [1, "a"], [1, True], [1, -1], [1, HUGE], [1, 2.0])],
    ({"prompt": [[1], [2, 1000]]}, "prompt.1.1"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"logprobs": 1, "echo": True}, "echo"),
]
WRONG_IN_RESPONSES: list[tuple[dict[str, Any], str]] = [
    *[({"input": value}, "input") for value in (None, [], 5, {})],
    ({"input": [{"type": "item_reference", "id": "x"}]}, "input.0.type"),
    ({"input": [{"id": "x"}]}, "input.0.type"),
    ({"input": [{"role": "function", "content": "x"}]}, "input.0.role"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0.type"),
    ({"input": [{"type": "function_call", "call_id": "1", "arguments": "{}"}]}, "input.0.name"),
    ({"input": [{"type": "function_call", "call_id": "1", "name": "", "arguments": "{}"}]}, "input.0.name"),
    *[
        ({"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": text}]}, "input.0.arguments")
        for text in ("{", "[]", "null", 5, '{"a": 1, "a": 2}')
    ],
    ({"tools": [{"type": "function"}]}, "tools.0.name"),
    ({"input": [{"type": "function_call", "call_id": "1", "name": "f"}]}, "input.0.arguments"),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": 5}]}, "input.0.output"),
    ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input.0.encrypted_content"),
    ({"include": ["reasoning.encrypted_content"]}, "include.0"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"metadata": {str(i): "x" for i in range(17)}}, "metadata"),
    ({"metadata": {"a": 1}}, "metadata"),
    ({"reasoning": {"effort": "huge"}}, "reasoning.effort"),
    ({"text": {"format": {"type": "json_schema", "schema": SCHEMA}}}, "text.format"),
    ({"text": "json"}, "text"),
    ({"top_logprobs": 21}, "top_logprobs"),
]


@pytest.mark.parametrize(
    ("read", "body", "param"),
    [
        *[(read_chat, {"messages": [USER], **fields}, param) for fields, param in [*WRONG, *WRONG_IN_CHATS]],
        *[(read_completion, {"prompt": "Hello", **fields}, param) for fields, param in [*WRONG, *WRONG_IN_COMPLETIONS]],
        *[(read_response, {"input": "Hello", **fields}, param) for fields, param in WRONG_IN_RESPONSES],
    ],
)
def test_wrong_values_are_refused_by_their_path(read, body, param):
    error = refusal(read, body, DEFAULTS)
    assert error.status == 400
    assert error.body["error"]["param"] == param
    assert error.body["error"]["type"] == "invalid_request_error"
    assert len(str(error)) < 600
    json.dumps(error.body).encode()


@pytest.mark.parametrize("body", [None, [], "x", 5, True, 1.5, [{}]])
def test_a_body_is_an_object(body):
    for read in (read_chat, read_completion, read_response, read_tokenize):
        assert refusal(read, body, DEFAULTS).status == 400
    assert refusal(read_detokenize, body, DEFAULTS).status == 400


def test_an_item_without_a_known_type_names_no_function_of_ours():
    for item in ({"type": []}, {}, {"x": 1}):
        error = refusal(read_response, {"input": [item]}, DEFAULTS)
        assert error.body["error"]["param"] == "input.0.type"
        assert "_kind" not in str(error)


def test_the_first_problems_are_all_named():
    error = refusal(chat, temperature=-1, top_p=2, seed="x", stop=5)
    assert all(name in str(error) for name in ("temperature", "top_p", "seed"))


def test_another_model_is_not_found():
    error = refusal(chat, model="gpt-5")
    assert (error.status, error.code, error.body["error"]["param"]) == (404, "model_not_found", "model")
    assert chat(model="demo") == chat()


GREEDY = Sampling()
HOT = Sampling(temperature=1.0)  # as OpenAI and vLLM have it where a request says nothing


@pytest.mark.parametrize(
    ("fields", "sampling"),
    [
        ({}, HOT),
        ({"temperature": 0}, GREEDY),
        ({"temperature": 1e-9, "top_p": 0.5}, replace(GREEDY, top_p=0.5)),
        ({"temperature": 0, "seed": 1}, replace(GREEDY, seed=1)),
        ({"temperature": 2}, replace(GREEDY, temperature=2.0)),
        ({"top_p": 0.5}, replace(GREEDY, temperature=1.0, top_p=0.5)),
        ({"top_k": 5}, replace(GREEDY, temperature=1.0, top_k=5)),
        ({"top_k": -1}, replace(GREEDY, temperature=1.0)),
        ({"top_k": 0}, replace(GREEDY, temperature=1.0)),
        ({"min_p": 0.5}, replace(GREEDY, temperature=1.0, min_p=0.5)),
        ({"seed": -5}, replace(GREEDY, temperature=1.0, seed=-5)),
        ({"n": 2}, replace(GREEDY, temperature=1.0)),
        ({"best_of": 2}, replace(GREEDY, temperature=1.0)),
        (
            {"frequency_penalty": 1, "presence_penalty": -1},
            replace(HOT, frequency_penalty=1.0, presence_penalty=-1.0),
        ),
        ({"logit_bias": {"5": 100, "6": -0.5}}, replace(HOT, logit_bias={5: 100.0, 6: -0.5})),
        ({"generation_config": '{"do_sample": true, "temperature": 4.0}'}, replace(GREEDY, temperature=4.0)),
        ({"generation_config": {"do_sample": False, "top_k": 3}}, replace(GREEDY, top_k=3)),
        ({"generation_config": {"do_sample": False}, "temperature": 2}, replace(GREEDY, temperature=2.0)),
        ({"generation_config": '{"temperature": 4.0}', "temperature": 2.0}, replace(GREEDY, temperature=2.0)),
    ],
)
def test_sampling(fields, sampling):
    assert chat(**fields).sampling == completion(**fields).sampling == sampling


def test_answers_that_are_drawn_alike_share_a_key():
    """The oracle is transformers: the settings for which it has a processor that filters or scales scores."""
    other = {"temperature": 0.5, "top_k": 5, "top_p": 0.5, "min_p": 0.5}
    config = GenerationConfig(do_sample=True, **other)
    warpers = GenerationMixin()._get_logits_processor(config)
    assert len(warpers) == len(other) == len(FILTERS)

    def key(**fields: Any) -> Any:
        job = SimpleNamespace(sampling=replace(HOT, **fields))
        answer = SimpleNamespace(scoring=SimpleNamespace(wants_batch=False), samples=job.sampling.draws, job=job)
        return SharedAnswer.batch_key.fget(answer)  # type: ignore[attr-defined]

    assert len({key(), *(key(**{name: value}) for name, value in other.items()), key(temperature=0.0)}) == 6
    assert key(seed=5, logit_bias={1: 2.0}) == key()
    assert [Sampling(temperature=value).draws for value in (0.0, 1e-9, 9e-6, 1e-5, 2.0)] == [False] * 3 + [True] * 2


def test_the_models_own_settings_are_the_defaults():
    config = SimpleNamespace(do_sample=True, temperature=0.6, top_p=0.95, top_k=20, min_p=None, repetition_penalty=1.05)
    own = Defaults(ServeOptions("demo"), 1000, config)
    sampling = Sampling(temperature=0.6, top_p=0.95, top_k=20, repetition_penalty=1.05)
    assert chat(defaults=own).sampling == sampling
    assert chat(defaults=own, top_k=0).sampling == replace(sampling, top_k=None)
    assert chat(defaults=own, temperature=0).sampling.temperature == 0
    config.do_sample = None  # as in most files: it says nothing, and the other values hold
    assert chat(defaults=Defaults(ServeOptions("demo"), 1000, config)).sampling == sampling
    assert chat(defaults=Defaults(ServeOptions("demo"), 1000, GenerationConfig())).sampling == HOT
    config.do_sample = False
    own = Defaults(ServeOptions("demo"), 1000, config)
    assert chat(defaults=own).sampling.temperature == 0
    assert chat(defaults=own, seed=1).sampling == replace(sampling, seed=1)


def test_numbers_of_answers_tokens_and_alternatives():
    assert (chat(n=3).num_answers, chat(n=3).best_of) == (3, 3)
    assert (completion(n=2, best_of=5).num_answers, completion(n=2, best_of=5).best_of) == (2, 5)
    assert chat().max_new_tokens is None
    assert chat(max_tokens=5).max_new_tokens == chat(max_completion_tokens=5, max_tokens=5).max_new_tokens == 5
    assert response(max_output_tokens=5).max_new_tokens == 5
    assert completion().max_new_tokens == 16  # as OpenAI has it
    limits = limited(max_answer_tokens=9)
    assert completion(defaults=limits).max_new_tokens == 9
    assert chat(defaults=limits, max_tokens=9).max_new_tokens == 9
    assert "9" in str(refusal(chat, defaults=limits, max_tokens=10))
    assert [chat(logprobs=True, top_logprobs=n).logprobs for n in (None, 0, 20)] == [0, 0, 20]
    assert (chat().logprobs, completion(logprobs=0).logprobs) == (None, 0)
    included = response(include=["message.output_text.logprobs"])
    assert (included.logprobs, response(top_logprobs=3).logprobs, response().logprobs) == (0, 3, None)


def test_streams():
    assert not chat().stream
    assert not chat(stream=True).include_usage
    assert chat(stream=True, stream_options={"include_usage": True}).include_usage
    assert not completion(stream=True, stream_options={"include_usage": False}).include_usage


def test_prompts():
    assert completion(["a", "b"]).prompts == ("a", "b")
    assert completion([1, 2]).prompts == ((1, 2),)
    assert completion([[1, 2], [3], "a"]).prompts == ((1, 2), (3,), "a")
    assert completion(stop="x").stop == ("x",)
    assert completion(stop=["x", "y"], stop_token_ids=[3]).stop_token_ids == (3,)


def test_messages_as_templates_read_them():
    """The oracle is transformers' own server, but for the space that it puts between the parts of a text."""
    from transformers.cli.serving.utils import BaseHandler, Modality

    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1, "b": null}'}}
    given = [
        {"role": "system", "content": "Be brief."},
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "assistant", "content": [{"type": "text", "text": "five"}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}]},
    ]
    expected = BaseHandler.get_processor_inputs_from_messages(given, Modality.LLM)
    assert messages_of(chat(*given)) == expected
    with_images = [*given, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}]
    expected = BaseHandler.get_processor_inputs_from_messages(with_images, Modality.VLM)
    shown = messages_of(chat(*with_images, defaults=replace(DEFAULTS, takes_images=True)))
    assert shown == expected


def test_what_templates_get_besides():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages_of(chat({"role": "user", "content": parts, "name": "Ada"})) == [
        {"role": "user", "content": "a\nb", "name": "Ada"}
    ]
    assert messages_of(chat({"role": "developer", "content": "x"}, USER))[0] == {"role": "system", "content": "x"}
    thought = {"role": "assistant", "content": "b", "reasoning_content": "a", "refusal": None, "annotations": []}
    expected = {"role": "assistant", "content": "b", "reasoning_content": "a"}
    assert messages_of(chat(USER, thought))[1] == expected


FOR_THE_MODEL: dict[str, Any] = {
    "images": [PIXEL],
    "image_url": PIXEL,
    "audio": {"id": "audio_1"},
    "input_audio": "UklGRg==",
    "videos": [PIXEL],
    "files": ["file_1"],
    "file_ids": ["file_1"],
    "documents": [{"text": "x"}],
    "experimental_attachments": [{"url": PIXEL}],
    "function_call": {"name": "f", "arguments": "{}"},
    "tool_call": {"name": "f"},
    "toolInvocations": [{"toolName": "f"}],
    "prefix": True,
    "partial": True,
    "parts": [{"type": "text", "text": "x"}],
    "text": "x",
}
NOTES: dict[str, Any] = {
    # As OpenAI's own client, LiteLLM, OpenRouter, Copilot, Gemini, Ollama, CodeCompanion and others send them.
    **dict.fromkeys(
        "id phase status thinking reasoning_text tool_name model created finish_reason signature".split(), "x"
    ),
    **dict.fromkeys("reasoning_details thinking_blocks annotations citations token_ids".split(), [{"x": 1}]),
    **dict.fromkeys(
        "cache_control provider_specific_fields extra_content usage metadata opts parsed".split(), {"x": 1}
    ),
    **dict.fromkeys([*(FOR_THE_MODEL.keys() - {"text"}), "refusal"], None),
    "weight": 1,
    "providerOptions": {"x": {}},
}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ROLES: dict[str, dict[str, Any]] = {
    "system": {"role": "system", "content": "x"},
    "user": USER,
    "assistant": {"role": "assistant", "content": "x", "tool_calls": [CALL]},
    "tool": {"role": "tool", "content": "x", "tool_call_id": "1"},
}
PLACES: dict[str, Any] = {
    **{role: (lambda more, m=m: chat(USER, {**m, **more}), "messages.1") for role, m in ROLES.items()},
    "part": (
        lambda more: chat(USER, {"role": "user", "content": [{"type": "text", "text": "x", **more}]}),
        "messages.1.content.0",
    ),
    "call": (
        lambda more: chat(USER, {"role": "assistant", "tool_calls": [{**CALL, **more}]}),
        "messages.1.tool_calls.0",
    ),
    "function": (
        lambda more: chat(USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", **more}}]}),
        "messages.1.tool_calls.0.function",
    ),
    "item": (lambda more: response([USER, {**USER, **more}]), "input.1"),
    "output": (lambda more: response([USER, {"role": "assistant", "content": "x", **more}]), "input.1"),
    "item of a call": (
        lambda more: response([USER, {"type": "function_call", "call_id": "1", "name": "f", "arguments": "", **more}]),
        "input.1",
    ),
    "tokens": (
        lambda more: SimpleNamespace(prompts=[read_tokenize({"messages": [{**USER, **more}]}, DEFAULTS)[1]]),
        "messages.0",
    ),
}


def held_elsewhere(place: str) -> dict[str, Any]:
    """Fields for the model that an object at this place does not hold."""
    return {name: value for name, value in FOR_THE_MODEL.items() if (place, name) != ("part", "text")}


@pytest.mark.parametrize("place", PLACES)
def test_notes_in_messages_change_nothing(place):
    build, _ = PLACES[place]
    for name, value in NOTES.items():
        if (place, name) == ("call", "id"):  # which is a field of calls
            continue
        assert messages_of(build({name: value})) == messages_of(build({})), name
    for name, value in held_elsewhere(place).items():  # a value of the same type that says nothing
        assert messages_of(build({name: type(value)()})) == messages_of(build({})), name


@pytest.mark.parametrize("place", PLACES)
def test_fields_of_messages_that_would_change_the_answer_are_refused(place):
    build, path = PLACES[place]
    for name, value in held_elsewhere(place).items():
        error = refusal(build, {name: value})
        assert (error.status, error.code, error.body["error"]["param"]) == (400, "unsupported_field", f"{path}.{name}")
        assert str(error).startswith(f"{path}.{name}: ")


@pytest.mark.parametrize("name", ["args", "input", "kwargs", "parameters"])
def test_arguments_by_another_name_are_refused(name):
    error = refusal(chat, USER, {"role": "assistant", "tool_calls": [{"function": {"name": "f", name: {"a": 1}}}]})
    path = f"messages.1.tool_calls.0.function.{name}"
    assert (error.code, error.body["error"]["param"]) == ("unsupported_field", path)


@pytest.mark.parametrize(
    "misspelt", ["contnet", "conten", "contents", "kontent", "tool_callls", "nmae", "reasoning_contents"]
)
def test_misspelt_fields_of_messages_are_refused(misspelt):
    error = refusal(chat, USER, {"role": "assistant", misspelt: "x"})
    assert (error.code, error.body["error"]["param"]) == ("unknown_field", f"messages.1.{misspelt}")


TEXTS = ["{", "[]", "5", "null", '"x"', "f(1)", '{"a": "\\', "[" * 100, '<parameter="a">\n1']


@pytest.mark.parametrize("text", TEXTS)
def test_broken_arguments_stay_a_text_where_the_template_takes_one(text):
    takes_any = replace(DEFAULTS, takes_any_arguments=True)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}
    for read_call, asked, path in (
        (chat, (USER, {"role": "assistant", "tool_calls": [call]}), "messages.1.tool_calls.0.function.arguments"),
        (
            response,
            ([USER, {"type": "function_call", "call_id": "1", "name": "f", "arguments": text}],),
            "input.1.arguments",
        ),
    ):
        [_, message] = messages_of(read_call(*asked, defaults=takes_any))
        assert message["tool_calls"] == [call]
        error = refusal(read_call, *asked)
        assert (error.status, error.body["error"]["param"]) == (400, path)


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', r'{"a": "\ud83d"}', "[" * 100_000, '{"a":' * 100_000]
)
def test_arguments_that_readers_of_json_read_differently_are_refused(text):
    call = {"function": {"name": "f", "arguments": text}}
    takes_any = replace(DEFAULTS, takes_any_arguments=True)
    error = refusal(chat, USER, {"role": "assistant", "tool_calls": [call]}, defaults=takes_any)
    assert error.body["error"]["param"] == "messages.1.tool_calls.0.function.arguments"


@pytest.mark.parametrize(
    ("format", "chats", "responses"),
    [
        ({}, "type", "type"),
        ({"type": None}, "type", "type"),
        ({"type": "json_schema"}, "json_schema", "schema"),
        ({"type": "json_schema", "json_schema": None}, "json_schema", "schema"),
        ({"type": "json_schema", "name": "r"}, "json_schema", "schema"),
        ({"type": "json_schema", "json_schema": {}}, "json_schema.schema", "json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"name": "r"}}, "json_schema.schema", "json_schema.schema"),
        ({"type": "json_schema", "json_schema": {"schema": SCHEMA}}, "json_schema.name", "json_schema.name"),
        ({"type": "json_schema", "schema": SCHEMA}, "name", "name"),
        ({"type": "regex"}, "regex", "regex"),
        ({"type": "grammar"}, "grammar", "grammar"),
    ],
)
def test_what_is_missing_in_a_format_is_said_by_its_path(format, chats, responses):
    for error, path in (
        (refusal(chat, response_format=format), f"response_format.{chats}"),
        (refusal(completion, response_format=format), f"response_format.{chats}"),
        (refusal(response, text={"format": format}), f"text.format.{responses}"),
    ):
        assert error.status == 400
        assert str(error).startswith(f"{path}: expected ") and str(error).endswith(", but it is missing")


@pytest.mark.parametrize("url", ["/etc/passwd", "file:///etc/passwd", "http://169.254.169.254/", "https://a.example/x"])
def test_images_are_not_fetched(url):
    part = {"type": "image_url", "image_url": {"url": url}}
    images = replace(DEFAULTS, takes_images=True)
    error = refusal(chat, {"role": "user", "content": [part]}, defaults=images)
    assert (error.code, error.body["error"]["param"]) == ("unsupported_content", "messages.0.content.0.image_url")
    assert url not in str(error)
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]
    assert refusal(response, items, images).code == "unsupported_content"


def test_responses_as_messages():
    items = [
        {"role": "developer", "content": "Be polite."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {
            "type": "function_call",
            "id": "fc",
            "call_id": "1",
            "name": "f",
            "arguments": '{"a": 1}',
            "status": "completed",
        },
        {"type": "function_call", "call_id": "2", "name": "g", "arguments": ""},
        {"type": "function_call_output", "call_id": "1", "output": "5"},
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "five", "annotations": [], "logprobs": []}],
        },
    ]
    assert messages_of(response(items, instructions="Be brief.")) == [
        {"role": "system", "content": "Be brief.\n\nBe polite."},
        {"role": "user", "content": "Hello"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"type": "function", "id": "1", "function": {"name": "f", "arguments": {"a": 1}}},
                {"type": "function", "id": "2", "function": {"name": "g", "arguments": {}}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "5"},
        {"role": "assistant", "content": "five"},
    ]
    assert messages_of(response()) == [USER]


@pytest.mark.parametrize(
    "response_format",
    [
        {"type": "text"},
        {"type": "json_object"},
        {"type": "regex", "regex": "a"},
        {"type": "choice", "choice": ["a", "b"]},
        {"type": "grammar", "grammar": 'root ::= "a"'},
        {"type": "json_schema", "name": "r", "schema": SCHEMA, "strict": False},
    ],
)
def test_the_format_of_a_response_is_that_of_a_chat(response_format):
    nested = {"type": "json_schema", "json_schema": {k: v for k, v in response_format.items() if k != "type"}}
    asked, told = chat(response_format=nested if "schema" in response_format else response_format), response_format
    call = response(text={"format": told})
    assert (call.constraint, call.param) == (asked.constraint, asked.param and "text.format")
    assert (call.constraint is None) == (told["type"] == "text")


def shown(call: Call) -> Any:
    """The tools that the prompt shows."""
    calls = call.prompts[0].calls  # type: ignore[union-attr]
    return None if calls is None else tuple(calls.tools)


def test_tools_and_choices():
    flat = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": None}
    assert chat(tools=[TOOL]).constraint == response(tools=[flat]).constraint == ToolCalls([TOOL])
    assert shown(chat(tools=[TOOL])) == shown(response(tools=[flat])) == (TOOL,)
    one = chat(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "f"}}, parallel_tool_calls=False)
    assert one.constraint == ToolCalls([TOOL], choice="f", parallel=False)
    none = chat(tools=[TOOL], tool_choice="none")
    assert (none.constraint, shown(none)) == (ToolCalls([TOOL], choice="none"), None)
    formatted = chat(tools=[TOOL], tool_choice="none", response_format={"type": "regex", "regex": "a"})
    assert (formatted.constraint, formatted.param, shown(formatted)) == (Regex("a"), "response_format", None)
    other = {"type": "function", "function": {"name": "g", "strict": False}}
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [TOOL]}}
    call = chat(tools=[TOOL, other], tool_choice=allowed)
    assert call.constraint == ToolCalls([TOOL, other], choice=allowed)
    assert shown(call) == (TOOL, other)
    assert chat(tools=[], tool_choice="auto") == chat()


@pytest.mark.parametrize("choice", [None, "auto", "required", {"type": "function", "function": {"name": "f"}}])
def test_tools_beside_a_format(choice):
    format = {"type": "json_schema", "name": "r", "schema": SCHEMA}
    nested = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
    expected = ToolCalls([TOOL], choice=choice or "auto", parallel=False, answer=JsonSchema(SCHEMA, "compact"))
    compact = replace(DEFAULTS, options=ServeOptions("demo", whitespace="compact"))
    given = {"tools": [TOOL], "tool_choice": choice, "parallel_tool_calls": False, "defaults": compact}
    for call in (
        chat(response_format=nested, **given),
        chat(guided_json=SCHEMA, **given),
        response(text={"format": format}, **given),
    ):
        assert (call.constraint, call.param, shown(call)) == (expected, "tools", (TOOL,))
    assert chat(tools=[], response_format=nested).constraint == JsonSchema(SCHEMA)


def test_a_server_that_enforces_only_strict_tools():
    loose, strict = ({"type": "function", "function": {"name": name, "strict": name == "g"}} for name in "fg")
    strict_only = replace(DEFAULTS, options=ServeOptions("demo", enforce="strict-only"))
    for call, lenient, unchecked in (
        (chat(tools=[loose, strict]), ("f",), ()),
        (chat(tools=[loose, strict], defaults=strict_only), (), ("f",)),
    ):
        assert isinstance(call.constraint, ToolCalls)
        assert (call.constraint.lenient, call.constraint.unchecked) == (lenient, unchecked)
        assert shown(call) == (loose, strict)


def test_the_servers_layout_and_the_limit_of_schemas():
    compact = replace(DEFAULTS, options=ServeOptions("demo", whitespace="compact"))
    assert chat(defaults=compact, guided_json=SCHEMA).constraint == JsonSchema(SCHEMA, "compact")
    large = {"enum": ["x" * 100]}
    error = refusal(chat, defaults=limited(max_schema_bytes=100), guided_json=large)
    assert (error.code, error.body["error"]["param"]) == ("constraint_too_large", "guided_json")
    assert chat(defaults=limited(max_schema_bytes=200), guided_json=large).constraint == JsonSchema(large)


def test_thinking():
    assert chat().think is None
    for effort, think in (("none", False), ("minimal", False), ("low", True), ("xhigh", True)):
        assert chat(reasoning_effort=effort).think is response(reasoning={"effort": effort}).think is think
    assert chat(chat_template_kwargs={"enable_thinking": False}).think is False
    assert chat(chat_template_kwargs={"thinking": True}, reasoning_effort="high").think is True
    reads = replace(DEFAULTS, template_variables=frozenset({"enable_thinking", "reasoning_effort", "style"}))
    call = chat(defaults=reads, reasoning_effort="low", chat_template_kwargs={"style": "short"})
    assert call.prompts[0].template_variables == {  # type: ignore[union-attr]
        "style": "short",
        "reasoning_effort": "low",
        "enable_thinking": True,
    }
    error = refusal(chat, defaults=reads, chat_template_kwargs={"stile": "short"})
    assert (error.code, "did you mean 'style'?" in str(error)) == ("unknown_field", True)


def test_answers_of_responses_repeat_their_request():
    given = {"metadata": {"a": "b"}, "temperature": 0.5, "instructions": "Be brief.", "max_output_tokens": 5}
    flat = {"type": "function", "name": "f", "parameters": SCHEMA}
    assert response(**given, user=None, tools=[flat]).body == {**given, "tools": [{**flat, "strict": None}]}


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [USER], **{f"x{i}": 1 for i in range(200_000)}},
        {"messages": [{"role": "user", "content": [{"type": "x"}] * 200_000}]},
        {"messages": [{"x": 1}] * 200_000},
        {"messages": [USER], "logit_bias": {str(i): "x" for i in range(200_000)}},
        {"messages": [USER], "stop": [5] * 200_000},
        {"messages": [USER], "x" * 2_000_000: 1},
        {"messages": [USER], "metadata": {"x" * 2_000_000: [[]] * 100_000}, "n": "9" * 2_000_000},
        {"messages": [USER], "chat_template_kwargs": {"y" * 2_000_000: 1}, "guided_choice": [[]] * 300_000},
        {"messages": [USER], "tools": [{"type": "function", "function": {"name": 5}}] * 50_000},
        {"messages": [{**USER, **{f"n{i:03}": 1 for i in range(200_000)}, "images": [1]}]},
    ],
    ids=range(10),
)
def test_large_hostile_bodies_are_refused_quickly(body):
    """By CPU time, with a wide margin: each takes less than a second, quadratic work would take hours."""
    few = replace(DEFAULTS, template_variables=frozenset({"style"}))
    begin = time.process_time()
    error = refusal(read_chat, body, few)
    assert time.process_time() - begin < 10
    assert len(json.dumps(error.body)) < 1500


def test_deep_bodies():
    deep: Any = "x"
    for _ in range(20_000):
        deep = [deep]
    for name in ("messages", "metadata", "guided_json", "chat_template_kwargs", "tools"):
        error = refusal(chat, **{name: {"a": deep}} if name != "messages" else {name: deep})
        assert (error.status, error.code) == (400, "too_deep")
        assert error.body["error"]["param"].startswith(name)


_scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.sampled_from(
        ["auto", "none", "required", "text", "function", "user", "demo", "", 10**400, -1, 2**70, "{}", "["]
    )
)
_names = st.sampled_from(
    "type text role content name function arguments parameters tools format schema json_schema regex json choice "
    "grammar strict tool_calls call_id output url image_url include_usage allowed_tools mode effort 5 x".split()
)
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


def _fields(read: Any) -> Any:
    from hf_guided.serve.bodies.chat import ChatBody
    from hf_guided.serve.bodies.completion import CompletionBody
    from hf_guided.serve.bodies.response import ResponseBody
    from hf_guided.serve.token_routes import TokenizeBody

    model: Any = {
        read_chat: ChatBody,
        read_completion: CompletionBody,
        read_response: ResponseBody,
        read_tokenize: TokenizeBody,
    }[read]
    return st.sampled_from(sorted(model.model_fields))


_GOOD: dict[Any, dict[str, Any]] = {
    read_chat: {"messages": [USER]},
    read_completion: {"prompt": "Hello"},
    read_response: {"input": "Hello"},
    read_tokenize: {"prompt": "Hello"},
}


@pytest.mark.parametrize("read", _GOOD, ids=lambda read: read.__name__)
@settings(max_examples=repeats(30, 200))
@given(data=st.data())
def test_any_object_is_a_call_or_refused(read, data):
    given_fields = data.draw(st.dictionaries(_fields(read) | st.text(max_size=5), _values, max_size=4))
    body = {**(_GOOD[read] if data.draw(st.booleans()) else {}), **given_fields}
    few = replace(DEFAULTS, takes_images=data.draw(st.booleans()), takes_any_arguments=data.draw(st.booleans()))
    try:
        read(body, few)
    except RequestRefused as refused:
        assert refused.status in (400, 404)
        json.dumps(refused.body, allow_nan=False).encode()


@pytest.mark.parametrize("read", _GOOD, ids=lambda read: read.__name__)
@settings(max_examples=repeats(15, 60))
@given(data=st.data())
def test_an_answer_repeats_little_of_its_request(read, data):
    """Every text and name of the body is long and of one letter, which no message of ours has."""
    letters = st.integers(1, 3000).map(lambda number: "ж" * number)
    values = st.recursive(
        letters, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names | letters, inner, max_size=3)
    )
    body = {**_GOOD[read], **data.draw(st.dictionaries(_fields(read) | letters, values, min_size=1, max_size=5))}
    try:
        read(body, DEFAULTS)
    except RequestRefused as refused:
        assert json.dumps(refused.body, ensure_ascii=False).count("ж") <= 200
