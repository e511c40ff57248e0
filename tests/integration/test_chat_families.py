"""A conversation with tools in every family: the templates of published models, and one template for each notation.

The template is the oracle: what it writes for a message after its prompt is what a model of the family writes, and has
to be accepted, read back, and shown again in the next prompt.
"""

from __future__ import annotations

import copy
import json
import re
import warnings
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided.constraints.values import Constraint
from hf_guided.generation.partial import PartialRow
from hf_guided.generation.prompts import encoded, prepared
from hf_guided.generation.templates import TemplateOptions
from hf_guided.guide import calls_of
from hf_guided.serve.answers.answer import Answer
from hf_guided.serve.job import Job, Sampling
from tests import vocabularies
from tests.integration import models
from tests.integration import test_published_templates as published
from tests.tool_families import FAMILIES, chat_template
from tests.tools import get_weather, now

# Their headers and ends around texts are those of published templates only.
SYNTHETIC = [name for name in FAMILIES if name not in ("harmony", "kimi_k3")]
NAMES = [*published.NAMES, *SYNTHETIC]
ONE_CALL = ("openai-gpt-oss-120b",)  # a call ends the output
ENDS = r"<\|im_end\|>|<｜end▁of▁sentence｜>|<\|end\|>|</s>"
THOUGHT = "I look at it."
USER = {"role": "user", "content": "Will it rain?"}


TOOLS = [get_weather, now]


class DryAnswer(BaseModel):
    dry: bool


DRY = hg.JsonSchema(DryAnswer)
NOT_AFTER_THEIR_PROMPTS = ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-V3.1")
"""Templates whose prompts begin thinking that they leave out of messages."""


@cache
def guide_of(name: str) -> hg.Guide:
    if name in published.NAMES:
        return hg.Guide(published.model_of(name), published.tokenizer_of(name))
    tokenizer: PreTrainedTokenizerBase = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|assistant|>", "<|user|>", "<|end|>"]})
    tokenizer.eos_token = "<|end|>"
    tokenizer.chat_template = chat_template(name)
    return hg.Guide(models.llama(tokenizer), tokenizer)


def calls(*, parallel: bool) -> list[dict[str, Any]]:
    named = [("now", {})] if not parallel else [("get_weather", {"city": 'Rome "é"'}), ("now", {})]
    return [
        {"id": f"abcDEF12{i}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for i, (name, arguments) in enumerate(named)
    ]


def rendered(name: str, chat: list[dict[str, Any]], constraint: Constraint | None, *, thinks: bool) -> str:
    """The prompt that hf-guided writes."""
    guide = guide_of(name)
    switches = {"enable_thinking": thinks, "thinking": thinks}
    options = TemplateOptions(switches, None, show_tools=True, describe=False, thinks=thinks)
    prompt = prepared(guide.tokenizer, chat, constraint, options)
    return guide.tokenizer.decode(encoded(guide.vocabulary, prompt, ""))


WITH_TOOLS = hg.ToolCalls(TOOLS).tools


def written(
    name: str, chat: list[dict[str, Any]], message: dict[str, Any], prompt: str, tools: Any = WITH_TOOLS
) -> str | None:
    """What the template writes for a message after the prompt; None where it writes the prompt otherwise."""
    tokenizer = guide_of(name).tokenizer
    for content in ("", None):
        for as_text in (False, True):
            taken = copy.deepcopy(message)
            for call in taken.get("tool_calls", ()):
                arguments = call["function"]["arguments"]
                call["function"]["arguments"] = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
            taken["content"] = taken["content"] or content
            try:
                text = tokenizer.apply_chat_template([*chat, taken], tools=tools, tokenize=False)
            except Exception:
                continue
            if text.startswith(prompt) and "\\\\" not in text[len(prompt) :] and "{'" not in text[len(prompt) :]:
                return text[len(prompt) :]
    return None


def ids_of(name: str, text: str) -> list[int]:
    """The tokens of an answer, and one that ends it."""
    guide = guide_of(name)
    text = re.split(ENDS, text)[0] if name not in ONE_CALL else text
    gate = calls_of(guide).gate(hg.Reasoning())
    start: list[int] = []
    if gate is not None and text.startswith(gate.reasoning.start):
        start, text = [*gate.start_ids], text.removeprefix(gate.reasoning.start)
    ids = [*start, *guide.tokenizer.encode(text, add_special_tokens=False)]
    return ids if ids[-1] in guide.vocabulary.stop_token_ids else [*ids, guide.vocabulary.stop_token_ids[0]]


def read(
    name: str, constraint: Constraint | None, ids: list[int], prompt: str, *, thinks: bool
) -> hg.GuidedResult[Any]:
    """The result, which is the same for a row that comes token by token, in Python and in the server."""
    guide = guide_of(name)
    reasoning = hg.Reasoning() if thinks else None
    prompt_ids = guide.tokenizer.encode(prompt, add_special_tokens=False)
    whole = guide.read(constraint, ids, prompt=prompt_ids, reasoning=reasoning)
    assert whole.finish_reason == "stop", (whole.error, whole.text, guide.tokenizer.decode(ids))
    row = PartialRow(0, guide.reader(constraint, prompt=prompt_ids, reasoning=reasoning))
    for token_id in ids:
        row.add_tokens([token_id])
    assert (row.end(ids).result.value, row.end(ids).text) == (whole.value, whole.text)  # type: ignore[union-attr]
    [request] = calls_of(guide).requests([constraint], [None], reasoning=reasoning)
    contents = []
    for size in (1, len(ids)):
        answer = Answer(
            0, Job("job", tuple(prompt_ids), request, Sampling(), 900, guide.vocabulary.stop_token_ids), guide
        )
        for start in range(0, len(ids), size):
            answer.take(ids[start : start + size])
        answer.end("stop")
        contents.append(
            (
                answer.content.text,
                answer.content.thinking,
                [(call.name, json.loads(call.arguments)) for call in answer.content.calls],
            )
        )
    assert contents[0] == contents[1]
    text, thinking, called = contents[0]
    assert thinking.strip() == (whole.thinking or "").strip()
    if isinstance(whole.value, hg.ToolAnswer):
        assert text == whole.value.text
        assert called == [(call.name, call.arguments) for call in whole.value.calls]
    else:
        assert text == whole.text
    return whole


@pytest.mark.parametrize(
    ("name", "thinks"),
    [
        (name, thinks)
        for name in NAMES
        for thinks in (False, True)
        if not thinks or name in published.THINKING or name not in published.NAMES  # the others have no markers
    ],
)
def test_a_conversation_with_tools(name: str, thinks: bool) -> None:
    guide = guide_of(name)
    parallel, num_compared = name not in ONE_CALL, 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=published.NO_TOOLS)
        shows_tools = name not in ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek-ai-DeepSeek-V3.1")
        for choice in ("auto", "required"):
            constraint = hg.ToolCalls(TOOLS, choice=choice).for_tokenizer(guide.tokenizer)
            prompt = rendered(name, [USER], constraint, thinks=thinks)
            assert ("get_weather" in prompt) is shows_tools
            for several in {False, parallel}:
                message = {"role": "assistant", "content": "", "tool_calls": calls(parallel=several)}
                message |= {"reasoning_content": THOUGHT, "thinking": THOUGHT} if thinks else {}
                text = written(name, [USER], message, prompt)
                if text is None:
                    continue  # the template writes earlier messages otherwise than prompts
                result = read(name, constraint, ids_of(name, text), prompt, thinks=thinks)
                expected = [
                    (call["function"]["name"], call["function"]["arguments"]) for call in calls(parallel=several)
                ]
                assert [(call.name, call.arguments) for call in result.value.calls] == expected
                assert result.value.text == ""
                num_compared += 1
                assert (result.thinking or "").strip() == (THOUGHT if thinks else "")
        message = {"role": "assistant", "content": "It is dry.\n\nAll day."}
        message |= {"reasoning_content": THOUGHT, "thinking": THOUGHT} if thinks else {}
        constraint = hg.ToolCalls(TOOLS).for_tokenizer(guide.tokenizer)
        if (text := written(name, [USER], message, prompt)) is not None:
            result = read(name, constraint, ids_of(name, text), prompt, thinks=thinks)
            assert (result.value.text.strip(), result.value.calls) == (message["content"], ())
            if thinks:
                assert not result.value.text.startswith("\n")
            num_compared += 1
        # An answer in JSON, with what the family writes before it.
        prompt = rendered(name, [USER], DRY, thinks=thinks)
        message["content"] = '{"dry": true}'
        if (text := written(name, [USER], message, prompt, tools=None)) is not None:
            ids = ids_of(name, text.partition("<|END_RESPONSE|>")[0])  # what follows an answer is not asked for
            result = read(name, DRY, ids, prompt, thinks=thinks)
            assert (result.text, result.value) == (message["content"], DryAnswer(dry=True))
            num_compared += 1
        assert num_compared or name in NOT_AFTER_THEIR_PROMPTS
        history = [USER, {"role": "assistant", "content": "", "tool_calls": calls(parallel=parallel)}]
        history += [
            {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": f"result {i}"}
            for i, call in enumerate(history[-1]["tool_calls"])
        ]
        prompt = rendered(name, history, None, thinks=False)
        for i, call in enumerate(history[1]["tool_calls"]):
            assert prompt.count(f"result {i}") == 1
            assert call["function"]["name"] in prompt


# What each model writes after its thinking, as its template or (R1) its prompts and examples show.
LINE_ENDS = {
    "Qwen-Qwen3-0.6B": 2,
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": 2,
    "deepseek-ai-DeepSeek-V3.1": 0,
    "openai-gpt-oss-120b": 0,
}


@pytest.mark.parametrize("name", [name for name in published.NAMES if name in LINE_ENDS])
def test_line_ends_after_thinking_are_allowed_and_not_demanded(name: str) -> None:
    guide = guide_of(name)
    gate = calls_of(guide).requests([DRY], [None], reasoning=hg.Reasoning())[0].gate
    assert gate is not None
    thought = [*gate.start_ids, *guide.tokenizer.encode(f"Hm.{gate.reasoning.end}", add_special_tokens=False)]
    for constraint, text in (
        (DRY, '{"dry": true}'),
        (hg.Choice(["dry", "wet"]), "dry"),
        (hg.Regex(r"\n?dry"), "dry"),
        (hg.Regex(r"\s*dry"), "dry"),
    ):
        own = {r"\n?dry": 1, r"\s*dry": 5}.get(getattr(constraint, "pattern", ""), 0)
        for count in range(5):
            answer = guide.vocabulary.encode_bytes(("\n" * count + text).encode())
            ids = [*thought, *answer, guide.vocabulary.stop_token_ids[0]]
            result = guide.read(constraint, ids, reasoning=hg.Reasoning())
            allowed = count <= LINE_ENDS[name] + own
            assert (result.finish_reason == "stop") is allowed, (count, result)
            if allowed:
                assert result.text == "\n" * min(own, count) + text
                assert result.thinking == "Hm."


# Templates that know no tools: one that refuses other roles, and one that leaves them out.
ALTERNATES = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LEAVES_OUT = (
    "{% for m in messages %}{% if m.role in ('user', 'assistant', 'system') %}<|{{ m.role }}|>{{ m.content }}<|end|>"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
LEAVES_CALLS_OUT = (
    "{% if tools %}Respond only with <|tool_call|> followed by a JSON list. {{ tools | tojson }}{% endif %}"
    "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_of_role|>assistant<|end_of_role|>{% endif %}"
)


def test_a_family_whose_template_leaves_calls_out() -> None:
    """Granite's: they are written as text, in its notation, also for an answer in a format."""
    tokenizer = copy.deepcopy(guide_of("granite").tokenizer)
    tokenizer.chat_template = LEAVES_CALLS_OUT
    guide = hg.Guide(models.llama(tokenizer), tokenizer)
    options = TemplateOptions({}, None, show_tools=True, describe=False, thinks=False)
    made = calls(parallel=True)
    chat = [USER, {"role": "assistant", "content": "I look.", "tool_calls": made}]
    chat += [{"role": "tool", "tool_call_id": call["id"], "content": f"result {i}"} for i, call in enumerate(made)]
    for constraint in (hg.ToolCalls(TOOLS).for_tokenizer(tokenizer), DRY):
        prompt = prepared(tokenizer, chat, constraint, options)
        text = tokenizer.decode(encoded(guide.vocabulary, prompt, ""))
        _, found, rest = text.partition("assistant<|end_of_role|>I look.\n<|tool_call|>")
        assert found and not prompt.unseen
        listed, _ = json.JSONDecoder().raw_decode(rest)
        assert listed == [{key: call["function"][key] for key in ("name", "arguments")} for call in made]
        assert [rest.count(f"<|start_of_role|>tool<|end_of_role|>result {i}") for i in range(2)] == [1, 1]


def test_a_family_whose_template_leaves_the_text_beside_calls_out() -> None:
    """Command R7B's: its calls stay calls."""
    tokenizer = guide_of("command_r7b").tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.chat_template = tokenizer.chat_template.replace("{% if m.content %}", "{% if not m.tool_calls %}")
    chat = [USER, {"role": "assistant", "content": "I look.", "tool_calls": calls(parallel=False)}]
    chat.append({"role": "tool", "tool_call_id": "abcDEF120", "content": "noon"})
    options = TemplateOptions({}, None, show_tools=True, describe=False, thinks=False)
    prompt = prepared(tokenizer, chat, hg.ToolCalls(TOOLS).for_tokenizer(tokenizer), options)
    assert prompt.chat == chat and "the assistant's text in message 1" in prompt.unseen[0]


@pytest.mark.parametrize("source", [ALTERNATES, LEAVES_OUT])
@pytest.mark.parametrize("format", ["json", hg.ToolFormat("[call ", "{name}] ", "{arguments}", " [/call]")])
def test_a_conversation_by_a_template_without_tools(source: str, format: Any) -> None:
    tokenizer = copy.deepcopy(guide_of("json").tokenizer)
    tokenizer.chat_template = source
    model = models.llama(tokenizer)
    with pytest.raises(hg.InvalidConstraint, match=r"hg\.ToolFormat\(begin=.*format='json'"):
        hg.generate(model, tokenizer, [USER], hg.ToolCalls(TOOLS))
    options = TemplateOptions({}, None, show_tools=True, describe=False, thinks=False)
    guide = hg.Guide(model, tokenizer)

    def prompt_of(chat: list[dict[str, Any]], choice: str) -> str:
        prompt = prepared(tokenizer, chat, hg.ToolCalls(TOOLS, format, choice), options)
        assert not prompt.unseen
        return tokenizer.decode(encoded(guide.vocabulary, prompt, ""))

    opens, closes = ("<tool_call>", "</tool_call>") if format == "json" else ("[call ", " [/call]")
    prompt = prompt_of([USER], "auto")
    assert prompt.count("Looks up the weather.") == prompt.count("Tells the time.") == 1
    assert prompt.count(opens) == prompt.count(closes) == 2, "the notation of each tool"
    chat: list[dict[str, Any]] = [USER]
    for turn in range(2):
        [result] = hg.generate(
            model, tokenizer, chat, hg.ToolCalls(TOOLS, format, "required", parallel=False), max_new_tokens=200
        )
        assert result.finish_reason == "stop"
        [call] = result.value.calls
        chat += [result.value.message, {"role": "tool", "tool_call_id": call.id, "content": f"result {turn}"}]
    before = copy.deepcopy(chat)
    for choice in ("auto", "none"):
        prompt = prompt_of(chat, choice).partition("Will it rain?")[2]
        assert prompt.count("result 0") == prompt.count("result 1") == 1
        assert prompt.count(opens) == prompt.count(closes) == 2
        names = [call["function"]["name"] for message in chat for call in message.get("tool_calls", ())]
        assert all(name in prompt for name in names)
    assert chat == before
