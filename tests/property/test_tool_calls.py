"""Tool calls of every family with tools that nobody wishes for: what walks at random write, and what is read back.

A walk takes any token that may come, and now and then tries to write a mark, so that marks stand in strings, names of
tools in free text, and quotes everywhere. Transformers' own parser reads the calls, and ``jsonschema`` the arguments.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.backends.base import Matcher
from hf_guided.backends.compiler import Compiler
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import toy
from tests.effort import repeats
from tests.tool_families import ENDS, FAMILIES, STARTS, flat, parsed, template
from tests.vocabularies import demo

STOP = 256
NESTED = ("cohere", "minimax_m3")  # whose arrays and objects are elements in elements
MARKS = [
    *("</tool_call>", "</parameter>", "</arg_value>", "<|call|>", "<|im_end|>", "</｜DSML｜parameter>", "<|close|>"),
    *("<tool_call>", "<｜tool▁call▁end｜>", "<|tool_call_end|>", "]<]minimax[>[", "</cofl:value>", "</function>"),
]
NODE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "codes": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
    "required": ["v"],
}
OPEN: dict[str, Any] = {"anything": {"type": "object", "properties": {"x": {}, "y": True, "ünï": {"type": "integer"}}}}
HOSTILE: dict[str, Any] = {
    "f.(x)*[a-z]+|$": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
    "f": {"type": "object", "properties": {}},
    "no_parameters": None,
    "either": {
        "anyOf": [
            {"type": "object", "properties": {"a": {"type": kind}}, "required": ["a"], "additionalProperties": False}
            for kind in ("integer", "boolean")
        ]
    },
    "mixed": {
        "type": "object",
        "properties": {
            "p": {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 5}, {"type": "null"}]},
            "q": {"type": ["string", "number", "boolean"]},
        },
        "required": ["p", "q"],
    },
    "marks": {
        "type": "object",
        "properties": {"m": {"enum": [*MARKS, "5", 5, True, "true", None, "null"]}, "s": {"type": "string"}},
        "required": ["m"],
    },
    "tags": {"type": "object", "properties": {"s": {"type": "string", "pattern": "^<[a-z/_]+>$"}}, "required": ["s"]},
    "strings": {
        "type": "object",
        "properties": {"codes": {"type": "array", "items": {"type": ["string", "integer"]}}},
        "required": ["codes"],
    },
}
RECURSIVE = {
    "tree": {
        "type": "object",
        "properties": {"t": {"$ref": "#/$defs/node"}},
        "required": ["t"],
        "$defs": {"node": NODE},
    }
}


@cache
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


@cache
def tools_of(family: str) -> dict[str, Any]:
    """Where closing marks repeat the names, names that are not declared are refused."""
    return {**HOSTILE, **RECURSIVE} if family == "minimax_m3" else {**HOSTILE, **RECURSIVE, **OPEN}


def as_tools(schemas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, **({} if one is None else {"parameters": one})}}
        for name, one in schemas.items()
    ]


def wishes(family: str, names: Sequence[str]) -> list[bytes]:
    """What a walk tries to write."""
    one = FAMILIES[family]
    marks = [*MARKS, one.begin, one.end, one.between, one.closes, one.before, STARTS.get(family, "<tool_call>")]
    return [
        mark.encode()
        for mark in [*marks, _opening(family), *names, '"', '"}', "}", "]", "5", "true", "<|sep|>"]
        if mark
    ]


def around(family: str) -> list[str]:
    """The marks around a call whose arguments are elements."""
    one = FAMILIES[family]
    return [] if one.element is None else re.findall("<[^<>]*>", one.closes + one.end + one.begin + _opening(family))


def _whole(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _opening(family: str) -> str:
    """What stands around a tool's name."""
    return re.sub(r"\\(.)|\(\?P<name>.*?\)|\[0-9\]\+", r"\1", FAMILIES[family].opens)


def walk(matcher: Matcher, wished: Sequence[bytes], rng: random.Random, avoided: bytes = b"") -> bytes | None:
    """Bytes up to the stop token; None if it does not come to one."""
    bitmask, written = allocate_bitmask(1, 257), b""
    while len(written) < 4000:
        wish = list(rng.choice(wished))
        if rng.random() < 0.4 and (taken := matcher.validate_tokens(wish)) > len(wish) // 2:
            wish = wish[:taken]
        else:
            matcher.fill_next_token_bitmask(bitmask)
            allowed = unpack(bitmask, 257)[0].nonzero().flatten().tolist()
            assert allowed, (written, "a dead end")
            if STOP in allowed and (allowed == [STOP] or rng.random() < 0.3):
                return written
            allowed = [one for one in allowed if one != STOP and one not in avoided] or allowed
            text = [one for one in allowed if 32 <= one < 127] if rng.random() < 0.9 else []
            wish = [rng.choice(text or allowed)]
        assert all(map(matcher.accept_token, wish))
        written += bytes(wish)
    return None


@pytest.mark.parametrize(
    ("family", "parallel"),
    [
        pytest.param(family, parallel, marks=[pytest.mark.slow] * (i % 2 == parallel))
        for i, family in enumerate(FAMILIES)
        for parallel in (True, False)
    ],
)
def test_walks_write_calls_that_others_can_read(family: str, parallel: bool) -> None:
    schemas = tools_of(family)
    tools, wished = as_tools(schemas), wishes(family, [*schemas])
    ended = compared = 0
    rng = random.Random(f"{family} {parallel}")
    for choice in ("auto", "required", "none", *schemas):
        asked = hg.ToolCalls(tools, family, choice, parallel=parallel)
        matcher = compiler().compile(asked).matcher()
        for _ in range(4 if choice in ("auto", "required", "none") else 2):
            written = walk(matcher.fork(), wished, rng)
            if written is None:
                continue
            ended += 1
            answer = asked.parse(written.decode())
            called = [call.name for call in answer.calls]
            assert choice != "none" or not called
            assert choice in ("auto", "none") or called
            assert choice not in schemas or set(called) == {choice}
            assert parallel or len(called) < 2
            for call in answer.calls:
                jsonschema.validate(call.arguments, schemas[call.name] or {"maxProperties": 0})
            ours = [(call.name, flat(call.arguments)) for call in answer.calls]
            if any(mark in _whole(call.arguments) for call in answer.calls for mark in around(family)):
                continue  # strings without quotes may hold what ends a call, and a pattern looks for that first
            theirs = parsed(family, written.decode())
            if family in NESTED and {"tree", "anything"} & {
                *called
            }:  # a pattern cannot tell which elements are inside others
                ours, theirs = [(name, {}) for name, _ in ours], [(name, {}) for name, _ in theirs]
            assert ours == theirs, written
            compared += len(called)
    assert ended > 20 and compared > 10


@pytest.mark.parametrize("family", ["qwen_3", "glm_4_7", "harmony"])
def test_fifty_tools(family: str) -> None:
    schemas = {f"tool_{i}": {"type": "object", "properties": {f"p{i}": {"const": i}}} for i in range(50)}
    asked = hg.ToolCalls(as_tools(schemas), family, "required")
    matcher, rng = compiler().compile(asked).matcher(), random.Random(0)
    called = set()
    for _ in range(40):
        written = walk(matcher.fork(), wishes(family, [*schemas]), rng)
        assert written is not None
        answer = asked.parse(written.decode())
        called |= {call.name for call in answer.calls}
        assert [(call.name, flat(call.arguments)) for call in answer.calls] == parsed(family, written.decode())
        for call in answer.calls:
            jsonschema.validate(call.arguments, {**schemas[call.name], "additionalProperties": False})
    assert len(called) > 10


TEXTS = st.lists(
    st.sampled_from([*MARKS, "a", "<", "</", "\n", '"', "\\", "5", "null", " ", "é", "]"]), max_size=4
).map("".join)
ARGUMENTS = st.fixed_dictionaries(
    {"s": TEXTS},
    optional={
        "n": st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from([1.5, -0.25]),
        "list": st.lists(TEXTS, max_size=3),
        "in": st.builds(lambda text, number: {"k": text, "n": number}, TEXTS, st.integers(0, 9)),
    },
)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "n": {"type": ["null", "boolean", "number"]},
        "list": {"type": "array", "items": {"type": "string"}},
        "in": {
            "type": "object",
            "properties": {"k": {"type": "string"}, "n": {"type": "integer"}},
            "required": ["k", "n"],
        },
    },
    "required": ["s"],
}


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=repeats(15, 30))
@given(some=st.lists(ARGUMENTS, min_size=1, max_size=2))
def test_arguments_come_back_as_they_were(family: str, some: list[dict[str, Any]]) -> None:
    """Unless a value holds the mark that ends it: then what the chat template writes is refused."""
    if family in NESTED:
        some = [{name: value for name, value in one.items() if name in ("s", "n")} for one in some]
    some = [{name: one[name] for name in SCHEMA["properties"] if name in one} for one in some]  # the order is fixed
    asked = hg.ToolCalls(as_tools({"f": SCHEMA}), family, "required")
    message = hg.ToolAnswer("", tuple(hg.ToolCall("f", one) for one in some)).message
    text = demo().apply_chat_template([message], chat_template=template(family), tokenize=False)
    token_ids = [*text.encode(), STOP]
    accepted = compiler().compile(asked).matcher().validate_tokens(token_ids) == len(token_ids)
    values = json.dumps([list(one.values()) for one in some], ensure_ascii=False)
    assert accepted == (not any(mark in values for mark in ENDS[family])), text
    if accepted:
        assert json.dumps([call.arguments for call in asked.parse(text).calls]) == json.dumps(some)


JSON_FAMILIES = [name for name, family in FAMILIES.items() if family.element is None]


OTHER_SPELLINGS = re.compile(rb"\\[u/]|(?<![0-9])-0(?![.0-9])|[0-9][eE]|\.[0-9]*0(?![0-9])|[0-9.]{16}")


@pytest.mark.parametrize("family", JSON_FAMILIES)
def test_two_engines_agree_on_calls(family: str) -> None:
    """What either writes, the other takes; but for white space, which each bounds in its own way,
    for patterns, which one of them takes for the spelling of a string, and for what json.dumps does not write."""
    schemas = {name: HOSTILE[name] for name in ("f.(x)*[a-z]+|$", "f")}
    items = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 99}]}
    schemas["array"] = {"type": "object", "properties": {"v": {"type": "array", "items": items}}, "required": ["v"]}
    for choice in ("auto", "required", "f", "none"):
        asked = hg.ToolCalls(as_tools(schemas), family, choice)
        ours, theirs = (compiler().compile(asked, engine).matcher() for engine in ("llguidance", "xgrammar"))
        rng, number = random.Random(f"{family} {choice}"), 0
        for one, other in ((ours, theirs), (theirs, ours)):
            for _ in range(6):
                written = walk(one.fork(), wishes(family, [*schemas]), rng, avoided=b" \n\r\t")
                if written is None or OTHER_SPELLINGS.search(written):  # one of the two writes them
                    continue
                token_ids = [*written, STOP]
                assert other.fork().validate_tokens(token_ids) == len(token_ids), written
                number += 1
        assert number > 2
