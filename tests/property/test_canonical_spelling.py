"""The canonical spelling in the engines: they accept the texts of ``json.dumps``, and write only such texts.

The oracle is `json`: a value is accepted as ``json.dumps(ensure_ascii=False)`` writes it, and a random text equals
``json.dumps(json.loads(text))``, except for the digits of floats, whose form is checked separately.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import hf_guided as hg
from hf_guided.backends import registry
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.compile import Compiler
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.tool_calls import ToolCalls
from hf_guided.constraints.values import Constraint
from tests.effort import repeats
from tests.property.strategies import allowed
from tests.property.test_canonical_numbers import assert_canonical
from tests.toy import all_bytes

VOCABULARY = all_bytes()
NATIVE = NetworkBackend(VOCABULARY)
CASES = st.deferred(lambda: _scalars | _arrays | _objects)


def accepts(compiled: CompiledConstraint, text: str) -> bool:
    matcher = compiled.matcher()
    return all(map(matcher.accept_token, text.encode())) and matcher.is_completed()


def case(schema: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return st.tuples(st.just(schema), values)


@st.composite
def _bounded(draw: st.DrawFn) -> tuple[Any, Any]:
    low, high = sorted(draw(st.tuples(*[st.integers(-(10**12), 10**12) | st.integers(-20, 20)] * 2)))
    if draw(st.booleans()):
        return {"type": "integer", "minimum": low, "maximum": high}, draw(st.integers(low, high))
    return {"type": "number", "minimum": low, "maximum": high}, draw(st.floats(low, high) | st.integers(low, high))


@st.composite
def _listed(draw: st.DrawFn) -> tuple[Any, Any]:
    floats = st.floats(allow_nan=False, allow_infinity=False)
    values = draw(st.lists(st.integers() | floats | _text | st.booleans() | st.none(), min_size=1, max_size=4))
    return {"enum": values}, draw(st.sampled_from(values))


# Lone surrogates have no UTF-8 encoding.
_text = st.text(st.characters(codec="utf-8"), max_size=6)
_times = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)).map(
    lambda moment: f"{moment.isoformat()}Z"
)
_floats = st.floats(allow_nan=False, allow_infinity=False)
_integers = st.integers(-(10**20) + 1, 10**20 - 1)
_any = st.recursive(
    st.none() | st.booleans() | _integers | _floats | _text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2),
    max_leaves=4,
)
_scalars = st.one_of(
    case({"type": "integer"}, _integers),
    case({"type": "number"}, _floats | _integers),
    case({"type": "number", "exclusiveMinimum": 0}, st.floats(min_value=5e-324, allow_infinity=False)),
    case({"type": "number", "multipleOf": 0.5}, st.integers(-100, 100).map(lambda count: count / 2)),
    case({"type": "string"}, _text),
    case({"type": "string", "maxLength": 4}, st.text(st.characters(codec="utf-8"), max_size=4)),
    case({"type": "string", "pattern": "^[^a]*$"}, _text.map(lambda text: text.replace("a", "/"))),
    case({"type": "string", "format": "date-time"}, _times),
    case({"type": "string", "format": "time"}, _times.map(lambda moment: moment.partition("T")[2])),
    case({"type": ["boolean", "null", "integer"]}, st.booleans() | st.none() | _integers),
    case(
        {"not": {"enum": ["a", 0.1, 5]}},
        _text.filter(lambda text: text != "a") | _floats.filter(lambda number: number not in (0.1, 5)),
    ),
    _bounded(),
    _listed(),
)
_arrays = st.lists(CASES, max_size=3).map(
    lambda cases: (
        {"type": "array", "prefixItems": [schema for schema, _ in cases], "items": False},
        [value for _, value in cases],
    )
)
_objects = st.lists(st.tuples(_text, CASES), max_size=3, unique_by=lambda pair: pair[0]).map(
    lambda members: (
        {"type": "object", "properties": {name: schema for name, (schema, _) in members}},
        {name: value for name, (_, value) in members},
    )
)


@given(case=CASES)
@settings(max_examples=repeats(26, 80))
def test_texts_of_json_dumps_are_accepted(case: tuple[Any, Any]) -> None:
    schema, value = case
    text = json.dumps(value, ensure_ascii=False)
    for constraint in (hg.JsonSchema(schema), hg.JsonSchema(schema, "compact")):
        assert accepts(NATIVE.compile(constraint), text), (schema, text)


@cache
def compiled_for_any() -> list[CompiledConstraint]:
    constraints: list[Constraint] = [hg.JsonSchema({"type": "object"}, extra="allow"), hg.JsonObject()]
    return [NATIVE.compile(constraint) for constraint in constraints]


@cache
def compiled_to_depth_two() -> CompiledConstraint:
    return NATIVE.compile(hg.JsonSchema({"properties": {"x": {}}}, max_depth=2))


@given(value=_any)
@settings(max_examples=repeats(25, 60))
def test_any_value_is_accepted_where_the_schema_is_empty(value: Any) -> None:
    text = json.dumps({"x": value}, ensure_ascii=False)
    for compiled in compiled_for_any():
        assert accepts(compiled, text), text
    if isinstance(value, (list, dict)):
        value = [item for item in value if not isinstance(item, (list, dict))]
    text = json.dumps({"x": value}, ensure_ascii=False)
    assert accepts(compiled_to_depth_two(), text), text


SCHEMAS: dict[str, Any] = {
    "integer": {"type": "integer"},
    "all of": {"allOf": [{"type": "integer"}, {"minimum": -5}]},
    "number": {"type": "number"},
    "bounds": {"type": "number", "exclusiveMinimum": 0.1, "maximum": 1e20},
    "small": {"type": "number", "minimum": -1e-5, "maximum": 1},
    "cents": {"type": "number", "multipleOf": 0.01},
    "thirds": {"type": "number", "multipleOf": 3},
    "excluded": {"type": "number", "not": {"enum": [0.1, 5, 0]}},
    "fraction": {"type": "number", "not": {"type": "integer"}, "minimum": 0, "maximum": 100},
    "listed": {"enum": [1, 2.5, 1e30, -7, "a/b", "\u2028", None]},
    "text": {"type": "string"},
    "time": {"type": "string", "format": "date-time"},
    "record": {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "é/\t": {"type": "array", "items": {"type": ["number", "string"]}}},
    },
    "names": {"type": "object", "additionalProperties": {"type": "integer"}, "propertyNames": {"maxLength": 3}},
    "anything": {},
}


def random_text(compiled: CompiledConstraint, seed: int, most: int = 400) -> str:
    """Draw a text from the allowed bytes, uniformly at first, and later with bytes that tend to end it."""
    choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
    patience = choose.choice([0, 5, 30, 80])
    while True:
        possible = allowed(matcher)
        assert possible, f"a dead end after {bytes(taken)!r}"
        if len(taken) >= patience:
            possible = [byte for byte in (256, *b'"]}') if byte in possible] or possible
        byte = choose.choice(possible)
        if byte == 256:
            return taken.decode()
        assert len(taken) < most, f"no end of {bytes(taken)!r}"
        assert matcher.accept_token(byte)
        taken.append(byte)


def respelled(text: str) -> str:
    """The text as json reads and writes it again. Floats keep their digits, and their form is checked here."""
    floats: list[str] = []

    def keep(number: str) -> int:
        assert_canonical(number)
        floats.append(number)
        return 10**60 + len(floats) - 1

    written = json.dumps(json.loads(text, parse_float=keep), ensure_ascii=False)
    return re.sub(rf"\b1{'0' * 30}\d{{30}}\b", lambda match: floats[int(match[0]) - 10**60], written)


def compiled_cases(whitespace: Any = "compact", **options: Any) -> Iterator[tuple[str, CompiledConstraint]]:
    for name, schema in SCHEMAS.items():
        for depth in (None, 2) if name == "anything" else (None,):
            constraint = hg.JsonSchema(schema, whitespace, extra="allow", max_depth=depth, **options)
            yield f"{name} {depth}", NATIVE.compile(constraint)


def test_random_texts_are_canonical() -> None:
    num_compared = 0
    for name, compiled in compiled_cases():
        for seed in range(repeats(9, 18)):
            text = random_text(compiled, seed)
            value = json.loads(text)
            if not isinstance(value, dict) or len(re.findall(r'"(?:[^"\\]|\\.)*": ', text)) == len(value):
                assert respelled(text) == text, (name, text)
                num_compared += 1
    assert num_compared > repeats(125, 250)


def test_random_times_have_the_canonical_spelling() -> None:
    shape = re.compile(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)"')
    compiled = NATIVE.compile(hg.JsonSchema(SCHEMAS["time"]))
    for seed in range(20):
        assert shape.fullmatch(random_text(compiled, seed))


def test_times_as_property_names_have_the_canonical_spelling() -> None:
    schema = {"type": "object", "propertyNames": {"format": "date-time"}, "additionalProperties": {"type": "null"}}
    compiled = NATIVE.compile(hg.JsonSchema(schema))
    assert accepts(compiled, '{"2020-01-01T00:00:00.5Z": null}')
    assert not accepts(compiled, '{"2020-01-01t00:00:00Z": null}')
    assert accepts(NATIVE.compile(hg.JsonSchema(schema, spelling="any")), '{"2020-01-01t00:00:00Z": null}')


def test_any_spelling_accepts_all_json_spellings() -> None:
    for schema, texts in (
        ({"type": "integer"}, ["50.0", "-0", "1" * 29]),
        ({"type": "number"}, ["1E5", "1.50", "-0.00", "0.1234567890123456789"]),
        ({"type": "string"}, [r'"\u0030\/\u00e9"']),
        ({"type": "string", "format": "date-time"}, ['"2020-01-01t00:00:00.1234567890123z"']),
        ({"const": 1}, ["1.0", "1"]),
    ):
        canonical, any_spelling = (
            NATIVE.compile(hg.JsonSchema(schema, spelling=spelling)) for spelling in ("canonical", "any")
        )
        for text in texts:
            assert accepts(any_spelling, text), text
            assert accepts(canonical, text) == (text == "1"), text


INTEGERS: list[Any] = [
    {"type": "integer"},
    {"type": ["integer", "null"]},
    {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer", "minimum": 3}}},
    {"enum": [50, 60]},
    {"const": 50},
    {"type": "integer", "enum": [50.0]},
    {"type": "integer", "multipleOf": 10},
    {"not": {"not": {"type": "integer"}}},
    {"type": "integer", "not": {"const": 7}},
]


@pytest.mark.parametrize("schema", INTEGERS, ids=str)
def test_integers_have_no_decimal_point(schema: Any) -> None:
    compiled = NATIVE.compile(hg.JsonSchema(schema))
    assert accepts(compiled, "50")
    assert not accepts(compiled, "50.0")
    inside = hg.JsonSchema(
        {"type": "object", "properties": {"a": {"type": "array", "items": schema}}}
        | ({"$defs": schema["$defs"]} if "$defs" in schema else {})
    )
    compiled = NATIVE.compile(inside)
    assert accepts(compiled, '{"a": [50, 50]}')
    assert not accepts(compiled, '{"a": [50, 50.0]}')


@pytest.mark.parametrize("engine", ["native", "llguidance", "xgrammar"])
def test_different_integers_have_no_decimal_point(engine: str) -> None:
    schema = {"type": "array", "items": {"enum": [50, 60, 0.5, "a"]}, "uniqueItems": True}
    compiled = registry.create(engine, VOCABULARY).compile(hg.JsonSchema(schema))
    for text in ("[60, 50]", '["a",0.5,60]', "[50,50]", "[5]"):
        assert accepts(compiled, text) == Draft202012Validator(schema).is_valid(json.loads(text)), text
    for text in ("[50.0]", "[60,50.0]"):
        assert not accepts(compiled, text), text


TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"n": {"type": "integer"}, "x": {"type": "number"}, "s": {"type": "string"}},
            "required": ["n", "x", "s"],
        },
    },
}


@pytest.mark.parametrize(
    ("style", "call"),
    [
        ("qwen_3", '<tool_call>\n{{"name": "f", "arguments": {{"n": {n}, "x": {x}, "s": "{s}"}}}}\n</tool_call>'),
        (
            "qwen_3_coder",
            "<tool_call>\n<function=f>\n<parameter=n>\n{n}\n</parameter>\n<parameter=x>\n{x}\n</parameter>\n"
            "<parameter=s>\n{s}\n</parameter>\n</function>\n</tool_call>",
        ),
    ],
)
def test_arguments_of_tools_have_the_canonical_spelling(style: Any, call: str) -> None:
    compiled = Compiler(VOCABULARY).compile(ToolCalls([TOOL], style, "required"))
    assert compiled.spelling == "canonical"
    usual = {"n": "50", "x": "2.5e-07", "s": "a/b"}
    assert accepts(compiled, call.format(**usual)), call.format(**usual)
    for other in ({"n": "50.0"}, {"x": "2.50"}, {"x": "1E5"}, {"n": "1" * 21}):
        assert not accepts(compiled, call.format(**usual | other)), other
    if style == "qwen_3":
        assert not accepts(compiled, call.format(**usual | {"s": r"\u0041"}))


def test_only_the_end_marker_is_escaped_in_strings() -> None:
    schema = {"type": "object", "properties": {"s": {"type": "string"}, "c": {"const": "</p>"}}}
    tag = {
        "type": "structural_tag",
        "format": {
            "type": "tag",
            "begin": "<p>",
            "end": "</p>",
            "content": {"type": "json_schema", "json_schema": schema, "excludes": ["</p>"]},
        },
    }
    compiled = NetworkBackend(VOCABULARY).compile(hg.StructuralTag(tag))
    for written, accepted in (
        ("a<b", True),
        (r"\u003c/p>", True),
        (r"</q>\u003c/p>\n", True),
        (r"\\u003c/q>", True),
        ("</p>", False),
        (r"a\u003cb", False),
        (r"\u0061", False),
        (r"\u003c\/p>", False),
    ):
        assert accepts(compiled, f'<p>{{"s": "{written}"}}</p>') == accepted, written
    assert accepts(compiled, r'<p>{"s": "", "c": "\u003c/p>"}</p>')


@pytest.mark.parametrize("name", ["number", "bounds", "time", "record", "cents", "anything", "thirds"])
def test_text_within_a_budget_is_canonical(name: str) -> None:
    compiled = NATIVE.compile(hg.JsonSchema(SCHEMAS[name]))
    needed = compiled.matcher().min_tokens_to_finish()
    assert needed is not None
    for seed in range(8):
        choose, matcher, taken = random.Random(seed), compiled.matcher(), bytearray()
        budget = needed + choose.randrange(25)
        for left in range(budget, 0, -1):
            possible = allowed(matcher, left)
            preferred = [byte for byte in possible if byte in tuple(b"0123456789.e-+")] or possible
            byte = choose.choice(preferred)
            if byte == 256:
                break
            assert matcher.accept_token(byte)
            taken.append(byte)
        else:
            raise AssertionError(f"not closed within {budget}: {bytes(taken)!r}")
        json.loads(taken)


def test_audit_names_the_spelling_and_its_exclusions() -> None:
    compiler = Compiler(VOCABULARY)
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "at": {"format": "date-time"}, "s": {"type": "string"}},
    }
    canonical, any_spelling, named = (
        compiler.audit(hg.JsonSchema(schema)),
        compiler.audit(hg.JsonSchema(schema, spelling="any")),
        compiler.audit(hg.JsonSchema({"type": "integer"}), "xgrammar"),
    )
    assert (canonical.spelling, any_spelling.spelling, named.spelling) == ("canonical", "any", "canonical")
    details = {row.pointer: row.detail for row in canonical.rows}
    assert "20 digits" in details["/properties/n/type"] and "1.0" in details["/properties/n/type"]
    assert "lower-case t and z" in details["/properties/at/format"]
    assert "leaves out" not in details["/properties/s/type"]
    assert not any("leaves out" in row.detail for row in any_spelling.rows)
    assert "spelling: canonical" in str(canonical)
    assert compiler.audit(hg.Choice(["a"])).spelling is None


def test_format_keeps_other_spellings_that_the_schema_requires() -> None:
    lower = {"type": "string", "format": "date-time"}
    for schema in (
        {**lower, "const": "2020-01-01t00:00:00z"},
        {**lower, "enum": ["2020-01-01t00:00:00z"]},
        {**lower, "pattern": "z$"},
    ):
        assert accepts(NATIVE.compile(hg.JsonSchema(schema)), '"2020-01-01t00:00:00z"'), schema


def test_styles_have_different_keys() -> None:
    constraints: list[Constraint] = [
        hg.JsonSchema({}),
        hg.JsonSchema({}, spelling="any"),
        hg.JsonSchema({}, "minified"),
        hg.JsonSchema({}, indent=2),
        hg.JsonSchema({}, indent=4),
        hg.JsonObject(),
        hg.JsonObject(spelling="any"),
        hg.JsonObject("minified"),
    ]
    assert len({constraint.key for constraint in constraints}) == len(constraints)


def test_invalid_style_is_an_error() -> None:
    for options in ({"spelling": "pretty"}, {"indent": -1}, {"indent": True}, {"indent": 2.0}, {"key_order": "sorted"}):
        with pytest.raises(hg.InvalidConstraint, match=next(iter(options))):
            hg.JsonSchema({}, **options)  # type: ignore[arg-type]
    with pytest.raises(hg.InvalidConstraint, match="leave one out"):
        hg.JsonSchema({}, "compact", indent=2)
    with pytest.raises(hg.InvalidConstraint, match="spelling"):
        hg.JsonObject(spelling="x")  # type: ignore[arg-type]


# There are real numbers between two neighbouring doubles, but no float equals one of them.
UNWRITTEN: list[Any] = [
    {"type": "number", "exclusiveMinimum": 1, "exclusiveMaximum": 1.0000000000000002},
    {"type": "number", "not": {"type": "integer"}, "minimum": 1e16},
    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 5e-324},
    {"type": "number", "exclusiveMinimum": 9007199254740992, "exclusiveMaximum": 9007199254740993},
    {
        "type": "number",
        "exclusiveMinimum": 1,
        "exclusiveMaximum": 1.0000000000000004,
        "not": {"const": 1.0000000000000002},
    },
    {"type": "number", "minimum": 3e-10, "maximum": 3e-10, "multipleOf": 3e-10, "not": {"const": 3e-10}},
    {
        "type": "number",
        "minimum": 1.0000000000000004,
        "exclusiveMaximum": 1.0000000000000007,
        "not": {"enum": [1.0000000000000004, 1.0000000000000002]},
    },
    {"type": "string", "format": "date-time", "maxLength": 5},
]


@pytest.mark.parametrize("schema", UNWRITTEN, ids=str)
def test_schemas_without_a_canonical_text_are_unsatisfiable(schema: Any) -> None:
    for alone in (
        schema,
        {"type": "array", "items": schema, "minItems": 1},
        {"type": "object", "properties": {"x": schema}, "required": ["x"]},
    ):
        with pytest.raises(hg.InvalidConstraint, match="contradicts itself"):
            NATIVE.compile(hg.JsonSchema(alone))
    member = {"type": "object", "properties": {"x": schema, "y": {"type": "integer"}}}
    for whole, inside, outside in (
        (member, ["{}", '{"y": 1}'], ["", '{"x": }', '{"x": , "y": 1}', '{"x": 1}']),
        ({"anyOf": [{"const": "a"}, schema]}, ['"a"'], ["", "1"]),
        ({"type": "array", "items": {"anyOf": [{"const": "a"}, schema]}}, ["[]", '["a"]'], ["[, ]", '["a", ]']),
        ({"type": "array", "items": schema}, ["[]"], ["[, ]", "[1]"]),
    ):
        compiled = NATIVE.compile(hg.JsonSchema(whole))
        assert all(accepts(compiled, text) for text in inside)
        assert not any(accepts(compiled, text) for text in outside)
        if compiled.keeps_budget:
            assert compiled.matcher().min_tokens_to_finish() == min(map(len, inside)) + 1


LAYOUTS: list[Any] = [*({"whitespace": one} for one in ("minified", "compact", "flexible")), {"indent": 2}]
MULTIPLES: list[Any] = [
    {"type": "integer", "multipleOf": 7},
    {"type": "number", "multipleOf": 7},
    {"type": "integer", "multipleOf": 7, "minimum": -70, "maximum": 700},
]


@pytest.mark.parametrize("schema", MULTIPLES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("spelling", ["canonical", "any"])
def test_multiples_allow_no_additional_whitespace(layout: Any, schema: Any, spelling: Any) -> None:
    """A value has none inside and around it."""
    separators = (",", ":") if layout.get("whitespace") == "minified" else None
    for inside, value in (
        (schema, 84),
        ({"type": "array", "items": schema, "minItems": 1}, [84, -7, 0]),
        ({"type": "object", "properties": {"x": schema}, "required": ["x"]}, {"x": 84}),
    ):
        compiled = NATIVE.compile(hg.JsonSchema(inside, **layout, spelling=spelling))
        written = json.dumps(value, indent=layout.get("indent"), separators=separators)
        assert accepts(compiled, written)
        for space in ("  ", " " * 3000, "\n", "\t "):
            assert not accepts(compiled, written.replace("84", f"{space}84") if space != "\n" else f"{space}{written}")
            assert not accepts(compiled, f"{written}{space}")
        if layout.get("whitespace") != "flexible":
            for seed in range(3 * (spelling == "canonical")):
                text = random_text(compiled, seed)
                assert json.dumps(json.loads(text), indent=layout.get("indent"), separators=separators) == text


def test_multiples_in_a_tool_call_allow_no_additional_whitespace() -> None:
    parameters = {"type": "object", "properties": {"n": MULTIPLES[0]}, "required": ["n"]}
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    compiled = Compiler(VOCABULARY).compile(ToolCalls([tool], "qwen_3", "required"))
    call = '<tool_call>\n{{"name": "f", "arguments": {{"n": {}}}}}\n</tool_call>'
    assert accepts(compiled, call.format("84"))
    assert not accepts(compiled, call.format("  84"))


@pytest.mark.parametrize(
    "bounds",
    [
        {"multipleOf": 10},
        {"multipleOf": 2},
        {"multipleOf": 10**23},
        {"minimum": 10**23},
        {"maximum": 10**23},
        {"not": {"const": int(1e23)}},
        {"not": {"const": 10**22}},
    ],
    ids=str,
)
def test_digits_of_a_large_float_satisfy_the_other_keywords(bounds: Any) -> None:
    """The digits of 1e23 are 99999999999999991611392. The oracle is jsonschema on the parsed value."""
    schema = {"enum": [{"type": "x"}, 1e23], "anyOf": [{"type": "object"}, {"type": "integer", **bounds}]}
    compiled = NATIVE.compile(hg.JsonSchema(schema))
    valid = Draft202012Validator(schema).is_valid
    for text in (str(int(1e23)), str(10**23), "1e+23"):
        assert not accepts(compiled, text) or valid(json.loads(text)), text
    assert accepts(compiled, str(int(1e23))) == valid(int(1e23))


def test_values_are_compared_as_parsed() -> None:
    compiled = NATIVE.compile(hg.JsonSchema({"type": "number", "not": {"enum": [9007199254740993]}}))
    assert accepts(compiled, "9007199254740992.0") and accepts(compiled, "9007199254740992")
    assert not accepts(compiled, "9007199254740993") and not accepts(compiled, "9007199254740993.0")
    compiled = NATIVE.compile(hg.JsonSchema({"type": "integer", "enum": [1e23]}))
    assert accepts(compiled, str(int(1e23))) and not accepts(compiled, str(10**23))
