"""Chats of two turns with tools, by the chat templates that models ship, in Python, in the pipeline and over HTTP.

The oracle is the prompt that the template writes: it has to hold each call once, as JSON, and each answer of a tool.
"""

from __future__ import annotations

import copy
import json
import os
import re
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from transformers import PreTrainedTokenizerBase, pipeline

import hf_guided as hg
from hf_guided.guide import calls_of
from hf_guided.serve.answers.answer import Answer
from hf_guided.serve.bodies.chat import read_chat
from hf_guided.serve.bodies.generation import Defaults
from hf_guided.serve.error_responses import RequestRefused
from hf_guided.serve.job import Job, Sampling
from hf_guided.serve.models import ServedModel
from hf_guided.serve.options import ServeOptions
from hf_guided.session.requests import Request
from tests import vocabularies
from tests.integration import models
from tests.serving import client, serving
from tests.tools import get_weather

FOLDER = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "chat-templates"
FILES = sorted(FOLDER.glob("*.jinja"))
if not FILES:
    pytest.skip(f"no chat templates in {FOLDER}", allow_module_level=True)
NAMES = [file.stem for file in FILES]
SPECIAL = re.compile(r"<\|[^<>|]+\|>|<｜[^<>｜]+｜>|\[/?[A-Z_]{3,}\]|</?think>|</?tool_call>|</?tool_response>")
ARGUMENTS = {"city": 'Rome "old" <é>'}
ANSWER = "dry, 21 degrees"
USER = {"role": "user", "content": "Will it rain?"}
THINKING = {
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": {},
    "deepseek-ai-DeepSeek-V3.1": {"thinking": True},
    "Qwen-Qwen3-0.6B": {"enable_thinking": True},
    "openai-gpt-oss-120b": {},
}


NO_TOOLS = "the chat template (does not show the tools|never reads tools)"


class Weather(BaseModel):
    dry: bool


def other(city: str) -> str:
    """Looks up something else.

    Args:
        city: The city.
    """
    return city


@cache
def tokenizer_of(name: str) -> PreTrainedTokenizerBase:
    source = (FOLDER / f"{name}.jinja").read_text()
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    marks = sorted({*SPECIAL.findall(source), *(["<|call|>", "<|constrain|>"] if "gpt-oss" in name else [])})
    tokenizer.add_special_tokens({"additional_special_tokens": marks, "bos_token": "<s>"})
    if "gpt-oss" in name:
        tokenizer.eos_token = "<|return|>"
    tokenizer.chat_template = source
    return tokenizer


@cache
def model_of(name: str) -> Any:
    model = models.llama(tokenizer_of(name))
    model.config.max_position_embeddings = 8192
    if "gpt-oss" in name:
        ends = tokenizer_of(name).convert_tokens_to_ids(["<|return|>", "<|call|>"])
        model.generation_config.eos_token_id = ends
    return model


class Prompts:
    """The prompts that a model's generate() is given, as text."""

    def __init__(self, name: str, monkeypatch: pytest.MonkeyPatch):
        self.model, self.tokenizer, self.texts = model_of(name), tokenizer_of(name), []
        generate = self.model.generate

        def heard(*args: Any, **kwargs: Any) -> Any:
            ids = kwargs.get("input_ids", kwargs.get("inputs"))
            self.texts += [self.tokenizer.decode(row) for row in ids]
            return generate(*args, **kwargs)

        monkeypatch.setattr(self.model, "generate", heard)


@pytest.fixture(params=NAMES)
def sent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Prompts:
    return Prompts(request.param, monkeypatch)


def test_the_folder_is_complete() -> None:
    assert len(NAMES) >= 8


def count_of(arguments: dict[str, Any], prompt: str) -> int:
    """How often they stand in the prompt, as JSON in any layout."""
    found = 0
    for start in (match.start() for match in re.finditer(r"\{", prompt)):
        try:
            found += json.JSONDecoder().raw_decode(prompt, start)[0] == arguments
        except ValueError:
            continue
    return found


def history(arguments: Any = ARGUMENTS, content: Any = "", call_id: str | None = "abcDEF123") -> list[dict[str, Any]]:
    call = {"type": "function", "function": {"name": "get_weather", "arguments": arguments}}
    answer = {"role": "tool", "name": "get_weather", "content": ANSWER}
    if call_id is not None:
        call, answer = {"id": call_id, **call}, {**answer, "tool_call_id": call_id}
    return [USER, {"role": "assistant", "content": content, "tool_calls": [call]}, answer]


@pytest.mark.parametrize("call_id", ["abcDEF123", "call_0123456789abcdef0123456789abcdef", "toolu_1", None])
@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("content", ["", None])
def test_the_prompt_of_a_second_turn_holds_the_call_once(
    sent: Prompts, call_id: str | None, as_text: bool, content: str | None
) -> None:
    arguments = json.dumps(ARGUMENTS, ensure_ascii=False) if as_text else ARGUMENTS
    chat = history(arguments, content, call_id)
    before = copy.deepcopy(chat)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NO_TOOLS)
        hg.generate(
            sent.model,
            sent.tokenizer,
            chat,
            Weather,
            do_sample=False,
            max_new_tokens=30,
            chat_template_kwargs={"tools": [get_weather]},
        )
    [prompt] = sent.texts
    assert count_of(ARGUMENTS, prompt) == 1, prompt
    assert prompt.count(ANSWER) == 1
    assert chat == before


def test_two_turns(sent: Prompts) -> None:
    tools = hg.ToolCalls([get_weather, other], choice="required", parallel=False)
    chat: list[dict[str, Any]] = [USER]
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 200, "show_tools": True}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NO_TOOLS)
        for turn in range(2):
            [result] = hg.generate(sent.model, sent.tokenizer, chat, tools, **options)
            assert result.finish_reason == "stop", result
            [call] = result.value.calls
            assert re.fullmatch("[0-9A-Za-z]{9}", call.id)
            chat.append(result.value.message)
            chat.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": f"{ANSWER} {turn}"})
        [result] = hg.generate(sent.model, sent.tokenizer, chat, Weather, **options)
    assert isinstance(result.value, Weather)
    for message in chat:
        for written in message.get("tool_calls", ()):
            arguments = written["function"]["arguments"]
            assert count_of(arguments, sent.texts[-1]) == [
                call["function"]["arguments"] for one in chat for call in one.get("tool_calls", ())
            ].count(arguments)
    ids = [call["id"] for message in chat for call in message.get("tool_calls", ())]
    assert len(set(ids)) == 2


def test_an_answer_begins_where_the_model_begins_it(sent: Prompts) -> None:
    hg.generate(sent.model, sent.tokenizer, [USER], Weather, do_sample=False, max_new_tokens=30)
    [prompt] = sent.texts
    name = next(name for name in NAMES if tokenizer_of(name) is sent.tokenizer)
    end = {"openai-gpt-oss-120b": "<|start|>assistant<|channel|>final<|message|>"}.get(name)
    if name.startswith("deepseek-ai-DeepSeek-R1"):
        end = "<think>\n\n</think>\n\n"
    if name.startswith("deepseek-ai-DeepSeek-V3.1"):
        end = "<｜Assistant｜></think>"
    if end is not None:
        assert prompt.endswith(end)
    assert "<think>" not in prompt[-20:] or "</think>" in prompt[-20:]


@pytest.mark.parametrize("name", [name for name in NAMES if name in THINKING])
@pytest.mark.parametrize("kind", ["format", "tools"])
def test_thinking_comes_before_the_answer(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = Prompts(name, monkeypatch)
    constraint = Weather if kind == "format" else hg.ToolCalls([get_weather], choice="required", parallel=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=NO_TOOLS)
        [result] = hg.generate(
            sent.model,
            sent.tokenizer,
            [USER],
            constraint,
            do_sample=False,
            max_new_tokens=200,
            reasoning=hg.Reasoning(max_tokens=20),
            chat_template_kwargs=THINKING[name],
        )
    assert result.finish_reason == "stop", result
    assert result.thinking
    written = sent.texts[0] + sent.tokenizer.decode(result.token_ids)
    if name == "openai-gpt-oss-120b":
        analysis = r"<\|start\|>assistant<\|channel\|>analysis<\|message\|>[^<>]*<\|end\|><\|start\|>assistant"
        header = r"<\|channel\|>final<\|message\|>\{" if kind == "format" else r"( to=|<\|channel\|>commentary to=)"
        assert re.search(analysis + header, written), written
        assert written.endswith(("<|call|>", "<|return|>"))  # both end an output
    else:
        assert re.search(r"<think>[^<>]*</think>", written)
    if kind == "tools":
        assert [call.name for call in result.value.calls] == ["get_weather"]
    else:
        assert isinstance(result.value, Weather)


@pytest.mark.parametrize("parallel", [True, False])
def test_a_call_of_the_template_that_ends_the_output(parallel: bool) -> None:
    """Where the mark after a call is a stop token there is one call at most, whatever is asked for."""
    name = "openai-gpt-oss-120b"
    tokenizer, asked = tokenizer_of(name), {"tools": [get_weather], "tokenize": False}
    prompt = tokenizer.apply_chat_template([USER], add_generation_prompt=True, **asked)
    written = tokenizer.apply_chat_template([USER, history()[1]], **asked).removeprefix(prompt)
    call = written[: written.index("<|call|>") + len("<|call|>")]
    matcher = hg.Guide(model_of(name), tokenizer).compile(hg.ToolCalls([get_weather], parallel=parallel)).matcher()
    assert all(map(matcher.accept_token, tokenizer.encode(call, add_special_tokens=False)))
    assert matcher.is_terminated()


def test_the_pipeline_renders_as_python_does(sent: Prompts) -> None:
    hg.register()
    chat = history(call_id="call_0123456789abcdef")
    guided = pipeline("guided-generation", model=sent.model, tokenizer=sent.tokenizer, device="cpu")
    guided(chat, response_format=Weather, do_sample=False, max_new_tokens=30)
    hg.generate(sent.model, sent.tokenizer, chat, Weather, do_sample=False, max_new_tokens=30)
    assert sent.texts[0] == sent.texts[1]
    assert count_of(ARGUMENTS, sent.texts[0]) == 1


BROKEN = ["{", '{"city": "Ro', "[1]", "null", '"Rome"', "5", 'get("a")\n', '{"city": "Rome"}}', "<b>\\</b>"]
# The texts around the arguments of a call, in the templates that write a text as it is; the others write it as JSON.
_TAGS = ('{"name": "get_weather", "arguments": ', "}\n</tool_call>")
AROUND_ARGUMENTS = {
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": _TAGS,
    "Qwen-Qwen3-0.6B": _TAGS,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": ("<｜tool▁sep｜>get_weather\n```json\n", "\n```<｜tool▁call▁end｜>"),
    "deepseek-ai-DeepSeek-V3.1": ("<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>", "<｜tool▁call▁end｜>"),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_call_is_shown_as_it_is_or_refused(name: str) -> None:
    """The oracle is the template without hf-guided, and what its source has around arguments."""
    tokenizer = tokenizer_of(name)
    served = ServedModel(None, tokenizer, name)
    defaults = Defaults(ServeOptions("demo"), 1000, takes_any_arguments=served.takes_any_arguments)
    assert served.takes_any_arguments is (name in AROUND_ARGUMENTS)
    for text in BROKEN:
        chat = history(text)
        if name in AROUND_ARGUMENTS:
            before, after = AROUND_ARGUMENTS[name]
            [prompt] = read_chat({"messages": chat}, defaults).prompts
            assert tokenizer.decode(served.render(prompt, {})[0]).count(before + text + after) == 1
        else:
            with pytest.raises(RequestRefused) as refused:
                read_chat({"messages": chat}, defaults)
            assert refused.value.status == 400
            assert refused.value.body["error"]["param"] == "messages.1.tool_calls.0.function.arguments"
            written = str(tokenizer.apply_chat_template(chat, tokenize=False))
            assert json.dumps(text, ensure_ascii=False) in written, "the call would have a text as its arguments"


# -- over HTTP ---------------------------------------------------------------------------------------------------------


# Each of these has thinking or a notation of calls that the others have too.
SERVED_FIRST = ("Qwen-Qwen3-0.6B", "openai-gpt-oss-120b", "Mistral-Small-3.2-24B-Instruct-2506")


@pytest.fixture(
    scope="module",
    params=[name if name in SERVED_FIRST else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The name of a template, and the URL of a server of its model."""
    folder = tmp_path_factory.mktemp("served") / "model"
    model_of(request.param).save_pretrained(folder)
    tokenizer_of(request.param).save_pretrained(folder)
    with serving(folder, valid_is_stop=True) as url:  # random models fill every limit
        yield request.param, url


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The token ids that models are given from now on."""
    given: list[list[int]] = []
    generate = models.LlamaForCausalLM.generate

    def heard(self: Any, *args: Any, **kwargs: Any) -> Any:
        given.append(kwargs.get("input_ids", kwargs.get("inputs", args[0] if args else None))[0].tolist())
        return generate(self, *args, **kwargs)

    monkeypatch.setattr(models.LlamaForCausalLM, "generate", heard)
    return given


def tool_of(function: Any) -> dict[str, Any]:
    [tool] = hg.ToolCalls([function]).tools
    tool["function"].pop("return")  # not a field of the API
    return tool


TOOLS = [tool_of(get_weather), tool_of(other)]
FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "weather",
        "strict": True,
        "schema": Weather.model_json_schema() | {"additionalProperties": False},
    },
}


@pytest.mark.parametrize("stream", [False, True])
def test_two_turns_over_http(served: tuple[str, str], prompts: list[list[int]], stream: bool) -> None:
    name, url = served
    messages: list[dict[str, Any]] = [USER]
    asked: dict[str, Any] = {"model": "model", "tools": TOOLS, "temperature": 0, "max_tokens": 300}
    with client(url) as api:
        if stream:
            with api.chat.completions.stream(
                messages=messages, tool_choice="required", parallel_tool_calls=False, **asked
            ) as events:
                for _ in events:
                    pass
                message = events.get_final_completion().choices[0].message
        else:
            message = (
                api.chat.completions.create(
                    messages=messages, tool_choice="required", parallel_tool_calls=False, **asked
                )
                .choices[0]
                .message
            )
        [call] = message.tool_calls
        assert re.fullmatch("[0-9A-Za-z]{9}", call.id)
        arguments = json.loads(call.function.arguments)
        messages += [
            message.model_dump(),
            {"role": "tool", "tool_call_id": call.id, "content": ANSWER},
        ]
        asked |= {"tool_choice": "none"}
        answer = api.chat.completions.create(messages=messages, **asked)
        assert answer.choices[0].finish_reason == "stop"
    text = tokenizer_of(name).decode(prompts[-1])
    assert count_of(arguments, text) == 1
    assert text.count(ANSWER) == 1


@pytest.mark.parametrize("think", [True, False])
def test_an_answer_in_a_format_over_http(served: tuple[str, str], prompts: list[list[int]], think: bool) -> None:
    name, url = served
    if think and name not in THINKING:
        pytest.skip(f"{name} has no markers of thinking")
    with client(url) as api:
        answer = api.chat.completions.create(
            model="model",
            messages=[USER],
            response_format=FORMAT,
            temperature=0,
            max_tokens=400,
            reasoning_effort="low" if think else "none",
        )
    [choice] = answer.choices
    thinking = getattr(choice.message, "reasoning_content", None)
    assert bool(thinking) is think
    assert choice.finish_reason == "stop"
    Weather.model_validate_json(choice.message.content)
    text = tokenizer_of(name).decode(prompts[-1])
    if name == "openai-gpt-oss-120b":
        assert text.endswith("assistant" if think else "<|start|>assistant<|channel|>final<|message|>")
    if not think:
        assert not text.rstrip().endswith("<think>")


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("thought", ["", "I look. "])
def test_the_channels_of_a_free_answer(thought: str, size: int) -> None:
    name = "openai-gpt-oss-120b"
    if name not in NAMES:
        pytest.skip(f"no {name} in {FOLDER}")
    guide = hg.Guide(model_of(name), tokenizer_of(name))
    gate = calls_of(guide).requests([None], [None], reasoning=hg.Reasoning())[0].gate
    header = calls_of(guide).answer_header
    assert header == "<|channel|>final<|message|>"
    analysis = f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant" if thought else ""
    ids = tokenizer_of(name).encode(f"{analysis}{header}It is dry.<|return|>", add_special_tokens=False)
    stops = tuple(model_of(name).generation_config.eos_token_id)
    answer = Answer(0, Job("job", (), Request(gate=gate), Sampling(), 60, stops), guide)
    for start in range(0, len(ids), size):
        answer.take(ids[start : start + size])
    answer.end("stop")
    assert (answer.content.thinking, answer.content.text) == (thought, "It is dry.")
