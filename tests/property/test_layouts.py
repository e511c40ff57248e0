"""Whitespace between the tokens of JSON: the layouts of ``json.dumps``, and the bound on flexible indentation."""

from __future__ import annotations

import argparse
import json
import random
import re
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.xgrammar import XGrammarBackend
from hf_guided.constraints.values import laid_out
from tests.property.strategies import allowed
from tests.property.test_canonical_spelling import CASES, NATIVE, VOCABULARY, accepts, random_text

LAYOUTS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"whitespace": "compact"}, {}),
    ({"whitespace": "minified"}, {"separators": (",", ":")}),
    ({"indent": 2}, {"indent": 2}),
    ({"indent": 4}, {"indent": 4}),
    ({"indent": 0}, {"indent": 0}),
]
ITEM = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "boolean"}}},
}
# The same item at two depths.
RECORD = {
    "type": "object",
    "properties": {
        "item": {"$ref": "#/$defs/item"},
        "more": {"type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    },
    "$defs": {"item": ITEM},
}
VALUES: list[Any] = [
    {},
    {"item": {}},
    {"more": []},
    {"item": {"n": 1, "tags": []}, "more": [[], [{"n": 2, "tags": [True, False]}, {}]]},
]
TREE = {"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}}


@given(case=CASES)
@settings(max_examples=40)
def test_each_layout_accepts_the_texts_of_json_dumps(case: tuple[Any, Any]) -> None:
    schema, value = case
    for options, written in LAYOUTS:
        constraint = hg.JsonSchema(schema, **options)
        if not NATIVE.losses(constraint):
            text = json.dumps(value, ensure_ascii=False, **written)
            assert accepts(NATIVE.compile(constraint), text), (options, text)


@pytest.mark.parametrize("engine", ["native", "xgrammar"])
@pytest.mark.parametrize(("options", "written"), LAYOUTS, ids=str)
def test_fixed_layout_refuses_other_layouts(engine: str, options: Any, written: Any) -> None:
    backend = XGrammarBackend(VOCABULARY) if engine == "xgrammar" else NATIVE
    if engine == "xgrammar" and "indent" in options:
        with pytest.raises(hg.UnsupportedConstraint, match="native does"):
            backend.compile(hg.JsonSchema(RECORD, **options))
        return
    compiled = backend.compile(hg.JsonSchema(RECORD, **options))
    for value in VALUES:
        expected = json.dumps(value, **written)
        assert accepts(compiled, expected), expected
        for _, other in LAYOUTS:
            assert accepts(compiled, json.dumps(value, **other)) == (json.dumps(value, **other) == expected)


def test_random_texts_have_the_layout() -> None:
    for options, written in LAYOUTS:
        compiled = NATIVE.compile(hg.JsonSchema(RECORD, **options))
        for seed in range(10):
            text = random_text(compiled, seed, 3000)
            assert text == json.dumps(json.loads(text), **written)


def most_indented_text(compiled: CompiledConstraint, seed: int) -> str:
    """Write a text with as many line breaks and as much indentation as possible, of at most 3000 bytes."""
    choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
    blank = choose.choice([b"\n ", b"\n\t"])
    while len(taken) < 3000:
        possible = allowed(matcher)
        preferred = [byte for byte in possible if byte in tuple(blank)] or possible
        byte = choose.choice(preferred)
        if byte == 256:
            break
        assert matcher.accept_token(byte)
        taken.append(byte)
    return taken.decode()


def indentations(text: str) -> list[tuple[int, int]]:
    """For each line break outside of strings: the number of open brackets, and of columns after it."""
    columns_by_depth, depth = [], 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{\[]|[}\]]|\n[ \t]*', text):
        if token[0][0] == "\n":
            columns_by_depth.append((depth, sum(8 if blank == "\t" else 1 for blank in token[0][1:])))
        depth += (token[0] in "{[") - (token[0] in "}]")
    return columns_by_depth


def test_indentation_is_bounded_by_the_depth() -> None:
    compiled = NATIVE.compile(hg.JsonSchema(RECORD))
    widest: dict[int, int] = {}
    for seed in range(12):
        for depth, columns in indentations(most_indented_text(compiled, seed)):
            assert columns <= 8 * depth
            widest[depth] = max(widest.get(depth, 0), columns)
    assert widest[1] == 8 and widest[2] == 16, "the texts do not reach the bound"


def test_indentation_without_a_known_depth_has_at_most_forty_blanks() -> None:
    for constraint in (hg.JsonSchema(TREE), hg.JsonObject()):
        compiled = NATIVE.compile(constraint)
        pairs = [pair for seed in range(40) for pair in indentations(most_indented_text(compiled, seed))]
        assert max(columns for _, columns in pairs) in (40, 80)  # 40 blanks, or ten tabs
        text = re.sub(r"\t", "", most_indented_text(compiled, 1))
        assert all(columns <= 40 for _, columns in indentations(text))


@pytest.mark.parametrize("indent", [1, 2, 8, "\t"])
def test_flexible_accepts_common_indentations(indent: Any) -> None:
    compiled = NATIVE.compile(hg.JsonSchema(RECORD))
    for value in VALUES:
        assert accepts(compiled, json.dumps(value, indent=indent))


@pytest.mark.parametrize("schema", [TREE, {}, {"type": "object"}, {"type": "array", "items": {}}])
def test_indent_needs_max_depth_for_unbounded_schemas(schema: Any) -> None:
    compiler = Compiler(VOCABULARY)
    for backend in ("auto", "native", "llguidance", "xgrammar"):
        with pytest.raises(hg.UnsupportedConstraint, match=r"max_depth=\.\.\."):
            compiler.compile(hg.JsonSchema(schema, indent=2), backend)
    with pytest.raises(
        hg.UnsupportedConstraint, match=r"pass hg.JsonSchema\(..., max_depth=...\), or change"
    ) as caught:
        compiler.compile(hg.JsonSchema(schema, indent=2))
    assert "on_unsupported" not in str(caught.value)  # with it, the schema would be refused again
    values = (
        [[[]], [[], [[]]]]
        if schema == TREE
        else [{"a": {"b": [1]}}]
        if schema != {"type": "array", "items": {}}
        else [[1, {}]]
    )
    compiled = compiler.compile(hg.JsonSchema(schema, indent=2, max_depth=3))
    for value in values:
        assert accepts(compiled, json.dumps(value, indent=2))
        assert not accepts(compiled, json.dumps(value, indent=3))


def test_alternatives_that_no_value_has_do_not_matter_for_the_indentation() -> None:
    schema = {"enum": [[2], [1, [3]]], "items": {"multipleOf": 2}}
    compiled = Compiler(VOCABULARY).compile(hg.JsonSchema(schema, indent=2))
    for value in ([2], [1, [3]]):
        expected = jsonschema.Draft202012Validator(schema).is_valid(value)
        assert accepts(compiled, json.dumps(value, indent=2)) == expected, value


def test_the_same_schema_is_indented_at_any_number_of_levels() -> None:
    matrix = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    schema: Any = {"type": "null"}
    for _ in range(12):
        schema = {"type": "object", "properties": {"m": {"$ref": "#/$defs/m"}, "next": schema}}
    compiled = Compiler(VOCABULARY).compile(hg.JsonSchema({"$defs": {"m": matrix}, **schema}, indent=2))
    value: Any = {"m": [[1]]}
    for _ in range(12):
        assert accepts(compiled, json.dumps(value, indent=2))
        value = {"next": value}


def test_text_within_a_budget_is_indented() -> None:
    compiled = NATIVE.compile(hg.JsonSchema(RECORD | {"required": ["item", "more"]}, indent=2))
    shortest = json.dumps({"item": {}, "more": []}, indent=2)
    assert compiled.matcher().min_tokens_to_finish() == len(shortest) + 1
    for seed in range(10):
        choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
        for left in range(len(shortest) + 1 + choose.randrange(200), 0, -1):
            byte = choose.choice(allowed(matcher, left))
            if byte == 256:
                break
            assert matcher.accept_token(byte)
            taken.append(byte)
        assert taken.decode() == json.dumps(json.loads(taken), indent=2)


def test_laid_out_changes_the_layout_of_a_constraint() -> None:
    schema = hg.JsonSchema(RECORD, "compact", max_depth=7, spelling="any")
    indented = laid_out(schema, None, 2)
    assert indented == hg.JsonSchema(RECORD, indent=2, max_depth=7, spelling="any")
    assert laid_out(schema, "minified", None) == hg.JsonSchema(RECORD, "minified", max_depth=7, spelling="any")
    assert laid_out(hg.JsonObject(), "minified", None) == hg.JsonObject("minified")
    assert laid_out(schema, None, None) is schema
    canonical = hg.JsonSchema(RECORD, indent=2, max_depth=7)
    assert laid_out(canonical, None, None, "any") == hg.JsonSchema(RECORD, indent=2, max_depth=7, spelling="any")
    assert laid_out(schema, None, 2, "canonical") == canonical
    assert laid_out(hg.JsonObject("compact"), None, None, "any") == hg.JsonObject("compact", spelling="any")
    assert laid_out(None, None, 2) is None
    regex = hg.Regex("a")
    assert laid_out(regex, "compact", None) is regex
    with pytest.raises(hg.InvalidConstraint, match="any depth|any JSON object"):
        laid_out(hg.JsonObject(), None, 2)
    with pytest.raises(hg.InvalidConstraint, match="indent"):
        laid_out(schema, None, -1)


FORMAT = {"type": "json_schema", "json_schema": {"name": "r", "schema": RECORD}}


def test_server_applies_its_layout_to_response_formats() -> None:
    from hf_guided.serve.bodies.chat import read_chat
    from hf_guided.serve.bodies.generation import Defaults
    from hf_guided.serve.guidance import Guidance
    from hf_guided.serve.metrics import Metrics
    from hf_guided.serve.options import ServeOptions

    def constraint_of(response_format: dict[str, Any], **options: Any) -> Any:
        defaults = Defaults(ServeOptions("demo", **options), 2048)
        body = {"messages": [{"role": "user", "content": "x"}], "response_format": response_format}
        return read_chat(body, defaults).constraint

    assert constraint_of(FORMAT) == hg.JsonSchema(RECORD)
    assert constraint_of(FORMAT, indent=2) == hg.JsonSchema(RECORD, indent=2)
    assert constraint_of(FORMAT, whitespace="minified") == hg.JsonSchema(RECORD, "minified")
    assert constraint_of({"type": "json_object"}, whitespace="compact") == hg.JsonObject("compact")
    assert constraint_of(FORMAT, spelling="any") == hg.JsonSchema(RECORD, spelling="any")
    model: Any = None  # the options are checked before the model is looked at
    with pytest.raises(hg.InvalidConstraint, match="spelling"):
        Guidance(model, ServeOptions("demo", spelling="every"), Metrics())  # type: ignore[arg-type]
    with pytest.raises(hg.InvalidConstraint, match="leave one out"):
        Guidance(model, ServeOptions("demo", whitespace="compact", indent=2), Metrics())


def test_batch_tool_applies_its_layout_to_constraints_of_rows() -> None:
    from hf_guided.cli.batch.arguments import add_arguments
    from hf_guided.cli.batch.run import request_of

    parser = argparse.ArgumentParser()
    add_arguments(parser)
    for option, value, expected in (
        ("indent", "2", 2),
        ("whitespace", "minified", "minified"),
        ("spelling", "any", "any"),
    ):
        arguments = parser.parse_args(
            ["--model", "demo", "--input", "a", "--output", "b", "--schema", "c", f"--{option}", value]
        )
        request = request_of({"prompt": "a", "response_format": FORMAT}, arguments, None)
        assert request.constraint == hg.JsonSchema(RECORD, **{option: expected})
