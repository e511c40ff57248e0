"""What stands around an answer: thinking in front of it, calls in every family's way, and none where none may be."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jsonschema
import openai
import pytest

from hf_guided import demo
from hf_guided.serve import models
from tests.effort import repeats
from tests.pairs import once_each
from tests.serving import calls_of, client, serving

EXAMPLE = demo.EXAMPLES[0]
CHAT: list[Any] = [{"role": "user", "content": EXAMPLE.prompt}]
SCHEMA_FORMAT = {"type": "json_schema", "json_schema": {"name": "record", "strict": True, "schema": EXAMPLE.schema}}
HOT = {"generation_config": json.dumps({"do_sample": True, "temperature": 3.0, "max_new_tokens": 100})}
PARAMETERS = {
    "type": "object",
    "properties": {"unit": {"enum": ["C", "F"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["unit", "days"],
    "additionalProperties": False,
}
TOOLS: list[Any] = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}]
FLAT_TOOLS: list[Any] = [{"type": "function", **TOOLS[0]["function"]}]

# As Qwen3's: the model writes the start marker itself, unless it is told not to think.
_CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_NO_THINKING = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
THINKS = _CHAT + _NO_THINKING
# As DeepSeek's: the prompt has begun it. What an answer may not hold of earlier thinking, the template cuts.
THINKING = _CHAT + "{% if enable_thinking | default(true) %}<think>\n{% else %}<think></think>{% endif %}"


def parts(api: openai.OpenAI, *, stream: bool, **asked: Any) -> tuple[str, str | None, list[tuple[str, str]]]:
    """Content, thinking and calls of a chat completion."""
    found: Any = api.chat.completions.create(model="demo", messages=CHAT, stream=stream, **asked)
    pieces = [chunk.choices[0].delta for chunk in found] if stream else [found.choices[0].message]
    content = "".join(piece.content or "" for piece in pieces)
    thoughts = [thought for piece in pieces if (thought := getattr(piece, "reasoning_content", None)) is not None]
    return content, "".join(thoughts) if thoughts else None, calls_of(pieces)


@pytest.mark.parametrize("template", [THINKS, THINKING], ids=["written by the model", "begun by the prompt"])
def test_thinking_stands_apart(template, monkeypatch):
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", template)
    with serving(max_thinking_tokens=30) as url, client(url) as api:
        for stream in (False, True):
            content, thinking, _ = parts(api, stream=stream, response_format=SCHEMA_FORMAT, extra_body=HOT)
            jsonschema.validate(json.loads(content), EXAMPLE.schema)
            assert thinking and "<think>" not in thinking[:7] and "</think>" not in thinking
        # The same greedy answer in both ways.
        greedy: dict[str, Any] = {"response_format": SCHEMA_FORMAT, "temperature": 0.0}
        assert parts(api, stream=False, **greedy) == parts(api, stream=True, **greedy)
        kwargs = {"chat_template_kwargs": {"enable_thinking": False}}
        content, thinking, _ = parts(api, stream=False, response_format=SCHEMA_FORMAT, extra_body={**HOT, **kwargs})
        jsonschema.validate(json.loads(content), EXAMPLE.schema)
        assert thinking is None


def test_thinking_in_responses(monkeypatch):
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKS)
    asked: dict[str, Any] = {
        "model": "demo",
        "input": EXAMPLE.prompt,
        "text": {"format": {"type": "regex", "regex": "[ab]{5}"}},
        "extra_body": HOT,
    }
    with serving(max_thinking_tokens=20) as url, client(url) as api:
        whole = api.responses.create(**asked)
        streamed = list(api.responses.create(stream=True, **asked))
    for response in (whole, streamed[-1].response):
        reasoning, message = response.output
        assert reasoning.type == "reasoning" and reasoning.content[0].text
        assert message.type == "message"
        assert re.fullmatch("[ab]{5}", response.output_text)
    thought = "".join(event.delta for event in streamed if event.type == "response.reasoning_text.delta")
    assert thought == streamed[-1].response.output[0].content[0].text


def test_thinking_and_calls(monkeypatch):
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKS)
    with serving(max_thinking_tokens=20, tool_format="qwen_3") as url, client(url) as api:
        for stream in (False, True):
            content, thinking, calls = parts(
                api, stream=stream, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, extra_body=HOT
            )
            assert (content, len(calls)) == ("", 1) and thinking
            jsonschema.validate(json.loads(calls[0][1]), PARAMETERS)


def test_thinking_that_is_switched_off(monkeypatch):
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKS)
    with serving(reasoning="off") as url, client(url) as api:
        content, thinking, _ = parts(api, stream=False, response_format=SCHEMA_FORMAT, extra_body=HOT)
    jsonschema.validate(json.loads(content), EXAMPLE.schema)
    assert thinking is None


def test_thinking_in_shared_batches(monkeypatch):
    monkeypatch.setattr(models, "_DEMO_CHAT_TEMPLATE", THINKS)
    asked: dict[str, Any] = {"response_format": SCHEMA_FORMAT, "temperature": 0.0}
    answers = []
    for batching in (False, True):
        with serving(max_thinking_tokens=30, continuous_batching=batching) as url, client(url) as api:
            answers.append(parts(api, stream=batching, **asked))
    assert answers[0] == answers[1] and answers[0][1]


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "glm_4_7",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("deepseek_v3_1", "qwen_3_coder", "minimax", "kimi")),
    ],
)
def test_calls_of_other_families(name):
    with serving(tool_format=name) as url, client(url) as api:
        for stream in (False, True):
            for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
                asked: dict[str, Any] = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": False}
                hot = {"temperature": 3.0, "max_tokens": 150}
                _, _, calls = parts(api, stream=stream, **hot, **asked)
                assert [name for name, _ in calls] == ["get_weather"]
                jsonschema.validate(json.loads(calls[0][1]), PARAMETERS)


@pytest.fixture(scope="module", params=[False, True], ids=["one by one", "shared batches"])
def api(request: pytest.FixtureRequest) -> Iterator[openai.OpenAI]:
    with serving(continuous_batching=request.param) as url, client(url) as found:
        yield found


def test_text_and_calls(api):
    """What a hot model writes on its own accord: text, which is given whole, and perhaps calls."""
    for stream in (False, True):
        for _ in range(repeats(1, 3)):
            _, _, calls = parts(api, stream=stream, tools=TOOLS, tool_choice="auto", extra_body=HOT)
            for name, arguments in calls:
                assert name == "get_weather"
                jsonschema.validate(json.loads(arguments), PARAMETERS)
    greedy: dict[str, Any] = {"temperature": 0.0, "max_tokens": 100}
    free = parts(api, stream=False, **greedy)
    assert free == parts(api, stream=False, tools=TOOLS, **greedy) == parts(api, stream=True, tools=TOOLS, **greedy)


def eager_to_call() -> Any:
    """A model that writes nothing but beginnings of calls, if it may."""
    model, tokenizer = demo.load()
    ids = tokenizer.encode("<tool_call>", add_special_tokens=False)
    follows = dict(itertools.pairwise(ids))
    forward = model.forward

    def biased(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        rows = (kwargs["input_ids"] if "input_ids" in kwargs else args[0]).tolist()
        kept = output.logits.shape[1]
        for row, row_ids in enumerate(rows):
            for position, token_id in enumerate(row_ids[-kept:]):
                output.logits[row, position, follows.get(token_id, ids[0])] += 100
        return output

    model.forward = biased  # type: ignore[method-assign]
    return model


def test_no_call_where_none_may_be(monkeypatch):
    load, eager = models.load, eager_to_call()
    monkeypatch.setattr(models, "load", lambda *args: replace(load(*args), model=eager))
    with serving() as url, client(url) as api:
        asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": 60}
        content, _, _ = parts(api, stream=False, **asked)
        assert "<tool_call>" in content
        for stream in (False, True):
            content, _, calls = parts(api, stream=stream, tools=TOOLS, tool_choice="none", **asked)
            assert content and "<tool_call>" not in content and calls == []


TOOL_CHOICES: dict[str, Any] = {
    "auto": "auto",
    "required": "required",
    "none": "none",
    "named": {"type": "function", "name": "get_weather"},
}


@pytest.mark.parametrize(("name", "stream"), once_each(TOOL_CHOICES, [False, True]))
def test_responses_with_every_tool_choice(api, name, stream):
    choice = TOOL_CHOICES[name]
    asked: Any = {"tools": FLAT_TOOLS, "tool_choice": choice, "parallel_tool_calls": False, "extra_body": HOT}
    found = api.responses.create(model="demo", input=EXAMPLE.prompt, stream=stream, **asked)
    response = list(found)[-1].response if stream else found
    calls = [(item.name, item.arguments) for item in response.output if item.type == "function_call"]
    for name, arguments in calls:
        assert name == "get_weather"
        jsonschema.validate(json.loads(arguments), PARAMETERS)
    if choice != "auto":
        assert len(calls) == (choice != "none")


def test_a_conversation_with_calls_goes_on(api):
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": '{"unit": "C", "days": 2}'},
    }
    history: list[Any] = [
        *CHAT,
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    found = api.chat.completions.create(model="demo", messages=history, response_format=SCHEMA_FORMAT, extra_body=HOT)
    jsonschema.validate(json.loads(found.choices[0].message.content), EXAMPLE.schema)


def test_both_ways_hold_the_same_settings():
    answers: list[list[Any]] = []
    for batching in (False, True):
        answers.append([])
        with serving(continuous_batching=batching) as url, client(url) as api:
            for more in (
                {"stop": ["e"]},
                {"frequency_penalty": 1.5},
                {"presence_penalty": 2.0},
                {"logit_bias": {"5": 100}},
            ):
                asked: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40, **more}
                guided: Any = api.chat.completions.create(
                    model="demo", messages=CHAT, response_format={"type": "regex", "regex": "[a-h ]{30}"}, **asked
                )
                free: Any = api.chat.completions.create(model="demo", messages=CHAT, **asked)
                for found in (guided, free):
                    answers[-1].append((found.choices[0].message.content, found.choices[0].finish_reason))
    assert answers[0] == answers[1]
    assert all("e" not in text for text, _ in answers[0][:2])
