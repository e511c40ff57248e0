"""Schemas inside structural tags: no keyword is dropped silently, and both engines accept the same texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest
import xgrammar

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from hf_guided.backends.tag_marks import overlap
from tests import toy


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def tool_calls(argument: dict[str, Any]) -> hg.ToolCalls:
    parameters = {"type": "object", "properties": {"a": argument}, "required": ["a"]}
    return hg.ToolCalls(
        [{"type": "function", "function": {"name": "f", "parameters": parameters}}], "qwen_3", choice="required"
    )


OLDER = {
    "structures": [{"begin": "<f>", "schema": {"type": "array", "uniqueItems": True}, "end": "</f>"}],
    "triggers": ["<f>"],
}


NEWER = {
    "format": {
        "type": "triggered_tags",
        "triggers": ["<f>"],
        "tags": [
            {
                "begin": "<f>",
                "content": {"type": "json_schema", "json_schema": OLDER["structures"][0]["schema"]},
                "end": "</f>",
            }
        ],
    }
}


def test_xgrammar_refuses_the_older_form(compiler: Compiler) -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="triggered_tags") as caught:
        compiler.compile(hg.StructuralTag(OLDER), "xgrammar")
    assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [("", "structures")]


@pytest.mark.parametrize(
    ("constraint", "pointer"),
    [
        (
            tool_calls({"type": "array", "uniqueItems": True}),
            "/format/tags/0/content/json_schema/properties/a/uniqueItems",
        ),
        (hg.StructuralTag(NEWER), "/format/tags/0/content/json_schema/uniqueItems"),
    ],
)
def test_lost_keyword_is_refused_with_its_pointer(compiler: Compiler, constraint: Any, pointer: str) -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="uniqueItems") as caught:
        compiler.compile(constraint, "xgrammar")
    assert (pointer, "uniqueItems") in {(loss.pointer, loss.keyword) for loss in caught.value.losses}
    assert not compiler.audit(constraint, "xgrammar").ok
    assert compiler.audit(constraint).backend == compiler.compile(constraint).backend == "native"
    assert compiler.compile(constraint).keeps_budget


@pytest.mark.parametrize("constraint", [tool_calls({}), hg.StructuralTag(OLDER)])
@pytest.mark.parametrize("backend", ["llguidance", "lm_format_enforcer", "outlines"])
def test_engines_without_tags_refuse_them_by_name(compiler: Compiler, constraint: Any, backend: str) -> None:
    with pytest.raises(hg.UnsupportedConstraint) as caught:
        compiler.compile(constraint, backend)
    assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [("", "structural_tag")]
    assert not compiler.audit(constraint, backend).ok


@pytest.mark.parametrize(
    ("backend", "asked", "spaces", "behind_line_end"),
    [
        ("xgrammar", {}, 1, 1 + 40),  # its grammar does not count the levels
        ("xgrammar", {"max_whitespace_cnt": 3}, 3, 3),
        ("native", {}, 1, 1 + 8),  # the newline, and eight columns for the one level
        ("native", {"max_whitespace_cnt": 3}, 3, 3),
        ("native", {"max_whitespace_cnt": 0}, 0, 0),
    ],
)
def test_whitespace_in_a_tag_is_bounded(
    compiler: Compiler, backend: str, asked: dict[str, int], spaces: int, behind_line_end: int
) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, **asked}}
    matcher = compiler.compile(hg.StructuralTag(tag), backend).matcher()
    assert matcher.validate_tokens(list(b"{" + b" " * 300)) == 1 + spaces
    assert matcher.validate_tokens(list(b"{\n" + b" " * 300)) == 1 + behind_line_end


def test_free_text_without_an_end_marker_is_read_in_all_ways_at_once(compiler: Compiler) -> None:
    content = [{"type": "any_text"}, {"type": "json_schema", "json_schema": {"const": [1]}}]
    tag = hg.StructuralTag({"type": "structural_tag", "format": {"type": "sequence", "elements": content}})
    compiled = compiler.compile(tag)
    assert compiled.backend == "native"
    for matcher in (compiled.matcher(), compiler.compile(tag, "xgrammar").matcher()):
        for text, allowed in (("hello[1]", True), ("[1", False), ("[1][1]", True), ("[1] ", False)):
            assert (matcher.validate_tokens([*text.encode(), 256]) == len(text) + 1) is allowed, text


@pytest.mark.parametrize("option", [{"max_tokens": 2}, {"max_chars": 0}, {"max_chars": 2}])
def test_bounds_that_xgrammar_exceeds_are_losses(compiler: Compiler, option: dict[str, int]) -> None:
    with pytest.raises(hg.UnsupportedConstraint) as caught:
        compiler.compile(hg.StructuralTag({"format": {"type": "any_text", **option}}), "xgrammar")
    assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [
        (f"/format/{name}", name) for name in option
    ]


def test_special_tokens_in_tags_are_named_by_their_texts(compiler: Compiler) -> None:
    call = {"begin": {"type": "token", "token": 3}, "content": {"type": "const_string", "value": "x"}, "end": "<"}
    for backend in ("auto", "xgrammar"):
        with pytest.raises(hg.UnsupportedConstraint, match="token") as caught:
            compiler.compile(hg.StructuralTag({"format": {"type": "tag", **call}}), backend)
        assert caught.value.losses[0].pointer == "/format/begin"


def dsml(value: str, is_string: str) -> str:
    return f'<｜DSML｜parameter name="a" string="{is_string}">{value}</｜DSML｜parameter>\n'


def kimi(kind: str, value: str, name: str = "a") -> str:
    return f'<|open|>argument key="{name}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>'


def cohere(kind: str, value: str, name: str = "a") -> str:
    return f'<cofl:value name="{name}" type="{kind}">{value}</cofl:value>'


ELEMENTS = {
    "deepseek_xml": [
        *(dsml("x", "true"), dsml("x", "false"), dsml("1", "false"), dsml('{"b": 1}', "false"), dsml("{}", "true"), ""),
        *(dsml('[1, {"b": [2]}]', "false"), dsml(dsml("1", "false"), "false"), dsml('{"b": 1', "false")),
    ],
    "kimi_k3_xml": [
        *(kimi("object", '{"b": 1}'), kimi("object", kimi("number", "1", "b")), kimi("number", "1")),
        *(kimi("array", '[{"b": 1}]'), kimi("array", kimi("number", "1", "b"))),
    ],
    "cohere_xml": [
        *(
            cohere("dict", cohere("json", "1", "b")),
            cohere("dict", '{"b": 1}'),
            cohere("json", "1"),
            cohere("raw", "x"),
        ),
    ],
}
OPEN_SCHEMAS: list[Any] = [
    True,
    {},
    {"type": "object"},
    {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
    {"type": "object", "properties": {"a": {"$ref": "#"}}},
]


@pytest.mark.parametrize("style", ELEMENTS)
@pytest.mark.parametrize("schema", OPEN_SCHEMAS, ids=str)
def test_elements_of_open_schemas_hold_what_xgrammar_says(compiler: Compiler, style: str, schema: Any) -> None:
    """The same position is written as elements outside, and as JSON inside an element."""
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, "style": style}}
    matcher = compiler.compile(hg.StructuralTag(tag), "native").matcher()
    info = xgrammar.TokenizerInfo([*(bytes([byte]) for byte in range(256)), b"<s>"], stop_token_ids=[256])
    grammar = xgrammar.GrammarCompiler(info).compile_grammar(xgrammar.Grammar.from_structural_tag(json.dumps(tag)))
    for text in ELEMENTS[style]:
        its_own = xgrammar.GrammarMatcher(grammar)
        expected = its_own.accept_string(text) and its_own.is_completed()
        token_ids = [*text.encode(), 256]
        assert (matcher.validate_tokens(token_ids) == len(token_ids)) is expected, text


@pytest.mark.parametrize("values", [["r", "g"], [*"abcdefgh"]], ids=["few", "eight"])
def test_a_few_different_items_may_be_elements(compiler: Compiler, values: list[str]) -> None:
    """Their orders are listed, as in a grammar without registers; more of them are refused."""
    items = {"type": "array", "uniqueItems": True, "items": {"enum": values}}
    schema = {"type": "object", "properties": {"a": items}, "required": ["a"]}
    tag = {"type": "json_schema", "json_schema": schema, "style": "cohere_xml"}
    if len(values) > 7:
        with pytest.raises(hg.UnsupportedConstraint) as caught:
            compiler.compile(hg.StructuralTag({"format": tag}))
        assert caught.value.pointers == ("/format/json_schema/properties/a/uniqueItems",)
        return
    matcher = compiler.compile(hg.StructuralTag({"format": tag})).matcher()
    for written in ("", "r", "gr", "rg", "rr", "grg"):
        listed = "".join(f'<cofl:value type="raw">{value}</cofl:value>' for value in written)
        text = cohere("list", listed).encode()
        assert (matcher.validate_tokens([*text, 256]) == len(text) + 1) is (len(set(written)) == len(written)), text


FREE: dict[str, Any] = {"type": "any_text"}
X: dict[str, Any] = {"type": "const_string", "value": "x"}
INNER = {
    "type": "triggered_tags",
    "triggers": ["[t]"],
    "tags": [{"type": "tag", "begin": "[t]", "content": X, "end": "[/t]"}],
}
ENDING_IN_FREE_TEXT: dict[str, dict[str, Any]] = {
    "alone": FREE,
    "sequence": {"type": "sequence", "elements": [X, FREE]},
    "or": {"type": "or", "elements": [X, FREE]},
    "optional": {"type": "optional", "content": FREE},
    "plus": {"type": "plus", "content": FREE},
    "star": {"type": "star", "content": FREE},
    "repeat": {"type": "repeat", "min": 1, "max": 2, "content": FREE},
    "tags": INNER,
    "sequence of tags": {"type": "sequence", "elements": [X, INNER]},
}


@pytest.mark.parametrize("name", ENDING_IN_FREE_TEXT)
def test_free_text_in_a_tag_ends_at_its_first_end(compiler: Compiler, name: str) -> None:
    """However deep it is: a reader takes the first end for the end."""
    tag = {"type": "tag", "begin": "<", "content": ENDING_IN_FREE_TEXT[name], "end": ">"}
    matcher = compiler.compile(hg.StructuralTag({"format": tag})).matcher()
    accepted = [
        text
        for text in ("<x>", "<xa>", "<xa>b>", "<x>>", "<x[t]x[/t]y>", "<x>[t]x[/t]>")
        if matcher.validate_tokens([*text.encode(), 256]) == len(text) + 1
    ]
    assert accepted == ["<x>", "<xa>", "<x[t]x[/t]y>"]


def is_whole(text: str, ends: Sequence[str], excludes: Sequence[str]) -> bool:
    """Whether a text ends where the first of its ends ends, and nothing that is excluded stands before that end."""
    if any(text[:length].endswith(end) for end in ends for length in range(len(text))):
        return False
    contents = [text[: len(text) - len(end)] for end in ends if text.endswith(end)]
    return any(not any(mark in content for mark in excludes) for content in contents)


ENDS = [["ab"], ["aa"], ["aba"], ["a", "ba"], ["a", "ab"], ["ab", "b"], ["ab", "bc"], ["abc", "b"], ["a", "b", "ab"]]


@pytest.mark.parametrize("excludes", [[], ["c"], ["ba"]])
@pytest.mark.parametrize("ends", ENDS, ids=" ".join)
@pytest.mark.parametrize("backend", ["xgrammar", "native"])
def test_ends_that_overlap(compiler: Compiler, backend: str, ends: list[str], excludes: list[str]) -> None:
    """The first end of all counts, or the engine refuses the tag."""
    content = {"type": "any_text", "excludes": excludes}
    tag = hg.StructuralTag({"format": {"type": "tag", "begin": "", "content": content, "end": ends}})
    if backend == "xgrammar" and overlap(ends):
        with pytest.raises(hg.UnsupportedConstraint) as caught:
            compiler.compile(tag, backend)
        assert [(loss.pointer, loss.keyword) for loss in caught.value.losses] == [("/format/end", "end")]
        return
    matcher = compiler.compile(tag, backend).matcher()
    for length in range(6):
        for text in map("".join, product("abc", repeat=length)):
            allowed = matcher.validate_tokens([*text.encode(), 256]) == length + 1
            assert allowed is is_whole(text, ends, excludes), text


def grammar_tag(text: str) -> hg.StructuralTag:
    return hg.StructuralTag({"format": {"type": "sequence", "elements": [X, {"type": "grammar", "grammar": text}]}})


@pytest.mark.parametrize(
    ("text", "error", "pointer"),
    [
        ('root ::= "a" root', hg.InvalidConstraint, "/format/elements/1/grammar"),
        ("root ::= (", hg.InvalidConstraint, "/format/elements/1/grammar"),
        ('start: "a"', hg.InvalidConstraint, "/format/elements/1/grammar"),
        ("root ::= <[5]>", hg.UnsupportedConstraint, "/format/elements/1/grammar"),
        ('root ::= "a"{1000000000}', hg.CompileLimitExceeded, ""),
    ],
)
@pytest.mark.parametrize("backend", ["native", "xgrammar"])
def test_grammar_in_a_tag_is_refused_as_it_is_alone(
    compiler: Compiler, backend: str, text: str, error: type[Exception], pointer: str
) -> None:
    with pytest.raises(error):
        compiler.compile(hg.Grammar(text, "gbnf"), backend)
    with pytest.raises(error) as caught:
        compiler.compile(grammar_tag(text), backend)
    if isinstance(caught.value, hg.InvalidConstraint):
        assert list(caught.value.pointers) == [pointer]
    elif isinstance(caught.value, hg.UnsupportedConstraint):
        assert [loss.pointer for loss in caught.value.losses] == [pointer]


@pytest.mark.parametrize(
    "text", ["root ::= x\nx ::= x{0,3}", 'root ::= root "a" | "b"', "root ::= [ab]{,2} | .", 'root ::= ""']
)
def test_grammar_in_a_tag_means_what_it_means_alone(compiler: Compiler, text: str) -> None:
    """The first of them ends the process when xgrammar reads it itself."""
    alone, inside = compiler.compile(hg.Grammar(text)).matcher(), compiler.compile(grammar_tag(text)).matcher()
    for length in range(4):
        for written in map("".join, product("abc", repeat=length)):
            taken = alone.validate_tokens([*written.encode(), 256])
            assert inside.validate_tokens([*b"x", *written.encode(), 256]) == 1 + taken


def test_rules_in_tags_are_called_and_the_way_to_the_end_is_known(compiler: Compiler) -> None:
    """Two grammars with rules of one name, one of them twice, beside a value of a schema."""
    sums = {"type": "grammar", "grammar": 'root ::= root "+" root | "(" root ")" | [0-9]+'}
    lists = {"type": "grammar", "grammar": 'root ::= "(" root* ")" | [a-z]'}
    elements = [sums, X, lists, {"type": "json_schema", "json_schema": {"type": "boolean"}}, lists]
    tag = {"type": "tag", "begin": "<", "content": {"type": "sequence", "elements": elements}, "end": ">"}
    compiled = compiler.compile(hg.StructuralTag({"format": tag}))
    assert compiled.backend == "native"
    for text, fits in {
        "<1+(2+3)x((a)b())truez>": True,
        "<((1))xafalse()>": True,
        "<(1xatrueb>": False,
        "<1x(atrueb>": False,
        "<1xatrue1>": False,
        "<1+xatrueb>": False,
    }.items():
        token_ids = [*text.encode(), 256]
        assert (compiled.matcher().validate_tokens(token_ids) == len(token_ids)) is fits, text
    matcher = compiled.matcher()
    assert matcher.min_tokens_to_finish() == len("<1xatruea>") + 1
    deep = "<" + "(" * 300 + "1"
    assert all(map(matcher.accept_token, deep.encode()))
    assert matcher.min_tokens_to_finish() == len(")" * 300 + "xatruea>") + 1
