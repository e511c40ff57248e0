"""Parsing tool calls. Where the text does not distinguish a string from a number, the schema decides."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.compile import Compiler
from tests import toy
from tests.tool_families import ENDS, FAMILIES, template
from tests.vocabularies import demo

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def tool_constraint(family: str, schema: dict[str, Any]) -> hg.ToolCalls:
    return hg.ToolCalls([{"type": "function", "function": {"name": "f", "parameters": schema}}], family, "required")


def closed_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def render_call(family: str, arguments: dict[str, Any]) -> str:
    """Render one call with the chat template of the family."""
    message = hg.ToolAnswer("", (hg.ToolCall("f", arguments),)).message
    return str(demo().apply_chat_template([message], chat_template=template(family), tokenize=False))


def accepts(compiler: Compiler, constraint: hg.ToolCalls, text: str) -> bool:
    token_ids = [*text.encode(), 256]
    return compiler.compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)


def equal_json(found: Any, expected: Any) -> bool:
    """Compare as JSON, where 1 and true differ."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_string_argument_keeps_its_quotes(compiler: Compiler, family: str) -> None:
    constraint = tool_constraint(family, closed_object(s=STRING))
    for value in ('"q"', '""', '"', '["a"]', "5", "null", " 5", "5\n", "\n", ""):
        text = render_call(family, {"s": value})
        assert accepts(compiler, constraint, text)
        assert equal_json(constraint.parse(text).calls[0].arguments, {"s": value})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arguments", [{"a": 5, "b": "5"}, {"a": "5", "b": 5}, {"a": "5", "b": "5", "c": "5"}])
def test_ambiguous_arguments_are_decided_together(compiler: Compiler, family: str, arguments: dict[str, Any]) -> None:
    """Each alternative of `anyOf` allows one reading of all arguments; the error of one argument cannot show which."""
    alternatives = [
        closed_object(a=INTEGER, b=STRING),
        closed_object(a=STRING, b=INTEGER),
        closed_object(a=STRING, b=STRING, c=STRING),
    ]
    constraint = tool_constraint(family, {"type": "object", "anyOf": alternatives})
    text = render_call(family, arguments)
    assert accepts(compiler, constraint, text)
    parsed = constraint.parse(text).calls[0].arguments
    jsonschema.validate(parsed, {"anyOf": alternatives})
    assert {name: str(value) for name, value in parsed.items()} == {
        name: str(value) for name, value in arguments.items()
    }


def test_ambiguous_items_in_elements_are_decided_together(compiler: Compiler) -> None:
    """Elements can be an array or an object, and each item can be a number or a string."""
    scope = "]<]minimax[>["
    value = "".join(f"{scope}<item>{item}{scope}</item>" for item in (1, 1))
    text = (
        f'{scope}<tool_call>\n{scope}<invoke name="f">{scope}<v>{value}{scope}</v>{scope}</invoke>\n{scope}</tool_call>'
    )
    for expected in ([1, "1"], ["1", 1], ["1", "1"], [1, 1]):
        constraint = tool_constraint("minimax_m3", closed_object(v={"enum": [expected, "1"]}))
        assert accepts(compiler, constraint, text)
        assert equal_json(constraint.parse(text).calls[0].arguments, {"v": expected})


def test_nested_elements_are_parsed_once() -> None:
    """Trying both an array and an object at every level would take exponential time for this depth."""
    scope, depth = "]<]minimax[>[", 60
    value = f"{scope}<item>" * depth + "x" + f"{scope}</item>" * depth
    text = (
        f'{scope}<tool_call>\n{scope}<invoke name="f">{scope}<v>{value}{scope}</v>{scope}</invoke>\n{scope}</tool_call>'
    )
    nested = {"$defs": {"v": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/v"}, STRING]}}}}
    constraint = tool_constraint("minimax_m3", {**closed_object(v={"$ref": "#/$defs/v"}), **nested})
    item = constraint.parse(text).calls[0].arguments["v"]
    for _ in range(depth):
        assert isinstance(item, list) and len(item) == 1
        item = item[0]
    assert item == "x"


def test_arguments_without_a_valid_reading_are_refused() -> None:
    many = closed_object(**{f"p{i}": {"type": ["string", "integer"]} for i in range(40)})
    constraint = tool_constraint("glm_4_7", {**many, "allOf": [{"not": {"required": ["p0"]}}]})
    with pytest.raises(ValueError, match="arguments are not valid at"):
        constraint.parse(render_call("glm_4_7", {f"p{i}": i for i in range(40)}))


JSON_INSIDE = [family for family, ends in ENDS.items() if ends and family not in ("cohere", "minimax_m3")]


@pytest.mark.parametrize("family", JSON_INSIDE)
def test_json_escapes_the_end_marker_of_the_argument(compiler: Compiler, family: str) -> None:
    """A parser that searches for the end marker first then finds the right one, and ``json`` reads the marker back."""
    marker = ENDS[family][-1]
    value = {"list": [marker, f"a{marker}"], "const": marker, f"k{marker}": 1}
    inner = {"list": {"type": "array", "items": STRING}, "const": {"const": marker}, f"k{marker}": INTEGER, "any": {}}
    constraint = tool_constraint(family, closed_object(v={"type": "object", "properties": inner}))
    raw = render_call(family, {"v": value})
    spelled = json.dumps(value, ensure_ascii=False)
    assert raw.count(spelled) == 1
    escaped = raw.replace(spelled, spelled.replace(marker, f"\\u{ord(marker[0]):04x}{marker[1:]}"))
    assert not accepts(compiler, constraint, raw) and accepts(compiler, constraint, escaped)
    assert equal_json(constraint.parse(escaped).calls[0].arguments, {"v": value})
    anything = raw.replace(spelled, json.dumps({"any": [{marker: marker}]}, ensure_ascii=False))
    assert not accepts(compiler, constraint, anything)


@pytest.mark.parametrize("family", ["glm_4_7", "qwen_3_coder", "kimi_k3"])
def test_argument_that_must_contain_the_end_marker_is_refused(compiler: Compiler, family: str) -> None:
    marker = ENDS[family][-1]
    for schema in ({"const": marker}, {"type": "string", "pattern": f"^.{marker.replace('|', '[|]')}$"}):
        with pytest.raises(hg.UnsupportedConstraint, match="which ends them"):
            compiler.compile(tool_constraint(family, closed_object(v=schema)), "native")
    either = tool_constraint(family, closed_object(v={"enum": [marker, "ok"]}))
    assert accepts(compiler, either, render_call(family, {"v": "ok"}))


def test_arguments_too_deep_to_read_are_a_mistake_of_the_text() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    constraint = hg.ToolCalls(tools, "llama", "required")
    text = '{"name": "f", "parameters": {"a": ' + "[" * 50_000 + "]" * 50_000 + "}}"
    with pytest.raises(ValueError, match="nested too deeply"):
        constraint.parse(text)
