"""``hg.describe`` says everything that the constraint requires, in fewer tokens than its JSON Schema."""

from __future__ import annotations

import datetime
import json
import os
import re
import uuid
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from tests import sketch_reader
from tests.tool_families import _NAME, FAMILIES
from tests.tools import now, weather

DATA = Path(os.environ.get("HF_GUIDED_DATA", Path(__file__).parents[3] / "shared" / "data")) / "jsonschemabench"
HEAD = "Answer only with JSON of this type:\n"


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(BaseModel):
    city: str = Field(description="where the person lives")
    zip: str = Field(pattern=r"^\d{5}$")


class Person(BaseModel):
    """Somebody."""

    name: str = Field(min_length=1, max_length=40, description="the full\n  name")
    age: int | None = Field(None, ge=0, lt=150)
    address: Address
    tags: list[Literal["a", "b"]] = []
    colour: Colour = Colour.RED


class Tree(BaseModel):
    value: float
    children: list[Tree] = []


@pytest.mark.parametrize(
    ("constraint", "says"),
    [
        (None, ""),
        (hg.JsonObject(), "Answer only with JSON: one object."),
        (re.compile("[a-z]+"), "Answer only with text that fully matches this regular expression:\n[a-z]+"),
        (["yes", 'say "no"'], 'Answer with exactly one of these, without the quotes: "yes", "say \\"no\\""'),
        ('start: "a" b\nb: "c"\n', None),
        (hg.Grammar('root ::= "a"\n'), 'Answer only with text of this GBNF grammar:\nroot ::= "a"'),
        (list[int], f"{HEAD}integer[]"),
        (datetime.date, f"{HEAD}string (date)"),
        (dict[str, uuid.UUID], f"{HEAD}{{[key]: string (uuid)}}"),
        (bool, f"{HEAD}boolean"),
        ({"type": "array", "uniqueItems": True, "maxItems": 3}, f"{HEAD}any[] (<= 3 items, without duplicates)"),
        (set[str], f"{HEAD}string[] (without duplicates)"),
        (
            {"type": "array", "contains": {"const": "x"}, "maxContains": 2, "items": {"type": "string"}},
            f'{HEAD}string[] (contains 1..2 of "x")',
        ),
        (Literal["a", "b"], f'{HEAD}"a" | "b"'),
        (dict[str, float], f"{HEAD}{{[key]: number}}"),
        (tuple[int, str], f"{HEAD}[integer, string] (2 items)"),
        ({"prefixItems": [{"type": "integer"}], "type": "array"}, f"{HEAD}[integer, ...any[]]"),
        (Tree, f"{HEAD}Tree\nTree = {{value: number, children?: Tree[]}}"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, f"{HEAD}integer (1..5)"),
        ({"minimum": 0, "exclusiveMaximum": 1, "multipleOf": 0.25}, f"{HEAD}number (>= 0, < 1, multiple of 0.25)"),
        (
            {"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 0, "exclusiveMinimum": True},
            f"{HEAD}number (> 0)",
        ),
        (
            {"type": "string", "format": "date", "title": "When", "default": "x", "examples": ["y"]},
            f"{HEAD}string (date)",
        ),
        ({"type": "object", "properties": {"a b": {}}, "required": ["a b", "c"]}, f'{HEAD}{{"a b": any, c: any}}'),
        ({"enum": [1, None, "x", [True], {"k": 0.5}]}, f'{HEAD}one of [1,null,"x",[true],{{"k": 0.5}}]'),
        ({"$ref": "https://example.com/x"}, f"{HEAD}any (defined at https://example.com/x)"),
        (hg.JsonSchema(True), f"{HEAD}any"),
        (
            Person,
            HEAD
            + """{
 name: string (1..40 chars), // the full name
 age?: integer (>= 0, < 150) | null,
 address: {
  city: string, // where the person lives
  zip: string (/^\\d{5}$/)
 },
 tags?: ("a" | "b")[],
 colour?: "red" | "blue"
} /* Somebody. */""",
        ),
    ],
    ids=str,
)
def test_describe_returns_the_expected_text(constraint: Any, says: str | None) -> None:
    if says is None:
        with pytest.raises(hg.InvalidConstraint, match="say what it is"):
            hg.describe(constraint)
    else:
        assert hg.describe(constraint) == says


def test_invalid_schema_is_refused() -> None:
    with pytest.raises(hg.InvalidConstraint, match="not a valid JSON Schema"):
        hg.describe({"type": "object", "properties": {"a": {"type": "objekt"}}})
    with pytest.raises(hg.InvalidConstraint, match="does not exist"):
        hg.describe({"$ref": "#/$defs/no"})


def test_definition_used_once_is_inlined() -> None:
    shared = {"type": "object", "properties": {"x": {"type": "number", "minimum": 0, "maximum": 1000}}}
    once = {"$defs": {"P": shared}, "type": "array", "items": {"$ref": "#/$defs/P"}}
    assert hg.describe(once) == f"{HEAD}{{x?: number (0..1000)}}[]"
    shared = {**shared, "properties": {**shared["properties"], "y": {"type": "string"}}, "required": ["y"]}
    twice = {"$defs": {"P": shared}, "type": "object", "properties": {k: {"$ref": "#/$defs/P"} for k in "ab"}}
    assert hg.describe(twice) == f"{HEAD}{{a?: P, b?: P}}\nP = {{x?: number (0..1000), y: string}}"
    short = {
        "$defs": {"P": {"type": "string"}},
        "type": "object",
        "properties": {k: {"$ref": "#/$defs/P"} for k in "ab"},
    }
    assert hg.describe(short) == f"{HEAD}{{a?: string, b?: string}}"


def test_long_chain_of_definitions_has_a_description() -> None:
    chain = {f"D{i}": {"type": "array", "items": {"$ref": f"#/$defs/D{i + 1}"}} for i in range(3000)}
    schema = {"$defs": {**chain, "D3000": {"const": "the end"}}, "$ref": "#/$defs/D0"}
    assert "the end" in hg.describe(schema)


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_calls_are_described_in_the_notation_of_the_family(name: str) -> None:
    family = FAMILIES[name]
    text = hg.describe(hg.ToolCalls([weather, now], name))
    assert "- weather: Tells the weather." in text and "- now: Tells the time." in text
    assert 'city: string, // The city.\n unit?: "c" | "f" // The unit.' in text
    # The text that the family's own template writes before and after the arguments of a call.
    number = r"\[text that matches /\[0-9\]\{1,3\}/\]"
    call_id = r"\[text that matches /\[a-zA-Z0-9\]\{9\}/\]"
    pattern = family.opens.replace("[0-9]+", number).replace("aB3456789", call_id)
    opens = re.compile(pattern.replace(_NAME, "(?P<name>weather|now)"))
    assert [match["name"] for match in opens.finditer(text)] == ["weather", "now"]
    assert text.count(family.begin.strip()) >= 2 and text.count(family.closes.strip()) >= 2


def test_first_sentence_follows_tool_choice() -> None:
    def first_line(choice: Any, **more: Any) -> str:
        return hg.describe(hg.ToolCalls([weather, now], "qwen_3", choice, **more)).partition("\n")[0]

    assert first_line("auto").startswith("You may call these tools,")
    assert first_line("auto", parallel=False).startswith("You may call one of these tools,")
    assert first_line("required").startswith("Call at least one tool,")
    assert first_line("required", parallel=False).startswith("Call one tool,")
    assert first_line("none") == "Answer without calling a tool."
    named = hg.describe(hg.ToolCalls([weather, now], "qwen_3", "now"))
    assert named.startswith("Call the tool now,") and "weather" not in named


def test_tools_without_a_call_format() -> None:
    text = hg.describe(hg.ToolCalls([weather]))
    assert text.startswith("You may call these tools:\n- weather: Tells the weather.\n  arguments: {\n city: string,")

    class Tokenizer:
        def get_chat_template(self, tools: Any) -> str:
            return "<tool_call>"

    assert hg.describe(hg.ToolCalls([weather]), Tokenizer()) == hg.describe(hg.ToolCalls([weather], "qwen_3"))


def test_structural_tag() -> None:
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "sequence",
            "elements": [
                {"type": "const_string", "value": "{A}"},
                {"type": "or", "elements": [{"type": "regex", "pattern": "x+"}, {"type": "any_text"}]},
                {
                    "type": "tag",
                    "begin": "<b>",
                    "content": {"type": "json_schema", "json_schema": {"type": "null"}},
                    "end": "</b>",
                },
            ],
        },
    }
    text = hg.describe(hg.StructuralTag(tag))
    assert text.partition("\n")[2] == "{A}[[text that matches /x+/] OR [text]]<b>[JSON: null]</b>"
    older = {"structures": [{"begin": "<a>", "schema": {"type": "integer"}, "end": "</a>"}], "triggers": ["<a>"]}
    assert "any number of these in it: <a>[JSON: integer]</a>" in hg.describe(hg.StructuralTag(older))


# -- nothing is lost: the description is parsed into a schema again, and jsonschema compares the two ------------------


def samples() -> list[dict[str, Any]]:
    file = DATA / "schemas.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _read_back(schema: Any) -> dict[str, Any]:
    return sketch_reader.read(hg.describe(hg.JsonSchema(schema)).removeprefix(HEAD))


def _facts(schema: Any, root: Any, seen: set[str]) -> Iterator[tuple[Any, ...]]:
    """Yield the keys (with whether they are required), values and bounds of all schemas that apply to an answer."""
    if not isinstance(schema, dict):
        return
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#") and ref not in seen:
        target = root
        for step in ref.split("/")[1:]:
            target = target[step.replace("~1", "/").replace("~0", "~")]
        yield from _facts(target, root, seen | {ref})
    if ref is not None and "2020" not in str(root.get("$schema", "2020")):
        return
    for key in schema.get("properties", {}):
        yield "key", key, key in schema.get("required", [])
    yield from (("key", key, True) for key in schema.get("required", []))
    if schema.get("type") == "null":
        yield "value", "null"
    for value in [*schema.get("enum", []), *([schema["const"]] if "const" in schema else [])]:
        yield "value", json.dumps(value, sort_keys=True)
    for bound in ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern", "multipleOf"):
        if bound in schema and not isinstance(schema.get(f"exclusive{bound.capitalize()}"), bool):
            yield bound, schema[bound]
    for keyword, value in schema.items():
        if keyword == "items" and "array" not in schema.get("type", "array"):
            continue  # the keyword has no effect there
        if keyword in ("properties", "patternProperties") and isinstance(value, dict):
            for inner in value.values():
                yield from _facts(inner, root, seen)
        elif keyword in ("items", "additionalProperties", "anyOf", "oneOf", "allOf", "prefixItems", "not"):
            for inner in value if isinstance(value, list) else [value]:
                yield from _facts(inner, root, seen)


def _check_sample(sample: dict[str, Any]) -> None:
    schema = sample["schema"]
    parsed = _read_back(schema)
    facts = set(_facts(parsed, parsed, set())) | {
        fact for name in parsed["$defs"].values() for fact in _facts(name, parsed, set())
    }
    assert set(_facts(schema, schema, set())) <= facts
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    opened = jsonschema.Draft202012Validator(parsed, format_checker=checker)
    closed = jsonschema.Draft202012Validator(sketch_reader.closed(parsed), format_checker=checker)
    for test in sample["tests"]:
        judge = opened if test["valid"] else closed
        assert judge.is_valid(test["data"]) is test["valid"], test


@pytest.mark.skipif(not DATA.exists(), reason="the data is not there; set HF_GUIDED_DATA")
def test_some_descriptions_say_what_their_schemas_say() -> None:
    for sample in samples()[::14]:
        _check_sample(sample)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.exists(), reason="the data is not there; set HF_GUIDED_DATA")
def test_all_descriptions_say_what_their_schemas_say() -> None:
    for sample in samples():
        _check_sample(sample)


@pytest.mark.skipif(not DATA.exists(), reason="the data is not there; set HF_GUIDED_DATA")
def test_description_takes_fewer_tokens_than_the_schema(tekken: PreTrainedTokenizerBase) -> None:
    description_tokens = schema_tokens = 0
    for sample in samples()[::14]:
        description_tokens += len(tekken.encode(hg.describe(hg.JsonSchema(sample["schema"]))))
        schema_tokens += len(tekken.encode(json.dumps(sample["schema"])))
    assert description_tokens < 0.75 * schema_tokens
