"""Answers from tokens: parts, stop strings, log probabilities and counts do not depend on how an engine groups them."""

from __future__ import annotations

import json
import math
import random
from typing import Any
from unittest.mock import ANY

import openai.types.chat as chat_types
import pytest
from openai.types import Completion
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

import hf_guided as hg
from hf_guided import demo
from hf_guided.guide import calls_of
from hf_guided.serve.answers.answer import Answer
from hf_guided.serve.answers.parts import CallArguments, CallBegins, StopStrings, Text, Thinking
from hf_guided.serve.answers.response import ResponseWriter
from hf_guided.serve.answers.writers import ChatWriter, CompletionWriter
from hf_guided.serve.error_responses import RequestRefused
from hf_guided.serve.job import Call, Job, Sampling
from hf_guided.session.logprobs import TokenLogprob, TopLogprobs
from hf_guided.session.requests import Request
from hf_guided.vocabulary.tokens import Vocabulary

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "é}\\"", "b": [{}, 1.50]}}\n</tool_call>'
ARGUMENTS = '{"a": "é}\\"", "b": [{}, 1.50]}'
XML = "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"


@pytest.fixture(scope="module")
def guide() -> hg.Guide:
    model, tokenizer = demo.load()
    return hg.Guide(model, tokenizer)


def random_steps(vocabulary: Vocabulary, text: str, chance: random.Random) -> list[list[int]]:
    """Tokenize the text at random boundaries, and group the tokens into steps of one or more."""
    data, ids = text.encode(), []
    while data:
        length = chance.randint(1, 6)
        ids += vocabulary.encode_bytes(data[:length])
        data = data[length:]
    steps = []
    while ids:
        length = chance.randint(1, 3)
        steps.append(ids[:length])
        ids = ids[length:]
    return steps


def answer_of(
    guide: hg.Guide, constraint: Any = None, reasoning: hg.Reasoning | None = None, index: int = 0, **more: Any
) -> Answer:
    """An answer in the vocabulary of the guide, to an empty prompt."""
    guided = Request(gate=calls_of(guide).gate(reasoning), constraint=constraint)
    return Answer(index, Job("job", (), guided, Sampling(), 60, (), **more), guide)


THINKS = hg.Reasoning()
QWEN = hg.ToolCalls(TOOLS, "qwen_3")


@pytest.mark.parametrize(
    ("constraint", "reasoning", "text", "content", "thinking", "arguments"),
    [
        (hg.Regex(".*"), None, "é</think>", "é</think>", "", []),
        (hg.Regex(".*"), THINKS, "<think>né </thin</think>é</think>", "é</think>", "né </thin", []),
        (hg.Regex(".*"), THINKS, "<think></think>x", "x", "", []),
        (hg.Regex(".*"), THINKS, "<think>cut </thi", "", "cut </thi", []),
        (hg.Regex(".*"), THINKS, "<thi", "", "", []),
        (None, THINKS, "<think>a</think>b", "b", "a", []),
        (None, THINKS, "<thin air", "<thin air", "", []),
        (None, THINKS, "<thi", "<thi", "", []),
        (QWEN, None, f"a < <tool é{CALL}", "a < <tool é", "", [ARGUMENTS]),
        (QWEN, None, f"a\n{CALL}\n{CALL}", "a", "", [ARGUMENTS] * 2),
        (hg.ToolCalls(TOOLS, "command_r7b"), None, "<|START_RESPONSE|>a\n\nb <|EN", "a\n\nb <|EN", "", []),
        (hg.ToolCalls(TOOLS, "command_r7b"), None, "<|START_RESPONSE|>a<|END_RESPONSE|>", "a", "", []),
        (hg.ToolCalls(TOOLS, "functionary_v3_2"), None, 'all\nI > it\n>>>f\n{"a": "x"}', "I > it", "", ['{"a": "x"}']),
        (QWEN, None, "no call <tool_c", "no call <tool_c", "", []),
        (QWEN, None, f"cut {CALL[:30]}", "cut ", "", []),
        (QWEN, None, f"cut {CALL[:-30]}", "cut ", "", [ARGUMENTS[: -30 + len("}\n</tool_call>")]]),
        (hg.ToolCalls(TOOLS, "qwen_3", "required"), THINKS, f"<think>x</think>{CALL}", "", "x", [ARGUMENTS]),
        (hg.ToolCalls(TOOLS, "qwen_3", "none"), None, "<tool_c", "<tool_c", "", []),
        (hg.ToolCalls(TOOLS, "qwen_3_coder"), None, f"b{XML}", "b", "", ['{"a": "x"}']),
        (hg.ToolCalls(TOOLS, "qwen_3_coder"), None, f"b{XML[:-5]}", "b", "", []),
    ],
)
def test_parts_do_not_depend_on_the_tokenization(guide, constraint, reasoning, text, content, thinking, arguments):
    chance = random.Random(text)
    for _ in range(20):
        answer = answer_of(guide, constraint, reasoning)
        for step in random_steps(answer.vocabulary, text, chance):
            answer.take(step)
        if constraint is not None and constraint.kind == "tool_calls" and thinking == "" and len(content) > 3:
            assert content.startswith(answer.content.text) and answer.content.text, "text comes before the end"
        answer.end("length")
        found = answer.content
        assert (found.text, found.thinking) == (content, thinking)
        assert [call.arguments for call in found.calls] == arguments
        assert {call.name for call in found.calls} <= {"f"}


def test_parts_come_as_soon_as_they_are_decided(guide):
    answer = answer_of(guide, QWEN, THINKS)
    pieces = [answer.take(guide.vocabulary.encode_bytes(text.encode())).parts for text in (
        "<think>", "a</", "think", ">b", "c<tool_", "x", "<tool_call>",
        '\n{"name": "f", "arguments": {', '"a', '": 1}', "}",
    )]  # fmt: skip
    assert pieces == [
        [], [Thinking("a")], [], [Text("b")], [Text("c")], [Text("<tool_x")], [],
        [CallBegins(0, "f", ANY), CallArguments(0, "{")], [CallArguments(0, '"a')], [CallArguments(0, '": 1}')], [],
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_stop_strings_cut_where_find_finds_them(seed):
    chance = random.Random(seed)
    letters = "abé🎈"
    text = "".join(chance.choices(letters, k=chance.randint(0, 30)))
    stops = ["".join(chance.choices(letters, k=chance.randint(1, 4))) for _ in range(chance.randint(0, 3))]
    # The oracle reads the text character by character, and stops where it first ends with a stop string.
    expected, found = text, False
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            expected, found = text[: end - max(map(len, ended))], True
            break
    reader, given, data = StopStrings(stops), b"", text.encode()
    while data:
        length = chance.randint(1, 5)
        given += reader.feed(data[:length])
        data = data[length:]
    given += reader.finish()
    assert reader.found == found
    assert given.decode() == expected


def test_a_stop_string_is_held_back_and_no_longer():
    reader = StopStrings(["</s>", "END"])
    assert [reader.feed(piece) for piece in (b"a</", b"s", b"xE", b"N", b"F</s>b", b"c")] == [
        b"a", b"", b"</sx", b"", b"ENF", b"",
    ]  # fmt: skip
    assert reader.found and reader.finish() == b""


def with_logprobs(token_ids: list[int], vocabulary: Vocabulary) -> list[TokenLogprob]:
    """Made up, different for each position; the third token is impossible."""
    return [
        TokenLogprob(
            token_id,
            -math.inf if number == 2 else -0.5 * number,
            0.0,
            0.0,
            False,
            TopLogprobs(raw=((token_id, -0.5 * number), ((token_id + 1) % len(vocabulary.token_bytes), -math.inf))),
        )
        for number, token_id in enumerate(token_ids)
    ]


@pytest.mark.parametrize("late", [False, True], ids=["with their tokens", "after all tokens"])
@pytest.mark.parametrize("stop", [(), ("END",)])
def test_logprobs_are_those_of_the_answers_text(guide, late, stop):
    text = "<think>né</think>éa ENd x END after"
    shown = "éa ENd x " if stop else "éa ENd x END after"
    chance = random.Random(3)
    for _ in range(10):
        answer = answer_of(guide, hg.Regex(".*"), THINKS, stop=stop, top_logprobs=1)
        steps = random_steps(answer.vocabulary, text, chance)
        ids = [token_id for step in steps for token_id in step]
        every = with_logprobs(ids, guide.vocabulary)
        done = 0
        for step in steps:
            answer.take(step, () if late else every[done : done + len(step)])
            done += len(step)
        if late:
            answer.take((), every)
        answer.end("stop")
        joined = b"".join(token.data for token in answer.logprobs)
        # A token may hold text on both sides of an edge; no other one is missing or too many.
        assert shown.encode() in joined or joined.decode(errors="replace").strip() == shown.strip()
        assert len(joined) <= len(shown.encode()) + 2 * max(len(data or b"") for data in guide.vocabulary.token_bytes)
        assert all(math.isfinite(token.logprob) for token in answer.logprobs)
        assert all(logprob == -9999.0 for token in answer.logprobs for _, logprob in token.top if logprob < -100)
        assert answer.content.text == shown
        assert answer.num_tokens == len(ids) and 0 < answer.num_thinking_tokens < len(ids)


def reply(kind: str, **more: Any) -> tuple[Any, ...]:
    call = Call(kind=kind, prompts=("p",) * more.pop("prompts", 1), **more)  # type: ignore[arg-type]
    return call, "the model", "req-1", 7, ("p",) * len(call.prompts)


def streamed(shape: Any, answers: list[Answer], texts: list[str], guide: hg.Guide) -> list[tuple[str | None, Any]]:
    """The events of a stream, by name; the answers grow in turn."""
    chance = random.Random(1)
    steps = [random_steps(guide.vocabulary, text, chance) for text in texts]
    events = list(shape.begin())
    while any(steps):
        for answer, left in zip(answers, steps, strict=True):
            if left:
                ids = left.pop(0)
                events += shape.add(answer.index, answer.take(ids, with_logprobs(ids, guide.vocabulary)))
                if not left:
                    events += shape.add(answer.index, answer.end("stop"))
    events += shape.finish(answers)
    found = []
    for block in "".join(events).split("\n\n")[:-1]:
        *names, data = block.split("\n")
        name = names[0].removeprefix("event: ") if names else None
        data = data.removeprefix("data: ")
        found.append((name, data if data == "[DONE]" else json.loads(data)))
    return found


def test_two_chats_in_one_stream(guide):
    answers = [answer_of(guide, QWEN, index=index, top_logprobs=1) for index in range(2)]
    shape = ChatWriter(*reply("chat", num_answers=2, logprobs=1, include_usage=True, stream=True))
    events = streamed(shape, answers, [f"Well{CALL}", "é plain"], guide)
    assert events[-1][1] == "[DONE]"
    chunks = [chat_types.ChatCompletionChunk.model_validate(data, strict=True) for _, data in events[:-1]]
    assert chunks[-1].choices == [] and chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == sum(answer.num_tokens for answer in answers)
    assert all(chunk.usage is None and len(chunk.choices) == 1 for chunk in chunks[:-1])
    of_each = [[chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == index] for index in range(2)]
    assert [choices[-1].finish_reason for choices in of_each] == ["tool_calls", "stop"]
    assert [choices[0].delta.role for choices in of_each] == ["assistant"] * 2
    assert "".join(choice.delta.content or "" for choice in of_each[1]) == "é plain"
    calls = [call for choice in of_each[0] for call in choice.delta.tool_calls or []]
    assert [bool(call.id) for call in calls] == [True] + [False] * (len(calls) - 1) and len(calls) > 3
    assert "".join(call.function.arguments or "" for call in calls if call.function) == ARGUMENTS
    reported = [token for choice in of_each[1] if choice.logprobs for token in choice.logprobs.content or []]
    assert bytes(byte for token in reported for byte in token.bytes or []).decode() == "é plain"
    # The whole answer says the same.
    whole = chat_types.ChatCompletion.model_validate(
        ChatWriter(*reply("chat", num_answers=2, logprobs=1)).whole(answers, answers), strict=True
    )
    message = whole.choices[0].message
    assert (message.content, message.tool_calls[0].function.arguments) == ("Well", ARGUMENTS)
    assert whole.choices[1].logprobs.content == reported
    assert whole.usage == chunks[-1].usage


def test_completions_of_several_prompts(guide):
    answers = [answer_of(guide, index=index, top_logprobs=1) for index in range(4)]
    asked: dict[str, Any] = {"prompts": 2, "num_answers": 2, "logprobs": 1}
    events = streamed(
        CompletionWriter(*reply("completion", stream=True, **asked)), answers, ["aé", "b", "c", "d"], guide
    )
    assert events[-1][1] == "[DONE]"
    chunks = [Completion.model_validate({**data, "choices": []}) and data for _, data in events[:-1]]
    texts = [
        "".join(chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"][0]["index"] == index)
        for index in range(4)
    ]
    assert texts == ["paé", "pb", "pc", "pd"]
    whole = Completion.model_validate(
        CompletionWriter(*reply("completion", **asked)).whole(answers, answers), strict=True
    )
    assert [choice.text for choice in whole.choices] == texts
    for choice in whole.choices:
        assert choice.logprobs is not None and choice.logprobs.text_offset[0] == 1
        assert len(choice.logprobs.tokens) == len(choice.logprobs.token_logprobs) == len(choice.logprobs.top_logprobs)
    streamed_offsets = [
        (choice["index"], offset)
        for chunk in chunks
        for choice in chunk["choices"]
        for offset in (choice["logprobs"] or {}).get("text_offset", ())
    ]
    for choice in whole.choices:
        assert [offset for index, offset in streamed_offsets if index == choice.index] == choice.logprobs.text_offset


def test_the_events_of_a_response_build_it(guide):
    answer = answer_of(guide, QWEN, THINKS, top_logprobs=1)
    text = f"<think>hm é</think>Well{CALL}"
    found = streamed(ResponseWriter(*reply("response", stream=True, logprobs=1)), [answer], [text], guide)
    events = [TypeAdapter(ResponseStreamEvent).validate_python(data) for _, data in found]
    assert [event.type for event in events] == [name for name, _ in found]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [
        kind for kind, last in zip(event_kinds(events), [None, *event_kinds(events)], strict=False) if kind != last
    ]
    text_events = "output_item.added content_part.added {0}.delta {0}.done content_part.done output_item.done"
    calls = "output_item.added function_call_arguments.delta function_call_arguments.done output_item.done"
    assert kinds == [
        "created", "in_progress", *text_events.format("reasoning_text").split(),
        *text_events.format("output_text").split(), *calls.split(), "completed",
    ]  # fmt: skip
    response = events[-1].response
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
    assert (response.output_text, response.output[2].arguments) == ("Well", ARGUMENTS)
    assert response.usage.output_tokens == answer.num_tokens
    assert response.usage.output_tokens_details.reasoning_tokens == answer.num_thinking_tokens > 0
    whole = Response.model_validate(ResponseWriter(*reply("response", logprobs=1)).whole([answer], [answer]))
    assert [without_ids(item) for item in whole.output] == [without_ids(item) for item in response.output]


@pytest.mark.parametrize("text", [f"{CALL}After", f"Before{CALL}After", f"<think>hm</think>{CALL}After", CALL, "Words"])
@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_whole_response_has_the_items_of_its_stream(guide, choice, text):
    """In the order in which they come: a text after a call is not moved before it."""
    constraint = hg.ToolCalls(TOOLS, "qwen_3", choice)
    answer = answer_of(guide, constraint, THINKS if text.startswith("<think>") else None, top_logprobs=1)
    found = streamed(ResponseWriter(*reply("response", stream=True, logprobs=1)), [answer], [text], guide)
    whole = ResponseWriter(*reply("response", logprobs=1)).whole([answer], [answer])
    items = [Response.model_validate(response).output for response in (found[-1][1]["response"], whole)]
    assert [without_ids(item) for item in items[0]] == [without_ids(item) for item in items[1]]


def event_kinds(events: list[Any]) -> list[str]:
    return [event.type.removeprefix("response.") for event in events]


def without_ids(item: Any) -> dict[str, Any]:
    return {name: value for name, value in item.model_dump().items() if name not in ("id", "call_id")}


def test_an_error_in_a_stream(guide):
    error = RequestRefused("no", status=500, code="internal_error")
    for shape in (ChatWriter(*reply("chat")), CompletionWriter(*reply("completion"))):
        [event, done] = "".join(shape.fail(error)).split("\n\n")[:-1]
        assert json.loads(event.removeprefix("data: ")) == error.body and done == "data: [DONE]"
    blocks = "".join(ResponseWriter(*reply("response")).fail(error)).split("\n\n")[:-1]
    events = [
        TypeAdapter(ResponseStreamEvent).validate_python(json.loads(block.split("data: ")[1])) for block in blocks
    ]
    assert [event.type for event in events] == ["error", "response.failed"]
    assert events[0].message == events[1].response.error.message == "no"
