"""Calls read back from their text: where nothing tells a string from a number, what the schema takes is right."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.compiler import Compiler
from tests import toy
from tests.tool_families import ENDS, FAMILIES, template
from tests.vocabularies import demo

STRING: dict[str, Any] = {"type": "string"}
INTEGER: dict[str, Any] = {"type": "integer"}


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(toy.all_bytes())


def asked(family: str, schema: dict[str, Any]) -> hg.ToolCalls:
    return hg.ToolCalls([{"type": "function", "function": {"name": "f", "parameters": schema}}], family, "required")


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def written(family: str, arguments: dict[str, Any]) -> str:
    """One call, by the family's chat template."""
    message = hg.ToolAnswer("", (hg.ToolCall("f", arguments),)).message
    return str(demo().apply_chat_template([message], chat_template=template(family), tokenize=False))


def takes(compiler: Compiler, constraint: hg.ToolCalls, text: str) -> bool:
    token_ids = [*text.encode(), 256]
    return compiler.compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)


def same(found: Any, expected: Any) -> bool:
    """Equal, and 1 is not true."""
    return json.dumps(found, sort_keys=True) == json.dumps(expected, sort_keys=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_string_keeps_its_quotes(compiler: Compiler, family: str) -> None:
    constraint = asked(family, closed(s=STRING))
    for value in ('"q"', '""', '"', '["a"]', "5", "null", " 5", "5\n", "\n", ""):
        text = written(family, {"s": value})
        assert takes(compiler, constraint, text)
        assert same(constraint.parse(text).calls[0].arguments, {"s": value})


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("arguments", [{"a": 5, "b": "5"}, {"a": "5", "b": 5}, {"a": "5", "b": "5", "c": "5"}])
def test_what_is_open_is_settled_together(compiler: Compiler, family: str, arguments: dict[str, Any]) -> None:
    """Each alternative allows one way to read all of the arguments, and no single error says which."""
    ways = [closed(a=INTEGER, b=STRING), closed(a=STRING, b=INTEGER), closed(a=STRING, b=STRING, c=STRING)]
    constraint = asked(family, {"type": "object", "anyOf": ways})
    text = written(family, arguments)
    assert takes(compiler, constraint, text)
    found = constraint.parse(text).calls[0].arguments
    jsonschema.validate(found, {"anyOf": ways})
    assert {name: str(value) for name, value in found.items()} == {
        name: str(value) for name, value in arguments.items()
    }


def test_items_that_are_elements_are_settled_together(compiler: Compiler) -> None:
    """An array of elements could also be an object, and each of its items a number or a string."""
    scope = "]<]minimax[>["
    value = "".join(f"{scope}<item>{one}{scope}</item>" for one in (1, 1))
    text = (
        f'{scope}<tool_call>\n{scope}<invoke name="f">{scope}<v>{value}{scope}</v>{scope}</invoke>\n{scope}</tool_call>'
    )
    for expected in ([1, "1"], ["1", 1], ["1", "1"], [1, 1]):
        constraint = asked("minimax_m3", closed(v={"enum": [expected, "1"]}))
        assert takes(compiler, constraint, text)
        assert same(constraint.parse(text).calls[0].arguments, {"v": expected})


def test_elements_in_elements_are_each_read_once() -> None:
    """Read as an array and as an object at every level, a text this deep would take ages."""
    scope, depth = "]<]minimax[>[", 60
    value = f"{scope}<item>" * depth + "x" + f"{scope}</item>" * depth
    text = (
        f'{scope}<tool_call>\n{scope}<invoke name="f">{scope}<v>{value}{scope}</v>{scope}</invoke>\n{scope}</tool_call>'
    )
    nested = {"$defs": {"v": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/v"}, STRING]}}}}
    found = asked("minimax_m3", {**closed(v={"$ref": "#/$defs/v"}), **nested}).parse(text).calls[0].arguments["v"]
    for _ in range(depth):
        assert isinstance(found, list) and len(found) == 1
        found = found[0]
    assert found == "x"


def test_arguments_that_no_reading_makes_valid_are_refused() -> None:
    many = closed(**{f"p{i}": {"type": ["string", "integer"]} for i in range(40)})
    constraint = asked("glm_4_7", {**many, "allOf": [{"not": {"required": ["p0"]}}]})
    with pytest.raises(ValueError, match="arguments are not valid at"):
        constraint.parse(written("glm_4_7", {f"p{i}": i for i in range(40)}))


JSON_INSIDE = [family for family, ends in ENDS.items() if ends and family not in ("cohere", "minimax_m3")]


@pytest.mark.parametrize("family", JSON_INSIDE)
def test_json_spells_the_mark_that_ends_it_with_an_escape(compiler: Compiler, family: str) -> None:
    """Whoever looks for the mark first then finds the right one, and ``json`` reads the mark back."""
    mark = ENDS[family][-1]
    value = {"list": [mark, f"a{mark}"], "const": mark, f"k{mark}": 1}
    inner = {"list": {"type": "array", "items": STRING}, "const": {"const": mark}, f"k{mark}": INTEGER, "any": {}}
    constraint = asked(family, closed(v={"type": "object", "properties": inner}))
    raw = written(family, {"v": value})
    spelled = json.dumps(value, ensure_ascii=False)
    assert raw.count(spelled) == 1
    escaped = raw.replace(spelled, spelled.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}"))
    assert not takes(compiler, constraint, raw) and takes(compiler, constraint, escaped)
    assert same(constraint.parse(escaped).calls[0].arguments, {"v": value})
    anything = raw.replace(spelled, json.dumps({"any": [{mark: mark}]}, ensure_ascii=False))
    assert not takes(compiler, constraint, anything)


@pytest.mark.parametrize("family", ["glm_4_7", "qwen_3_coder", "kimi_k3"])
def test_an_argument_that_could_never_end_is_refused(compiler: Compiler, family: str) -> None:
    mark = ENDS[family][-1]
    for schema in ({"const": mark}, {"type": "string", "pattern": f"^.{mark.replace('|', '[|]')}$"}):
        with pytest.raises(hg.UnsupportedConstraint, match="which ends them"):
            compiler.compile(asked(family, closed(v=schema)), "llguidance")
    either = asked(family, closed(v={"enum": [mark, "ok"]}))
    assert takes(compiler, either, written(family, {"v": "ok"}))
