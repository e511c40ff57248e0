"""OpenAI's ``tool_choice`` and ``strict``: which tools may be called, and which arguments have to fit a schema."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from xgrammar import get_model_structural_tag

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.constraints.tool_notation import FAMILIES as DESCRIBED
from tests import toy
from tests.tool_families import FAMILIES, parsed, template
from tests.vocabularies import demo

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
NAMES = ("a", "ab", "c")


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": SCHEMA, **more}}


TOOLS = [tool(name) for name in NAMES]


def allowed(mode: str, *names: str) -> dict[str, Any]:
    tools = [{"type": "function", "function": {"name": name}} for name in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def accepts(compiler: Compiler, constraint: hg.ToolCalls, text: str) -> bool:
    token_ids = [*text.encode(), 256]
    return compiler.compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)


def call(name: str, arguments: str = '{"n": 1}') -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_only_allowed_tools_are_called(compiler: Compiler, mode: str) -> None:
    constraint = hg.ToolCalls(TOOLS, "qwen_3", allowed(mode, "c", "a", "c"))
    assert (constraint.choice, constraint.allowed) == (mode, ("a", "c"))
    assert {name for name in NAMES if accepts(compiler, constraint, call(name))} == {"a", "c"}
    assert accepts(compiler, constraint, "text") is (mode == "auto")
    assert [each["function"]["name"] for each in constraint.tools] == list(NAMES), "the prompt shows all of them"
    for other in (hg.ToolCalls(TOOLS, "qwen_3", mode), hg.ToolCalls(TOOLS, "qwen_3", allowed(mode, "a"))):
        assert other.key != constraint.key and other != constraint


@pytest.mark.parametrize("family", sorted({*FAMILIES} - {"mistral", "mistral_v11", "mistral_v13", *DESCRIBED}))
def test_allowed_tools_are_those_of_xgrammar(family: str) -> None:
    """Its own filter of tools gives the same as only these tools."""
    constraint = hg.ToolCalls(TOOLS, family, allowed("required", "c", "a"))
    fewer = hg.ToolCalls([TOOLS[0], TOOLS[2]], family, "required")
    assert constraint.structural_tag() == fewer.structural_tag()
    its_own = get_model_structural_tag(family, TOOLS, allowed("required", "c", "a"), reasoning="disabled")
    assert '"ab' not in its_own.model_dump_json()
    assert '"ab' not in constraint.structural_tag().tag_json


def test_the_format_of_the_template_keeps_the_allowed_tools() -> None:
    class Tokenizer:
        def get_chat_template(self, tools: Any) -> str:
            return "<tool_call>"

    constraint = hg.ToolCalls(TOOLS, choice=allowed("required", "a")).for_tokenizer(Tokenizer())
    assert constraint == hg.ToolCalls(TOOLS, "qwen_3", allowed("required", "a"))
    text = hg.describe(constraint)
    assert "- a" in text and "- c" not in text


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (allowed("auto"), r"allowed_tools\.tools: expected a list of at least one tool"),
        (allowed("none", "a"), r"allowed_tools\.mode: expected 'auto' or 'required', got 'none'"),
        (allowed("auto", "a", "d"), r"allowed_tools\.tools\[1\]\.function\.name: expected one of .*, got 'd'"),
        ({"type": "allowed_tools"}, r"allowed_tools: expected \{"),
        ({"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": ["a"]}}, r"tools\[0\]: expected \{"),
        ({**allowed("auto", "a"), "mode": "auto"}, "expected the keys type, allowed_tools, got 'mode'"),
        ({"type": "allowed", "allowed_tools": {}}, r"ToolCalls\.choice: expected \{"),
        ({"type": "function", "function": {"name": 5}}, r"ToolCalls\.choice: expected \{"),
        ({"type": "function", "function": {"name": "d"}}, "got 'd'"),
        ("requird", "did you mean 'required'"),
        (5, "got 5"),
        pytest.param(10**5000, "got <int without a repr>", id="long int"),
        (allowed(10**5000, "a"), r"allowed_tools\.mode: .*got <int without a repr>"),
        (["a"], "got "),
    ],
)
def test_wrong_choices_are_refused(choice: Any, message: str) -> None:
    with pytest.raises(hg.InvalidConstraint, match=message):
        hg.ToolCalls(TOOLS, "qwen_3", choice)


def test_tools_and_choices_of_both_apis_are_equal() -> None:
    flat_tools = [{"type": "function", **each["function"]} for each in TOOLS]
    flat = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "a"}]}
    expected = hg.ToolCalls(TOOLS, "qwen_3", allowed("required", "a"))
    assert hg.ToolCalls(flat_tools, "qwen_3", flat) == expected
    named = {"type": "function", "function": {"name": "a"}}, {"type": "function", "name": "a"}
    assert hg.ToolCalls(TOOLS, choice=named[0]) == hg.ToolCalls(flat_tools, choice=named[1])
    for wrong in ({**flat, "modes": 1}, {**allowed("auto", "a"), "x": 1}, {"type": "allowed_tools", "mode": "auto"}):
        with pytest.raises(hg.InvalidConstraint, match=r"ToolCalls\.choice"):
            hg.ToolCalls(TOOLS, "qwen_3", wrong)


USUAL = ["look_up", "get-weather", "A1", "x" * 64]
ODD = [
    "look up",
    "a  b",
    " a",
    "a ",
    "a.b",
    "a:b",
    "a=b",
    "a&b",
    "a;b",
    "a,b",
    "a/b",
    "a|b",
    "a'b",
    "a`b",
    "a{b",
    "a}b",
]
ODD += [
    "f(x)",
    "a[b",
    "a]b",
    "[ARGS]",
    "[TOOL_CALLS]",
    "a\u00a0b",
    "a\u2028b",
    "é",
    "名",
    "all",
    "functions.a",
    "a to=b",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_name_is_refused_or_read_back_by_other_readers(family: str) -> None:
    """A template in the family's syntax writes calls; transformers reads them, and a split of the ids of Kimi."""
    refused = set()
    for name in [*USUAL, *ODD]:
        try:
            constraint = hg.ToolCalls([tool(name)], family)
            constraint.check()
        except hg.InvalidConstraint as error:
            assert repr(name) in str(error)
            refused.add(name)
            continue
        message = hg.ToolAnswer("", (hg.ToolCall(name, {"n": 1}),)).message
        text = str(demo().apply_chat_template([message], chat_template=template(family), tokenize=False))
        assert [each.name for each in constraint.parse(text).calls] == [name]
        assert parsed(family, text) == [(name, {"n": "1"})]
        if family == "kimi":
            [found] = re.findall(r"<\|tool_call_begin\|>(.*?)<\|", text)
            assert found.split(":")[0].removeprefix("functions.") == name
        if family == "harmony":
            [header] = re.findall(r"(?:<\|channel\|>)?([^<]* to=[^<]*)", text)
            assert f"to=functions.{name}" in header.split()
    assert not refused & set(USUAL)
    by_family = {
        "harmony": {name for name in ODD if len(name.split()) > 1 or name != name.strip()},
        "kimi": {name for name in ODD if ":" in name},
        "glm_4_7": {name for name in ODD if name != name.strip()},
        **dict.fromkeys(("mistral", "mistral_v11", "mistral_v13"), {"[ARGS]", "[TOOL_CALLS]"}),
        "functionary_v3_2": {"all"},
    }
    assert refused == by_family.get(family, set())


@pytest.mark.parametrize("name", ['a"b', "a<b", "a>b", "a\\b", "a\nb", "a\x00b", ""])
def test_marks_of_notations_are_in_no_name(name: str) -> None:
    for family in FAMILIES:
        with pytest.raises(hg.InvalidConstraint, match=r"tools\[0\]\.function\.name: expected"):
            hg.ToolCalls([tool(name)], family)


def test_a_name_is_refused_when_the_notation_is_known() -> None:
    class Tokenizer:
        def get_chat_template(self, tools: Any) -> str:
            return "<|channel|>"

    with pytest.raises(hg.InvalidConstraint, match="without white space, which the notation 'harmony' .*, got 'a b'"):
        hg.ToolCalls([tool("a b")]).for_tokenizer(Tokenizer())
    assert hg.ToolCalls([tool("a b")], choice="none").for_tokenizer(Tokenizer()).format == "harmony"
    assert hg.ToolCalls([tool("a b"), tool("a")], "harmony", allowed("auto", "a")).allowed == ("a",)
    own = hg.ToolFormat("call ", "{name}: ", "{arguments}", "\n")
    with pytest.raises(hg.InvalidConstraint, match="without ': ', which the notation ToolFormat"):
        hg.ToolCalls([tool("a: b")], own)
    assert hg.ToolCalls([tool("a:b")], own).parse('call a:b: {"n": 1}\n').calls == (hg.ToolCall("a:b", {"n": 1}),)


OBJECTS = ["{}", '{"n": 1}', '{"n": "x"}', '{"m": {"deep": [1, null, {"x": true}]}}', '{"n": 1, "o": 2.5}']


@pytest.mark.parametrize("strict", [None, True, False])
def test_strict_opens_no_object_that_the_schema_closes(compiler: Compiler, strict: bool | None) -> None:
    more = {} if strict is None else {"strict": strict}
    constraint = hg.ToolCalls([tool("a", **more), tool("c")], "qwen_3", "required")
    accepted = [text for text in OBJECTS if accepts(compiler, constraint, call("a", text))]
    assert accepted == ['{"n": 1}']
    for text in accepted:
        assert constraint.parse(call("a", text)).calls == (hg.ToolCall("a", json.loads(text)),)
    for text in ("[]", "1", "null", '"x"'):
        assert not accepts(compiler, constraint, call("a", text))
    assert not accepts(compiler, constraint, call("c", "{}")), "strict is a property of one tool"


@pytest.mark.parametrize("strict", [0, 1, "false", "no", [], {}])
def test_wrong_strict_is_refused(strict: Any) -> None:
    if strict in (0, 1):
        strict = float(strict) + 0.5
    with pytest.raises(hg.InvalidConstraint, match=r"tools\[0\]\.function\.strict: expected true or false"):
        hg.ToolCalls([tool("a", strict=strict)], "qwen_3")


def test_a_description_shows_the_parameters_of_a_tool_that_is_not_strict() -> None:
    shown = [hg.describe(hg.ToolCalls([tool("a", strict=strict)], "qwen_3")) for strict in (True, False)]
    assert shown[0] == shown[1] and "{n: integer}" in shown[1]
