"""Parsing answers while they are generated: the result does not depend on the tokenization."""

from __future__ import annotations

import json
import random

import pytest
from transformers.cli.serving.utils import ReasoningText, ToolCall

import hf_guided as hg
from hf_guided import demo
from hf_guided.serve.answer_parser import AnswerReader, Message
from hf_guided.vocabulary.tokens import Vocabulary

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


@pytest.fixture(scope="module")
def guide() -> hg.Guide:
    model, tokenizer = demo.load()
    return hg.Guide(tokenizer, model)


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


@pytest.mark.parametrize(
    ("constraint", "reasoning", "text", "expected"),
    [
        (hg.Regex(".*"), None, "é</think>", ("é</think>", None, 0)),
        (hg.Regex(".*"), hg.Reasoning(), "<think>né </thin</think>é</think>", ("é</think>", "né </thin", 0)),
        (hg.Regex(".*"), hg.Reasoning(), "<think></think>x", ("x", None, 0)),
        (hg.Regex(".*"), hg.Reasoning(), "<think>cut </thi", ("", "cut </thi", 0)),
        (hg.Regex(".*"), hg.Reasoning(), "<thi", ("", None, 0)),
        (hg.ToolCalls(TOOLS, "qwen_3"), None, f"a < <tool é{CALL}", ("a < <tool é", None, 1)),
        (hg.ToolCalls(TOOLS, "qwen_3"), None, f"a{CALL}\n{CALL}", ("a\n", None, 2)),
        (hg.ToolCalls(TOOLS, "qwen_3"), None, "no call <tool_c", ("no call <tool_c", None, 0)),
        (hg.ToolCalls(TOOLS, "qwen_3"), None, f"cut {CALL[:30]}", ("cut ", None, 0)),
        (hg.ToolCalls(TOOLS, "qwen_3", "required"), hg.Reasoning(), f"<think>x</think>{CALL}", ("", "x", 1)),
        (hg.ToolCalls(TOOLS, "qwen_3", "none"), None, "<tool_c", ("<tool_c", None, 0)),
    ],
)
def test_parts_do_not_depend_on_the_tokenization(guide, constraint, reasoning, text, expected):
    gate = guide.gate(reasoning)
    chance = random.Random(text)
    for _ in range(20):
        reader, message = AnswerReader(guide.vocabulary, constraint, gate, []), Message()
        for step in random_steps(guide.vocabulary, text, chance):
            for part in reader.feed(step):
                message.add(part)
        for part in reader.finish():
            message.add(part)
        result = message.as_dict()
        calls = result.get("tool_calls", [])
        assert (result["content"], result.get("reasoning_content"), len(calls)) == expected
        for call in calls:
            assert call["function"]["name"] == "f" and json.loads(call["function"]["arguments"]) == {}


def test_text_is_emitted_as_soon_as_it_is_decided(guide):
    reader = AnswerReader(guide.vocabulary, hg.ToolCalls(TOOLS, "qwen_3"), guide.gate(hg.Reasoning()), [])
    pieces = [list(reader.feed(guide.vocabulary.encode_bytes(text.encode()))) for text in (
        "<think>", "a</", "think", ">b", "c<tool_", "x", "<tool_call>", '\n{"name": "f", "arguments": {}}\n</tool_call>'
    )]  # fmt: skip
    assert pieces == [[], ["a"], [], ["b"], ["c"], ["<tool_x"], [], []]
    assert isinstance(pieces[1][0], ReasoningText) and not isinstance(pieces[3][0], ReasoningText)
    assert list(reader.finish()) == [ToolCall("f", "{}")]
