"""Tool calls of every family with hostile tools: calls written by random walks are parsed and validated.

A walk takes random allowed tokens, and sometimes tries to write a marker, so that markers occur in strings, names of
tools in free text, and quotes everywhere. The oracles are transformers' own parser, and ``jsonschema`` for arguments.
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
from hf_guided.backends.compile import Compiler
from hf_guided.backends.matcher import Matcher
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import toy
from tests.effort import repeats
from tests.pairs import one_in
from tests.tool_families import ENDS, FAMILIES, STARTS, flat, parsed, template
from tests.vocabularies import demo

STOP = 256
NESTED = ("cohere", "minimax_m3")  # families that write arrays and objects as nested elements
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
    """The tools of the tests. minimax_m3 repeats names in its closing marks, so it refuses undeclared names."""
    return {**HOSTILE, **RECURSIVE} if family == "minimax_m3" else {**HOSTILE, **RECURSIVE, **OPEN}


def as_tools(schemas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": name, **({} if schema is None else {"parameters": schema})}}
        for name, schema in schemas.items()
    ]


def target_texts(family: str, names: Sequence[str]) -> list[bytes]:
    """The texts that a walk tries to write."""
    notation = FAMILIES[family]
    marks = [*MARKS, notation.begin, notation.end, notation.between, notation.closes, notation.before]
    marks.append(STARTS.get(family, "<tool_call>"))
    return [
        mark.encode()
        for mark in [*marks, _opening(family), *names, '"', '"}', "}", "]", "5", "true", "<|sep|>"]
        if mark
    ]


def markers_around(family: str) -> list[str]:
    """The markers around a call whose arguments are elements."""
    notation = FAMILIES[family]
    text = notation.closes + notation.end + notation.begin + _opening(family)
    return [] if notation.element is None else re.findall("<[^<>]*>", text)


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _opening(family: str) -> str:
    """The text around the name of a tool."""
    return re.sub(r"\\(.)|\(\?P<name>.*?\)|\[0-9\]\+", r"\1", FAMILIES[family].opens)


def walk(matcher: Matcher, targets: Sequence[bytes], rng: random.Random, excluded: bytes = b"") -> bytes | None:
    """Write random bytes up to the stop token. Return None if the walk does not reach it."""
    bitmask, written = allocate_bitmask(1, 257), b""
    while len(written) < 4000:
        attempt = list(rng.choice(targets))
        if rng.random() < 0.4 and (taken := matcher.validate_tokens(attempt)) > len(attempt) // 2:
            attempt = attempt[:taken]
        else:
            matcher.fill_next_token_bitmask(bitmask)
            allowed = unpack(bitmask, 257)[0].nonzero().flatten().tolist()
            assert allowed, (written, "a dead end")
            if STOP in allowed and (allowed == [STOP] or rng.random() < 0.3):
                return written
            allowed = [byte for byte in allowed if byte != STOP and byte not in excluded] or allowed
            text = [byte for byte in allowed if 32 <= byte < 127] if rng.random() < 0.9 else []
            attempt = [rng.choice(text or allowed)]
        assert all(map(matcher.accept_token, attempt))
        written += bytes(attempt)
    return None


@pytest.mark.parametrize(
    ("family", "parallel"),
    [
        pytest.param(family, parallel, marks=[pytest.mark.slow] * (i % 2 == parallel))
        for i, family in enumerate(FAMILIES)
        for parallel in (True, False)
    ],
)
def test_random_calls_are_parsed_as_by_transformers(family: str, parallel: bool) -> None:
    schemas = tools_of(family)
    tools, targets = as_tools(schemas), target_texts(family, [*schemas])
    num_finished = num_compared = 0
    rng = random.Random(f"{family} {parallel}")
    for choice in ("auto", "required", "none", *rng.sample([*schemas], repeats(3, len(schemas)))):
        constraint = hg.ToolCalls(tools, family, choice, parallel=parallel)
        matcher = compiler().compile(constraint).matcher()
        for _ in range(4 if choice in ("auto", "required", "none") else 2):
            written = walk(matcher.fork(), targets, rng)
            if written is None:
                continue
            num_finished += 1
            answer = constraint.parse(written.decode())
            called = [call.name for call in answer.calls]
            assert choice != "none" or not called
            assert choice in ("auto", "none") or called
            assert choice not in schemas or set(called) == {choice}
            assert parallel or len(called) < 2
            for call in answer.calls:
                jsonschema.validate(call.arguments, schemas[call.name] or {"maxProperties": 0})
            ours = [(call.name, flat(call.arguments)) for call in answer.calls]
            if any(mark in _dumps(call.arguments) for call in answer.calls for mark in markers_around(family)):
                continue  # unquoted strings may contain the end marker of a call, for which the other parser searches
            theirs = parsed(family, written.decode())
            if family in NESTED and {"tree", "anything"} & {
                *called
            }:  # the other parser uses a pattern, which cannot read nested elements
                ours, theirs = [(name, {}) for name, _ in ours], [(name, {}) for name, _ in theirs]
            assert ours == theirs, written
            num_compared += len(called)
    assert num_finished > repeats(10, 20) and num_compared > repeats(5, 10)


@pytest.mark.parametrize("family", one_in(3, ["qwen_3", "glm_4_7", "harmony"], first=1))
def test_calls_of_fifty_tools(family: str) -> None:
    schemas = {f"tool_{i}": {"type": "object", "properties": {f"p{i}": {"const": i}}} for i in range(50)}
    constraint = hg.ToolCalls(as_tools(schemas), family, "required")
    matcher, rng = compiler().compile(constraint).matcher(), random.Random(0)
    called = set()
    for _ in range(40):
        written = walk(matcher.fork(), target_texts(family, [*schemas]), rng)
        assert written is not None
        answer = constraint.parse(written.decode())
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
def test_arguments_survive_the_round_trip(family: str, some: list[dict[str, Any]]) -> None:
    """If a value contains its own end marker, the text of the chat template is refused."""
    if family in NESTED:
        some = [{name: value for name, value in call.items() if name in ("s", "n")} for call in some]
    some = [{name: call[name] for name in SCHEMA["properties"] if name in call} for call in some]  # in schema order
    constraint = hg.ToolCalls(as_tools({"f": SCHEMA}), family, "required")
    message = hg.ToolAnswer("", tuple(hg.ToolCall("f", call) for call in some)).message
    text = demo().apply_chat_template([message], chat_template=template(family), tokenize=False)
    token_ids = [*text.encode(), STOP]
    accepted = compiler().compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)
    values = json.dumps([list(call.values()) for call in some], ensure_ascii=False)
    assert accepted == (not any(mark in values for mark in ENDS[family])), text
    if accepted:
        assert json.dumps([call.arguments for call in constraint.parse(text).calls]) == json.dumps(some)


JSON_FAMILIES = [name for name, family in FAMILIES.items() if family.element is None]


OTHER_SPELLINGS = re.compile(rb"\\[u/]|(?<![0-9])-0(?![.0-9])|[0-9][eE]|\.[0-9]*0(?![0-9])|[0-9.]{16}")


@pytest.mark.parametrize("family", JSON_FAMILIES)
def test_two_engines_agree_on_calls(family: str) -> None:
    """Each engine accepts the calls written by the other.

    xgrammar takes no list of calls without a mark at its end, nor text up to such a mark, and says so.

    Exceptions: whitespace, which each engine bounds in its own way; patterns, which one of them applies to the
    spelling of a string; and spellings that json.dumps does not write.
    """
    schemas = {name: HOSTILE[name] for name in ("f.(x)*[a-z]+|$", "f")}
    items = {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 0, "maximum": 99}]}
    schemas["array"] = {"type": "object", "properties": {"v": {"type": "array", "items": items}}, "required": ["v"]}
    schemas["no_array"] = {"type": "object", "properties": {"v": {"items": items}}, "required": ["v"]}
    everything = ("auto", "required", "f", "none")
    for choice in random.Random(family).sample(everything, repeats(2, 4)):
        constraint = hg.ToolCalls(as_tools(schemas), family, choice)
        if family in ("mistral_v11", "mistral_v13", "functionary_v3_2") and choice != "none":
            reason = "at least one end string must be non-empty|free text before it may hold a part of an end"
            with pytest.raises(hg.UnsupportedConstraint, match=reason):
                compiler().compile(constraint, "xgrammar")
            continue
        ours, theirs = (compiler().compile(constraint, engine).matcher() for engine in ("native", "xgrammar"))
        rng, num_compared = random.Random(f"{family} {choice}"), 0
        for writer, reader in ((ours, theirs), (theirs, ours)):
            for _ in range(repeats(10, 20)):
                written = walk(writer.fork(), target_texts(family, [*schemas]), rng, excluded=b" \n\r\t")
                if written is None or OTHER_SPELLINGS.search(written):  # only one of the two engines writes these
                    continue
                token_ids = [*written, STOP]
                assert reader.fork().validate_tokens(token_ids) == len(token_ids), written
                num_compared += 1
        assert num_compared > 2
