"""A keyword inside a structural tag is no more dropped in silence than one in a schema of its own."""

from __future__ import annotations

from typing import Any

import pytest

import hf_guided as hg
from hf_guided.backends.structural_tag import TOOL_WHITESPACE
from hf_guided.compiler import Compiler
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


@pytest.mark.parametrize(
    ("constraint", "pointer"),
    [
        (tool_calls({"type": "array", "uniqueItems": True}), "/format/tags/0/content/json_schema/properties/a"),
        (hg.StructuralTag(OLDER), "/structures/0/schema"),
    ],
)
def test_lost_keyword_is_refused_with_its_pointer(compiler: Compiler, constraint: Any, pointer: str) -> None:
    with pytest.raises(hg.UnsupportedConstraint, match="uniqueItems") as caught:
        compiler.compile(constraint)
    assert (pointer, "uniqueItems") in {(loss.pointer, loss.keyword) for loss in caught.value.losses}
    assert not compiler.audit(constraint).ok


@pytest.mark.parametrize(
    ("value", "allowed"), [('"ab"', True), ('"b"', False), ('"a"', True), ("1", False), ('"a\nb"', False)]
)
def test_schema_of_an_argument_is_enforced(compiler: Compiler, value: str, allowed: bool) -> None:
    """As a pattern on its own: on the decoded string, whole, and with no control character let through."""
    matcher = compiler.compile(tool_calls({"type": "string", "pattern": "^a.?$"})).matcher()
    text = f'<tool_call>\n{{"name": "f", "arguments": {{"a": {value}}}}}\n</tool_call>'.encode()
    assert (matcher.validate_tokens(list(text)) == len(text)) is allowed


@pytest.mark.parametrize(
    ("value", "allowed"), [('"5"', True), ('"5x"', True), ('"5xx"', False), ('"2024-02-29"', False)]
)
def test_alternatives_that_begin_alike_are_told_apart(compiler: Compiler, value: str, allowed: bool) -> None:
    other = {"type": "string", "format": "date"}
    argument = {"anyOf": [{"type": "array", "items": other}, {"type": "string", "pattern": "^(?:[0-5]|[0-5]x?)$"}]}
    matcher = compiler.compile(tool_calls(argument)).matcher()
    text = f'<tool_call>\n{{"name": "f", "arguments": {{"a": {value}}}}}\n</tool_call>'.encode()
    assert (matcher.validate_tokens(list(text)) == len(text)) is allowed


@pytest.mark.parametrize(
    ("backend", "asked", "most"),
    [
        ("xgrammar", {}, TOOL_WHITESPACE),
        ("xgrammar", {"max_whitespace_cnt": 3}, 3),
        ("llguidance", {}, 41),
        ("llguidance", {"max_whitespace_cnt": 3}, 0),  # as json.dumps writes it
    ],
)
def test_white_space_in_a_tag_is_bounded(compiler: Compiler, backend: str, asked: dict[str, int], most: int) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    tag = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": schema, **asked}}
    matcher = compiler.compile(hg.StructuralTag(tag), backend).matcher()
    assert matcher.validate_tokens(list(b"{\n" + b" " * 300)) == 1 + most
