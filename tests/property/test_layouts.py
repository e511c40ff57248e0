"""White space between the tokens of JSON: the layouts of ``json.dumps``, and how far the flexible one may indent."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given, settings

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.budget_rtn import with_budget
from hf_guided.backends.compiler import Compiler
from hf_guided.backends.xgrammar import XGrammarBackend
from hf_guided.constraints.values import laid_out
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests.property.test_canonical_spelling import CASES, ENGINES, VOCABULARY, hot, takes

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


@given(one=CASES)
@settings(max_examples=40)
def test_each_layout_takes_what_json_dumps_writes_in_it(one: tuple[Any, Any]) -> None:
    schema, value = one
    for options, written in LAYOUTS:
        constraint = hg.JsonSchema(schema, **options)
        for engine in ENGINES.values():
            if not engine.losses(constraint):
                text = json.dumps(value, ensure_ascii=False, **written)
                assert takes(engine.compile(constraint), text), (options, text)


@pytest.mark.parametrize("engine", [*ENGINES, "xgrammar"])
@pytest.mark.parametrize(("options", "written"), LAYOUTS, ids=str)
def test_a_fixed_layout_takes_no_other(engine: str, options: Any, written: Any) -> None:
    backend = XGrammarBackend(VOCABULARY) if engine == "xgrammar" else ENGINES[engine]
    if engine == "xgrammar" and "indent" in options:
        assert [loss.keyword for loss in backend.losses(hg.JsonSchema(RECORD, **options))] == ["indent"]
        return
    compiled = backend.compile(hg.JsonSchema(RECORD, **options))
    for value in VALUES:
        expected = json.dumps(value, **written)
        assert takes(compiled, expected), expected
        for _, other in LAYOUTS:
            assert takes(compiled, json.dumps(value, **other)) == (json.dumps(value, **other) == expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_random_texts_have_the_layout(engine: str) -> None:
    for options, written in LAYOUTS:
        compiled = ENGINES[engine].compile(hg.JsonSchema(RECORD, **options))
        for seed in range(10):
            text = hot(compiled, seed, 3000)
            assert text == json.dumps(json.loads(text), **written)


def eager_to_indent(compiled: CompiledConstraint, seed: int) -> str:
    """A text of a writer that goes to the next line, and to the right, wherever it can; no longer than 3000 bytes."""
    choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
    bitmask = allocate_bitmask(1, 257)
    blank = choose.choice([b"\n ", b"\n\t"])
    while len(taken) < 3000:
        matcher.fill_next_token_bitmask(bitmask, 0)
        allowed = unpack(bitmask, 257)[0].nonzero().flatten().tolist()
        wanted = [byte for byte in allowed if byte in tuple(blank)] or allowed
        byte = choose.choice(wanted)
        if byte == 256:
            break
        assert matcher.accept_token(byte)
        taken.append(byte)
    return taken.decode()


def indentations(text: str) -> list[tuple[int, int]]:
    """Of each line break outside of strings: how many brackets are open, and how many columns follow it."""
    found, depth = [], 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"|[{\[]|[}\]]|\n[ \t]*', text):
        if token[0][0] == "\n":
            found.append((depth, sum(8 if blank == "\t" else 1 for blank in token[0][1:])))
        depth += (token[0] in "{[") - (token[0] in "}]")
    return found


@pytest.mark.parametrize("engine", ENGINES)
def test_a_line_break_is_indented_by_the_depth_of_its_place(engine: str) -> None:
    compiled = ENGINES[engine].compile(hg.JsonSchema(RECORD))
    seen: dict[int, int] = {}
    for seed in range(12):
        for depth, columns in indentations(eager_to_indent(compiled, seed)):
            assert columns <= 8 * depth
            seen[depth] = max(seen.get(depth, 0), columns)
    assert seen[1] == 8 and seen[2] == 16, "a bound that nothing comes near proves nothing"


def test_where_the_depth_is_not_known_forty_columns_are_the_most() -> None:
    for constraint in (hg.JsonSchema(TREE), hg.JsonObject()):
        compiled = ENGINES["llguidance"].compile(constraint)
        found = [one for seed in range(6) for one in indentations(eager_to_indent(compiled, seed))]
        assert max(columns for _, columns in found) in (40, 80)  # 40 blanks, or ten tabs
        text = re.sub(r"\t", "", eager_to_indent(compiled, 1))
        assert all(columns <= 40 for _, columns in indentations(text))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("indent", [1, 2, 8, "\t"])
def test_flexible_takes_the_indentations_in_use(engine: str, indent: Any) -> None:
    compiled = ENGINES[engine].compile(hg.JsonSchema(RECORD))
    for value in VALUES:
        assert takes(compiled, json.dumps(value, indent=indent))


@pytest.mark.parametrize("schema", [TREE, {}, {"type": "object"}, {"type": "array", "items": {}}])
def test_an_indentation_needs_a_bound_on_the_depth(schema: Any) -> None:
    compiler = Compiler(VOCABULARY)
    for backend in ("auto", "automaton", "llguidance", "xgrammar"):
        with pytest.raises(hg.UnsupportedConstraint, match=r"max_depth=\.\.\."):
            compiler.compile(hg.JsonSchema(schema, indent=2), backend)
    with pytest.raises(
        hg.UnsupportedConstraint, match=r"pass hg.JsonSchema\(..., max_depth=...\), or change"
    ) as caught:
        compiler.compile(hg.JsonSchema(schema, indent=2))
    assert "on_unsupported" not in str(caught.value)  # it would be refused again
    compiled = compiler.compile(hg.JsonSchema(schema, indent=2, max_depth=3))
    assert compiled.backend == "automaton"
    values = (
        [[[]], [[], [[]]]]
        if schema == TREE
        else [{"a": {"b": [1]}}]
        if schema != {"type": "array", "items": {}}
        else [[1, {}]]
    )
    for value in values:
        assert takes(compiled, json.dumps(value, indent=2))
        assert not takes(compiled, json.dumps(value, indent=3))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_budget_ends_an_indented_text(engine: str) -> None:
    compiled = with_budget(ENGINES[engine].compile(hg.JsonSchema(RECORD | {"required": ["item", "more"]}, indent=2)))
    shortest = json.dumps({"item": {}, "more": []}, indent=2)
    assert compiled.matcher().min_tokens_to_finish() == len(shortest) + 1
    bitmask = allocate_bitmask(1, 257)
    for seed in range(10):
        choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
        for left in range(len(shortest) + 1 + choose.randrange(200), 0, -1):
            matcher.fill_next_token_bitmask(bitmask, 0, tokens_left=left)
            byte = choose.choice(unpack(bitmask, 257)[0].nonzero().flatten().tolist())
            if byte == 256:
                break
            assert matcher.accept_token(byte)
            taken.append(byte)
        assert taken.decode() == json.dumps(json.loads(taken), indent=2)


def test_a_layout_for_constraints_that_others_wrote() -> None:
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


def test_a_server_lays_out_what_a_response_format_asks_for() -> None:
    from hf_guided.serve.guidance import Guidance
    from hf_guided.serve.metrics import Metrics
    from hf_guided.serve.options import ServeOptions

    def asked(body: dict[str, Any], **options: Any) -> Any:
        guidance = Guidance(ServeOptions("demo", **options), Metrics())
        return guidance._constraint(body, "response_format")

    body = {"response_format": FORMAT}
    assert asked(body) == hg.JsonSchema(RECORD)
    assert asked(body, indent=2) == hg.JsonSchema(RECORD, indent=2)
    assert asked(body, whitespace="minified") == hg.JsonSchema(RECORD, "minified")
    assert asked({"response_format": {"type": "json_object"}}, whitespace="compact") == hg.JsonObject("compact")
    assert asked(body, spelling="any") == hg.JsonSchema(RECORD, spelling="any")
    with pytest.raises(hg.InvalidConstraint, match="spelling"):
        Guidance(ServeOptions("demo", spelling="every"), Metrics())
    with pytest.raises(hg.InvalidConstraint, match="leave one out"):
        Guidance(ServeOptions("demo", whitespace="compact", indent=2), Metrics())


def test_the_batch_tool_lays_out_what_rows_ask_for_themselves(tmp_path: Any) -> None:
    from hf_guided.cli.batch.rows import Rows
    from hf_guided.cli.batch.tables import JsonLinesTable

    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "a", "schema": FORMAT}), encoding="utf-8")
    for layout, expected in (
        ((None, 2, None), {"indent": 2}),
        (("minified", None, None), {"whitespace": "minified"}),
        ((None, None, "any"), {"spelling": "any"}),
    ):
        rows = Rows(JsonLinesTable(file), "prompt", "schema", "documents", None, False, layout)
        assert rows.request(0).constraint == hg.JsonSchema(RECORD, **expected)
        rows.close()
