"""``strict``: one rule for tools and formats of answers. The oracles are ``json`` and ``jsonschema``."""

from __future__ import annotations

import json
import random
import warnings
from typing import Any

import jsonschema
import pytest

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.coerce import coerce
from tests.effort import repeats
from tests.property.test_tool_calls import NESTED, STOP, compiler, target_texts, walk
from tests.tool_families import FAMILIES, template
from tests.toy import all_bytes
from tests.vocabularies import demo

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "in": {"type": "object", "properties": {"s": {"enum": ["a", "b"]}}, "required": ["s"]},
    },
    "required": ["n", "in"],
}
RIGHT: list[Any] = [{"n": 1, "in": {"s": "a"}}]
MORE: list[Any] = [{"n": 1, "in": {"s": "a"}, "x": 5}, {"n": 1, "in": {"s": "a", "y": "z"}}]
WRONG: list[Any] = [{}, {"n": 1}, {"n": "x", "in": {"s": "a"}}, {"n": 1, "in": {}}, {"n": 1, "in": {"s": "c"}, "x": 5}]
# No engine enforces this one.
UNSUPPORTED = {
    "type": "object",
    "properties": {"c": {"contains": {"const": 1}, "uniqueItems": True}},
    "required": ["c"],
}


def tool(name: str, schema: Any, strict: bool | None) -> dict[str, Any]:
    function = {"name": name, "parameters": schema, **({} if strict is None else {"strict": strict})}
    return {"type": "function", "function": function}


def response_format(schema: Any, strict: bool | None) -> Any:
    inner = {"name": "r", "schema": schema, **({} if strict is None else {"strict": strict})}
    return coerce({"type": "json_schema", "json_schema": inner})


def accepted(constraint: Any, text: str) -> bool:
    token_ids = [*text.encode(), STOP]
    return compiler().compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)


def call_text(family: str, arguments: Any) -> str:
    message = hg.ToolAnswer("", (hg.ToolCall("f", arguments),)).message
    return str(demo().apply_chat_template([message], chat_template=template(family), tokenize=False))


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in NESTED])
def test_arguments(family: str) -> None:
    for strict in (None, True, False):
        constraint = hg.ToolCalls([tool("f", SCHEMA, strict)], family, "required")
        for values, expected in ((RIGHT, True), (MORE, strict is False), (WRONG, False)):
            for value in values:
                assert jsonschema.Draft202012Validator(SCHEMA).is_valid(value) == (values is not WRONG)
                assert accepted(constraint, call_text(family, value)) == expected, (strict, value)
                if expected:
                    assert constraint.parse(call_text(family, value)).calls[0].arguments == value


def test_a_notation_that_writes_only_declared_names() -> None:
    """The closing marks of minimax_m3 repeat names; the schema of a lenient tool is enforced all the same."""
    flat = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    constraint = hg.ToolCalls([tool("f", flat, False)], "minimax_m3", "required")
    texts = [call_text("minimax_m3", value) for value in ({"n": 1}, {"n": 1, "x": 5}, {"n": "x"}, {})]
    assert [accepted(constraint, text) for text in texts] == [True, False, False, False]


def test_answers() -> None:
    for strict in (None, True, False):
        constraint = response_format(SCHEMA, strict)
        for values, expected in ((RIGHT, True), (MORE, strict is False), (WRONG, False)):
            for value in values:
                assert accepted(constraint, json.dumps(value)) == expected
                beside = hg.ToolCalls([tool("f", SCHEMA, None)], "qwen_3", answer=constraint)
                assert accepted(beside, json.dumps(value)) == expected


@pytest.mark.parametrize("family", ["llama", "qwen_3", "qwen_3_coder", "harmony"])
def test_random_arguments_of_a_lenient_tool_are_valid(family: str) -> None:
    constraint = hg.ToolCalls([tool("f", SCHEMA, False)], family, "f", parallel=False)
    matcher, rng = compiler().compile(constraint).matcher(), random.Random(family)
    number = extended = 0
    for _ in range(repeats(20, 60)):
        written = walk(matcher.fork(), target_texts(family, ["f"]), rng)
        if written is not None:
            [call] = constraint.parse(written.decode()).calls
            jsonschema.validate(call.arguments, SCHEMA)
            number, extended = number + 1, extended + bool(call.arguments.keys() - SCHEMA["properties"])
    assert number > 5 and extended


def test_only_a_lenient_schema_that_does_not_compile_becomes_any_object() -> None:
    tools = [tool("f", UNSUPPORTED, False), tool("g", SCHEMA, False), tool("h", SCHEMA, None)]
    constraint = hg.ToolCalls(tools, "qwen_3", "required")
    with pytest.warns(UserWarning, match='any object is allowed for f, which says "strict": false'):
        compiler().compile(constraint)

    def text(name: str, arguments: Any) -> str:
        return call_text("qwen_3", arguments).replace('"f"', f'"{name}"')

    anything = {"c": [2, 2], "d": None}
    assert accepted(constraint, text("f", anything))
    assert constraint.parse(text("f", anything)).calls[0].arguments == anything
    assert accepted(constraint, text("g", MORE[0])) and not accepted(constraint, text("g", WRONG[0]))
    assert accepted(constraint, text("h", RIGHT[0])) and not accepted(constraint, text("h", MORE[0]))
    audit = compiler().audit(constraint)
    assert [row.keyword for row in audit.lost] == ["strict"]
    for strict in (None, True):
        with pytest.raises(hg.UnsupportedConstraint, match="contains|uniqueItems"):
            compiler().compile(hg.ToolCalls([tool("f", UNSUPPORTED, strict), *tools[1:]], "qwen_3"))


@pytest.mark.parametrize(
    "schema",
    [
        UNSUPPORTED,
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"$ref": "https://nowhere.example/a"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}, "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "no such type"}}, "required": ["a"]},
    ],
    ids=range(5),
)
def test_every_reason_not_to_compile(schema: Any) -> None:
    for strict in (None, True):
        with pytest.raises(hg.errors.ConstraintError):
            compiler().compile(response_format(schema, strict))
        with pytest.raises(hg.errors.ConstraintError):
            compiler().compile(hg.ToolCalls([tool("f", schema, strict)], "llama"))
    answer, calls = response_format(schema, False), hg.ToolCalls([tool("f", schema, False)], "llama", "f")
    both = hg.ToolCalls([tool("f", schema, False)], "qwen_3", answer=answer)
    for constraint, text in (
        (answer, '{"b": [1]}'),
        (calls, call_text("llama", {"b": [1]})),
        (both, call_text("qwen_3", {"b": [1]})),
        (both, '{"b": [1]}'),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert accepted(constraint, text) and not accepted(constraint, text.replace('{"b": [1]}', "[1]"))
        value = constraint.parse(text)
        if isinstance(value, hg.ToolAnswer):
            value = value.calls[0].arguments if value.calls else value.value
        assert value == {"b": [1]}
    with pytest.warns(UserWarning, match="any object is allowed for the answer"):
        hg.Guide(len(demo()), demo()).compile(answer)


def test_a_schema_that_is_too_large() -> None:
    """The others are enforced all the same."""
    large = {
        "type": "object",
        "properties": {"a": {"pattern": "^(a|b)*a(a|b){40}$", "type": "string"}},
        "required": ["a"],
    }
    constraint = hg.ToolCalls([tool("f", large, False), tool("g", SCHEMA, False)], "llama", "required")
    with pytest.raises(hg.CompileLimitExceeded):
        compiler().compile(hg.ToolCalls([tool("f", large, None)], "llama"))
    with pytest.warns(UserWarning, match="any object is allowed for f, which"):
        compiler().compile(constraint)
    assert accepted(constraint, call_text("llama", {"a": 1}))
    for values, expected in ((RIGHT + MORE, True), (WRONG, False)):
        for value in values:
            assert accepted(constraint, call_text("llama", value).replace('"f"', '"g"')) == expected


def test_schemas_that_are_too_large_together() -> None:
    """None of them is, so none is enforced rather than another."""

    class TwoAreTooMany(NetworkBackend):
        def compile(self, constraint: hg.Constraint) -> CompiledConstraint:
            if isinstance(constraint, hg.StructuralTag) and json.dumps(constraint.tag).count('"enum"') > 1:
                raise hg.CompileLimitExceeded("two are too many")
            return super().compile(constraint)

    vocabulary = all_bytes()
    small = Compiler(vocabulary, backends={"native": TwoAreTooMany(vocabulary)})
    tools = [tool(name, SCHEMA, False) for name in "fg"]
    small.compile(hg.ToolCalls(tools[:1], "llama", "required"))
    with pytest.warns(UserWarning, match="any object is allowed for f, g, which"):
        compiled = small.compile(hg.ToolCalls(tools, "llama", "required"))
    token_ids = [*call_text("llama", WRONG[0]).encode(), STOP]
    assert compiled.matcher().validate_tokens(token_ids) == len(token_ids)


def test_tools_without_checks() -> None:
    constraint = hg.ToolCalls([tool("f", SCHEMA, False), tool("g", SCHEMA, None)], "llama", "required")
    unchecked = constraint.with_any_object(constraint.lenient)
    assert (constraint.lenient, unchecked.lenient, unchecked.key == constraint.key) == (("f",), (), False)
    text = call_text("llama", WRONG[0])
    assert accepted(unchecked, text) and not accepted(constraint, text)
    assert unchecked.parse(text).calls[0].arguments == WRONG[0]
    assert not accepted(unchecked, text.replace('"f"', '"g"'))
