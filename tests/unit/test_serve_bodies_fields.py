"""Every field of the APIs is held, accepted without effect, or refused by name.

The names come from the types of the ``openai`` package, so a new version of it fails here until its new fields are
decided. vLLM's and SGLang's are listed by hand.
"""

from __future__ import annotations

import re
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from hf_guided.constraints.values import Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag
from hf_guided.serve.bodies.chat import read_chat
from hf_guided.serve.bodies.completion import read_completion
from hf_guided.serve.bodies.generation import Defaults
from hf_guided.serve.bodies.response import read_response
from hf_guided.serve.error_responses import RequestRefused
from hf_guided.serve.job import Call
from hf_guided.serve.options import ServeOptions
from hf_guided.serve.token_routes import read_detokenize, read_tokenize

DEFAULTS = Defaults(ServeOptions("demo"), 1000, template_variables=frozenset({"enable_thinking", "style"}))
SMALLEST: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "Hello"}]},
    "completion": {"prompt": "Hello"},
    "response": {"input": "Hello"},
}
READERS = {"chat": read_chat, "completion": read_completion, "response": read_response}
PARAMS: dict[str, Any] = {
    "chat": chat_params.CompletionCreateParamsStreaming,
    "completion": completion_create_params.CompletionCreateParamsStreaming,
    "response": response_create_params.ResponseCreateParamsStreaming,
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
FUNCTION = {"name": "f", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
FLAT_TOOL = {"type": "function", **FUNCTION}
FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": SCHEMA}}
TAG = {"type": "structural_tag", "format": {"type": "any_text"}}


def read(route: str, **fields: Any) -> Call:
    return READERS[route]({**SMALLEST[route], **fields}, DEFAULTS)


def refusal(route: str, **fields: Any) -> dict[str, Any]:
    with pytest.raises(RequestRefused) as refused:
        read(route, **fields)
    assert refused.value.status == 400
    return refused.value.body["error"]


# A value for every field that changes the call; the fields that it needs beside it.
_SAMPLING: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.1,
    "repetition_penalty": 1.1,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "logit_bias": {"5": 100},
    "seed": 7,
    "stop": ["\n"],
    "stop_token_ids": [3],
    "stream": True,
    "generation_config": '{"do_sample": false}',
}
_CONSTRAINTS: dict[str, Any] = {
    "structured_outputs": {"json": SCHEMA},
    "guided_json": SCHEMA,
    "guided_regex": "a+",
    "guided_choice": ["a", "b"],
    "guided_grammar": 'root ::= "a"',
    "regex": "a+",
    "json_schema": '{"type": "integer"}',
    "ebnf": 'root ::= "a"',
    "structural_tag": TAG,
}
_COMPLETIONS: dict[str, Any] = {
    "n": 2,
    "best_of": 3,
    "max_tokens": 9,
    "response_format": FORMAT,
    "stream_options": ({"include_usage": True}, {"stream": True}),
}
HELD: dict[str, dict[str, Any]] = {
    "chat": {
        **_SAMPLING,
        **_CONSTRAINTS,
        **_COMPLETIONS,
        "messages": [{"role": "user", "content": "Bye"}],
        "max_completion_tokens": 9,
        "logprobs": True,
        "top_logprobs": (3, {"logprobs": True}),
        "tools": [TOOL],
        "tool_choice": ("required", {"tools": [TOOL]}),
        "parallel_tool_calls": (False, {"tools": [TOOL]}),
        "reasoning_effort": "low",
        "chat_template_kwargs": {"style": "short"},
    },
    "completion": {
        **_SAMPLING,
        **_CONSTRAINTS,
        **_COMPLETIONS,
        "prompt": ["Bye", "Hello"],
        "echo": True,
        "logprobs": 2,
    },
    "response": {
        **_SAMPLING,
        **_CONSTRAINTS,
        "input": "Bye",
        "instructions": "Be brief.",
        "max_output_tokens": 9,
        "text": {"format": {"type": "json_schema", "name": "r", "schema": SCHEMA}},
        "tools": [FLAT_TOOL],
        "tool_choice": ("required", {"tools": [FLAT_TOOL]}),
        "parallel_tool_calls": (False, {"tools": [FLAT_TOOL]}),
        "reasoning": {"effort": "low"},
        "top_logprobs": 3,
        "include": ["message.output_text.logprobs"],
        "chat_template_kwargs": {"style": "short"},
        # Answers repeat these, which is all that becomes of them.
        "metadata": {"a": "b"},
        "user": "u",
        "safety_identifier": "u",
        "prompt_cache_key": "k",
    },
}
_FOR_NOTHING = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "u", "prompt_cache_key": "k"}
_FOR_NOTHING |= {"service_tier": "auto", "prompt_cache_options": {"mode": "implicit"}, "session_id": "s"}
_FOR_NOTHING |= {"prompt_cache_retention": "24h", "model": "demo"}
# Accepted without effect.
NO_EFFECT: dict[str, dict[str, Any]] = {
    "chat": _FOR_NOTHING,
    "completion": _FOR_NOTHING,
    "response": {
        **{name: value for name, value in _FOR_NOTHING.items() if name not in HELD["response"]},
        "stream_options": ({"include_obfuscation": False}, {"stream": True}),
    },
}
# Refused with this value; where a second one is given, it asks for what the server does anyway.
_OPENAI_REFUSED: dict[str, tuple[Any, ...]] = {"store": (True, False), "moderation": ({"model": "m"},)}
REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "chat": {
        **_OPENAI_REFUSED,
        "audio": ({"format": "wav", "voice": "alloy"},),
        "function_call": ("auto",),
        "functions": ([FUNCTION], []),
        "modalities": (["text", "audio"], ["text"]),
        "prediction": ({"type": "content", "content": "x"},),
        "verbosity": ("low", "medium"),
        "web_search_options": ({},),
    },
    "completion": {"suffix": ("x",)},
    "response": {
        **_OPENAI_REFUSED,
        "access_programs": ({"cyber": "standard"},),
        "background": (True, False),
        "background_options": ({},),
        "context_management": ([{"type": "compaction"}], []),
        "conversation": ("conv_1",),
        "image": ({"context_compression": "auto"},),
        "max_tool_calls": (1,),
        "previous_response_id": ("resp_1",),
        "prompt": ({"id": "p"},),
        "truncation": ("auto", "disabled"),
    },
}
_SHARED_EXTRAS: dict[str, tuple[Any, ...]] = {
    # vLLM's
    "allowed_token_ids": ([1],),
    "bad_words": (["x"], []),
    "cache_salt": ("x",),
    "ec_transfer_params": ({},),
    "guided_decoding_backend": ("xgrammar",),
    "guided_whitespace_pattern": (" ",),
    "ignore_eos": (True, False),
    "include_stop_str_in_output": (True, False),
    "kv_transfer_params": ({},),
    "length_penalty": (2.0, 1.0),
    "logits_processors": ([],),
    "logprob_token_ids": ([1],),
    "min_tokens": (5, 0),
    "priority": (1, 0),
    "prompt_logprobs": (1,),
    "repetition_detection": ({},),
    "request_id": ("r",),
    "return_mm_kwargs": (False, True),
    "return_token_ids": (True, False),
    "return_token_offsets": (True, False),
    "return_tokens_as_token_ids": (True, False),
    "routed_experts_prompt_start": (1, 0),
    "skip_special_tokens": (False, True),
    "spaces_between_special_tokens": (False, True),
    "stream_interval": (2, 1),
    "thinking_token_budget": (9, -1),
    "truncate_prompt_tokens": (9,),
    "truncation_side": ("left",),
    "use_beam_search": (True, False),
    "vllm_xargs": ({},),
    "watermarking": (True, False),
    # SGLang's
    "bootstrap_host": ("h",),
    "bootstrap_port": (1,),
    "bootstrap_room": (1,),
    "custom_labels": ({},),
    "custom_logit_processor": ("x",),
    "custom_params": ({},),
    "data_parallel_rank": (0,),
    "disagg_prefill_dp_rank": (0,),
    "extra_key": ("x",),
    "images_config": ({},),
    "lora_path": ("/etc/passwd",),
    "ngram_corpus_id": ("x",),
    "no_stop_trim": (True, False),
    "return_cached_tokens_details": (True, False),
    "return_hidden_states": (True, False),
    "return_meta_info": (True, False),
    "return_prompt_token_ids": (True, False),
    "return_routed_experts": (True, False),
    "rid": ("r",),
    "routed_dp_rank": (0,),
    "routed_experts_start_len": (1, 0),
    "session_params": ({},),
    "stop_regex": ("a",),
}
EXTRAS_REFUSED: dict[str, dict[str, tuple[Any, ...]]] = {
    "chat": {
        **_SHARED_EXTRAS,
        "add_generation_prompt": (False, True),
        "add_special_tokens": (True, False),
        "chat_template": ("{{ messages }}",),
        "chat_template_content_format": ("openai", "auto"),
        "continue_final_message": (True, False),
        "documents": ([{"text": "x"}], []),
        "echo": (True, False),
        "include_reasoning": (False, True),
        "input_ids": ([1],),
        "max_dynamic_patch": (1,),
        "media_io_kwargs": ({},),
        "min_dynamic_patch": (1,),
        "mm_processor_kwargs": ({},),
        "reasoning": ({"effort": "low"},),
        "return_prompt_text": (True, False),
        "separate_reasoning": (False, True),
        "stream_reasoning": (False, True),
        "task": ("query",),
        "use_audio_in_video": (True, False),
    },
    "completion": {**_SHARED_EXTRAS, "add_special_tokens": (False, True), "prompt_embeds": ("x",)},
    "response": {
        **_SHARED_EXTRAS,
        "enable_response_messages": (True, False),
        "mm_processor_kwargs": ({},),
        "previous_input_messages": ([],),
        "previous_response": ({},),
    },
}


def cases(table: dict[str, dict[str, Any]]) -> Any:
    return pytest.mark.parametrize(("route", "name"), [(route, name) for route in table for name in table[route]])


@pytest.mark.parametrize("route", PARAMS)
def test_every_field_of_the_openai_package_is_decided(route):
    known = set(typing.get_type_hints(PARAMS[route]))
    decided = [*HELD[route], *NO_EFFECT[route], *REFUSED[route]]
    assert len(decided) == len(set(decided))
    assert known - set(decided) == set()


@cases(HELD)
def test_held(route, name):
    value, beside = HELD[route][name] if isinstance(HELD[route][name], tuple) else (HELD[route][name], {})
    assert read(route, **beside, **{name: value}) != read(route, **beside)
    assert read(route, **beside, **({} if name in SMALLEST[route] else {name: None})) == read(route, **beside)


@cases(NO_EFFECT)
def test_accepted_without_effect(route, name):
    given = NO_EFFECT[route][name]
    value, beside = given if isinstance(given, tuple) else (given, {})
    assert read(route, **beside, **{name: value}) == read(route, **beside)


@cases({route: {**REFUSED[route], **EXTRAS_REFUSED[route]} for route in REFUSED})
def test_refused_by_name(route, name):
    value, *same = {**REFUSED[route], **EXTRAS_REFUSED[route]}[name]
    error = refusal(route, **{name: value})
    assert (error["code"], error["param"]) == ("unsupported_field", name)
    assert name in error["message"]
    for accepted in [*same, None]:
        call = read(route, **{name: accepted})
        assert (call, call.body.get(name)) in ((read(route), None), (call, accepted))


@pytest.mark.parametrize("route", READERS)
def test_unknown_fields_are_refused_with_the_nearest_name(route):
    error = refusal(route, temprature=1, foo=2)
    assert error["code"] == "unknown_field"
    assert error["param"] == "temprature"
    assert "did you mean 'temperature'?" in error["message"]
    assert "foo" in error["message"]


def test_the_guide_names_every_field_that_is_held():
    guide = (Path(__file__).parents[2] / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")
    table = guide.partition("\n## Fields\n")[2].partition("\n## ")[0]
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", table))))
    for names in (*HELD.values(), *NO_EFFECT.values()):
        assert set(names) - words == set()


_PARTS: dict[str, tuple[str, Any, Any]] = {}


def _part(where: str, route: str, kind: Any, build: Any) -> None:
    for name in typing.get_type_hints(kind):
        _PARTS[f"{where}.{name}"] = (route, build, name)


def _collect_parts() -> None:
    from openai.types import chat, responses, shared_params

    def message(**base: Any) -> Any:
        return lambda extra: {"messages": [{**base, **extra}]}

    def part(**base: Any) -> Any:
        return lambda extra: {"messages": [{"role": "user", "content": [{**base, **extra}]}]}

    def item(**base: Any) -> Any:
        return lambda extra: {"input": [{"role": "user", "content": "x"}, {**base, **extra}]}

    text = {"role": "system", "content": "x"}
    _part("system", "chat", chat.ChatCompletionSystemMessageParam, message(**text))
    _part("developer", "chat", chat.ChatCompletionDeveloperMessageParam, message(**text))
    _part("user", "chat", chat.ChatCompletionUserMessageParam, message(role="user", content="x"))
    _part("assistant", "chat", chat.ChatCompletionAssistantMessageParam, message(role="assistant", content="x"))
    tool_message = message(role="tool", content="x", tool_call_id="1")
    _part("tool", "chat", chat.ChatCompletionToolMessageParam, tool_message)
    _part("text", "chat", chat.ChatCompletionContentPartTextParam, part(type="text", text="x"))
    image = part(type="image_url", image_url={"url": "data:image/png;base64,AA"})
    _part("image", "chat", chat.ChatCompletionContentPartImageParam, image)
    _part("tool", "chat", chat.ChatCompletionFunctionToolParam, lambda extra: {"tools": [{**TOOL, **extra}]})
    _part(
        "function",
        "chat",
        shared_params.FunctionDefinition,
        lambda extra: {"tools": [{"type": "function", "function": {**FUNCTION, **extra}}]},
    )
    _part(
        "stream_options",
        "chat",
        chat.ChatCompletionStreamOptionsParam,
        lambda extra: {"stream": True, "stream_options": extra},
    )
    _part("flat tool", "response", responses.FunctionToolParam, lambda extra: {"tools": [{**FLAT_TOOL, **extra}]})
    _part("text", "response", responses.ResponseTextConfigParam, lambda extra: {"text": extra})
    _part("reasoning", "response", shared_params.Reasoning, lambda extra: {"reasoning": extra})
    _part("message", "response", responses.EasyInputMessageParam, item(role="user", content="x"))
    call = item(type="function_call", call_id="1", name="f", arguments="{}")
    _part("function_call", "response", responses.ResponseFunctionToolCallParam, call)
    output = item(type="function_call_output", call_id="1", output="x")
    _part("output", "response", responses.response_input_param.FunctionCallOutput, output)
    _part("reasoning item", "response", responses.ResponseReasoningItemParam, item(type="reasoning", summary=[]))
    answer = item(type="message", role="assistant", content="x")
    _part("output message", "response", responses.ResponseOutputMessageParam, answer)


_collect_parts()


@pytest.mark.parametrize("case", _PARTS)
def test_fields_inside_messages_and_tools_are_known(case):
    """They may be refused, by name or for their value, but none is unknown."""
    route, build, name = _PARTS[case]
    try:
        read(route, **build({name: {"no": "such value"}}))
    except RequestRefused as refused:
        assert refused.code != "unknown_field" or refused.body["error"]["param"].endswith(f"{name}.no"), refused
        assert refused.body["error"]["param"]
    if build({}).keys() & {"messages", "input"}:  # the body of a conversation, which may have notes of clients
        seen = replace(DEFAULTS, takes_images=True)
        noted, plain = (READERS[route]({**SMALLEST[route], **build(extra)}, seen) for extra in ({"foo": 1}, {}))
        assert noted == plain
    else:
        assert refusal(route, **build({"foo": 1}))["code"] == "unknown_field"


@pytest.mark.parametrize("route", READERS)
@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"structured_outputs": {"json": SCHEMA}}, JsonSchema(SCHEMA)),
        ({"structured_outputs": {"json": '{"type": "integer"}'}}, JsonSchema({"type": "integer"})),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(["a", "b"])),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Grammar('root ::= "a"')),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"structured_outputs": {"json_object": False, "regex": "a"}}, Regex("a")),
        ({"structured_outputs": {}}, None),
        ({"guided_json": SCHEMA}, JsonSchema(SCHEMA)),
        ({"guided_regex": "a+"}, Regex("a+")),
        ({"guided_choice": ["a", "b"]}, Choice(["a", "b"])),
        ({"guided_grammar": 'root ::= "a"'}, Grammar('root ::= "a"')),
        ({"regex": "a+"}, Regex("a+")),
        ({"json_schema": '{"type": "integer"}'}, JsonSchema({"type": "integer"})),
        ({"ebnf": 'root ::= "a"'}, Grammar('root ::= "a"')),
        ({"structural_tag": TAG}, StructuralTag(TAG)),
    ],
)
def test_constraint_fields_of_other_servers(route, fields, constraint):
    call = read(route, **fields)
    assert call.constraint == constraint
    assert call.param is None if constraint is None else call.param.partition(".")[0] in fields


def test_tokenize_and_detokenize():
    text, prompt = read_tokenize({"model": "demo", "prompt": "Hello", "return_token_strs": True}, DEFAULTS)
    assert (prompt, text.add_special_tokens, text.return_token_strs) == ("Hello", None, True)
    chat, prompt = read_tokenize({**SMALLEST["chat"], "tools": [TOOL], "add_generation_prompt": False}, DEFAULTS)
    assert not chat.add_generation_prompt
    assert prompt == read("chat", tools=[TOOL]).prompts[0]
    assert read_detokenize({"tokens": [0, 999]}, DEFAULTS) == [0, 999]
    of_chats = ({"tools": [TOOL]}, {"add_generation_prompt": False}, {"chat_template_kwargs": {}}, SMALLEST["chat"])
    wrong_texts = [{"prompt": "a", **fields} for fields in (*of_chats, {"chat_template": "x"})]
    for body in (*wrong_texts, {}, {"prompt": 5}, []):
        with pytest.raises(RequestRefused) as refused:
            read_tokenize(body, DEFAULTS)
        assert refused.value.status == 400
    for tokens in ([1000], [-1], [True], ["1"], 5, None, [10**400]):
        with pytest.raises(RequestRefused) as refused:
            read_detokenize({"tokens": tokens}, DEFAULTS)
        assert refused.value.status == 400
