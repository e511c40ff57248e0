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
import torch
from pydantic import BaseModel
from transformers import PreTrainedTokenizerBase, pipeline

import hf_guided as hg
from tests import vocabularies
from tests.integration import models

FOLDER = Path(os.environ.get("HF_GUIDED_DATA", "../shared/data")) / "chat-templates"
FILES = sorted(FOLDER.glob("*.jinja"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"no chat templates in {FOLDER}")
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


def get_weather(city: str) -> str:
    """Looks up the weather.

    Args:
        city: The city.
    """
    return city


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


def test_two_turns(sent: Prompts, request: pytest.FixtureRequest) -> None:
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


def test_an_answer_begins_where_the_model_begins_it(sent: Prompts, request: pytest.FixtureRequest) -> None:
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


def test_the_pipeline_renders_as_python_does(sent: Prompts) -> None:
    hg.register()
    chat = history(call_id="call_0123456789abcdef")
    guided = pipeline("guided-generation", model=sent.model, tokenizer=sent.tokenizer, device="cpu")
    guided(chat, response_format=Weather, do_sample=False, max_new_tokens=30)
    hg.generate(sent.model, sent.tokenizer, chat, Weather, do_sample=False, max_new_tokens=30)
    assert sent.texts[0] == sent.texts[1]
    assert count_of(ARGUMENTS, sent.texts[0]) == 1
