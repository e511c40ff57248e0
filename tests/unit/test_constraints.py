"""The constraint classes: arguments, errors, keys, parsing, and the conversion of plain forms by coerce()."""

from __future__ import annotations

import copy
import dataclasses
import enum
import json
import pickle
import re
from typing import Annotated, Any, Literal, Optional, TypedDict

import pydantic
import pytest
import xgrammar

from hf_guided.constraints.coerce import coerce, coerce_batch
from hf_guided.constraints.tool_calls import ToolCalls
from hf_guided.constraints.values import Choice, Grammar, JsonObject, JsonSchema, Regex, StructuralTag, laid_out
from hf_guided.errors import InvalidConstraint


class Person(pydantic.BaseModel):
    name: str
    age: int


@dataclasses.dataclass
class Point:
    x: int
    y: list[str]


class Base(TypedDict):
    q: int


class Extended(Base, total=False):
    z: str
    w: list[Base]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class TextColour(str, enum.Enum):  # its str() is not its text
    RED = "red"
    BLUE = "blue"


def get_weather(city: str, days: int = 1) -> str:
    """Get the weather.

    Args:
        city: the city
        days: how many days
    """
    return f"{city} {days}"


TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


# --- JsonSchema


@pytest.mark.parametrize(
    ("python_type", "text", "value"),
    [
        (Person, '{"name": "Ada", "age": 36}', Person(name="Ada", age=36)),
        (Point, '{"x": 1, "y": ["a"]}', Point(1, ["a"])),
        (Extended, '{"q": 1, "w": [{"q": 2}]}', {"q": 1, "w": [{"q": 2}]}),
        (list[Extended], '[{"q": 1}]', [{"q": 1}]),
        (Extended | None, "null", None),
        (Optional[Base], '{"q": 3}', {"q": 3}),  # noqa: UP045 - typing's own union is a separate form
        (Colour, '"red"', Colour.RED),
        (list[int], "[1, 2]", [1, 2]),
        (Literal["a", 1], '"a"', "a"),
        (Annotated[int, pydantic.Field(gt=3)], "4", 4),
        (pydantic.TypeAdapter(list[Person]), '[{"name": "A", "age": 1}]', [Person(name="A", age=1)]),
        (int, "5", 5),
    ],
)
def test_python_types_become_schemas_and_parse_texts(python_type: Any, text: str, value: Any) -> None:
    constraint = JsonSchema(python_type)
    constraint.check()
    assert constraint.parse(text) == value
    assert type(constraint.parse(text)) is type(value)
    assert constraint == JsonSchema(python_type)
    assert hash(constraint) == hash(JsonSchema(python_type))
    assert coerce(python_type) == constraint


def test_typed_dict_keeps_its_required_keys() -> None:
    schema = JsonSchema(Extended).schema
    assert isinstance(schema, dict)
    assert schema["required"] == ["q"]
    assert list(schema["properties"]) == ["q", "z", "w"]


def test_parsing_an_invalid_text_raises_pydantics_error() -> None:
    with pytest.raises(pydantic.ValidationError):
        JsonSchema(Person).parse('{"name": "Ada"}')
    with pytest.raises(json.JSONDecodeError):
        JsonSchema({}).parse("{")


def test_mutation_after_construction_changes_nothing() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"type": "string"}}}
    constraint, key = JsonSchema(schema), JsonSchema(schema).key
    schema["properties"]["a"]["type"] = "integer"
    constraint.schema["properties"].clear()  # type: ignore[index]
    assert constraint.schema == {"properties": {"a": {"type": "string"}}}
    assert constraint.key == key
    tools = copy.deepcopy([TOOL])
    calls = ToolCalls(tools)
    tools[0]["function"]["name"] = "g"  # type: ignore[index]
    assert calls.tools[0]["function"]["name"] == "f"


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("no json", "not JSON"),
        ("[1]", "an object or a bool"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"minimum": 1e999}', "no exact JSON"),
        ({1: 2}, "not a string"),
        ({"properties": {True: {}}}, "/properties"),
        ({"const": float("inf")}, "no exact JSON"),
        ({"enum": {1, 2}}, "no exact JSON"),
        ({"const": "\ud800"}, "no exact JSON"),
        ("[" * 100_000, "nested deeper"),
        (5, "got 5"),
        (None, "got None"),
        (b"{}", "bytes"),
        (["a"], "list"),
        (Person(name="a", age=1), "pass the class Person"),
        (Point(1, []), "pass the class Point"),
        (get_weather, "hg.ToolCalls"),
        (range, "Pydantic"),
    ],
)
def test_invalid_schema_arguments_are_refused(schema: Any, says: str) -> None:
    with pytest.raises(InvalidConstraint, match=re.escape(says)):
        JsonSchema(schema)


def test_cyclic_schema_object_is_refused() -> None:
    schema: dict[str, Any] = {}
    schema["not"] = schema
    with pytest.raises(InvalidConstraint, match="refers to itself"):
        JsonSchema(schema)


@pytest.mark.parametrize(
    "options",
    [
        {"whitespace": "none"},
        {"extra": "ignore"},
        {"on_unsupported": "drop"},
        {"max_depth": 0},
        {"max_depth": True},
        {"registry": ["http://x"]},
        {"registry": {"http://x": 5}},
    ],
)
def test_error_for_an_invalid_option_names_it(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidConstraint, match=rf"{name}.*expected"):
        JsonSchema({}, **options)


def test_error_of_check_has_a_pointer() -> None:
    JsonSchema({"properties": {"a": {"type": "string"}}}).check()
    with pytest.raises(InvalidConstraint, match="/properties/a~1b/type"):
        JsonSchema({"properties": {"a/b": {"type": "strin"}}}).check()
    with pytest.raises(InvalidConstraint, match="at /"):
        JsonSchema({"required": "a"}).check()


def test_check_uses_the_draft_that_the_schema_names() -> None:
    tuple_items = {"items": [{"type": "integer"}]}
    JsonSchema({"$schema": "http://json-schema.org/draft-07/schema#", **tuple_items}).check()
    with pytest.raises(InvalidConstraint, match="/items"):
        JsonSchema({"$schema": "https://json-schema.org/draft/2020-12/schema", **tuple_items}).check()
    with pytest.raises(InvalidConstraint, match="/exclusiveMinimum"):
        JsonSchema({"$schema": "http://json-schema.org/draft-07/schema#", "exclusiveMinimum": True}).check()


@pytest.mark.parametrize("older", [{"items": [{"type": "integer"}]}, {"minimum": 3, "exclusiveMinimum": True}])
def test_schema_without_a_draft_may_use_older_syntax(older: dict[str, Any]) -> None:
    JsonSchema(older).check()
    with pytest.raises(InvalidConstraint, match="not a valid JSON Schema"):  # invalid in every draft
        JsonSchema({**older, "type": "strin"}).check()


def test_deep_schemas_never_overflow_the_stack() -> None:
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(200):
        schema = {"not": schema}
    constraint = JsonSchema(schema)
    assert len(constraint.key) == 64
    try:
        constraint.check()
    except InvalidConstraint as error:
        assert "nested" in str(error)
    for _ in range(100):
        schema = {"not": schema}
    with pytest.raises(InvalidConstraint, match="nested"):
        JsonSchema(schema)


# --- keys


def test_constraints_with_different_texts_have_different_keys() -> None:
    different = [
        JsonSchema({"const": 1}),
        JsonSchema({"const": 1.0}),
        JsonSchema({"const": True}),
        JsonSchema({"const": "1"}),
        JsonSchema({"const": {"a": 1, "b": 2}}),
        JsonSchema({"const": {"b": 2, "a": 1}}),
        JsonSchema(True),
        JsonSchema({}),
        JsonSchema({}, whitespace="compact"),
        JsonSchema({}, extra="allow"),
        JsonSchema({}, max_depth=1),
        JsonSchema({}, max_depth=2),
        JsonSchema({}, on_unsupported="warn"),
        JsonSchema({}, registry={"http://x": {}}),
        JsonSchema({}, registry={"http://x": True}),
        JsonSchema({"properties": {"description": {}}}),
        JsonSchema({"properties": {"title": {}}}),
        JsonSchema({"properties": {"a": {}, "b": {}}}),
        JsonSchema({"properties": {"b": {}, "a": {}}}),
        JsonSchema({"enum": [{"title": 1}]}),
        JsonSchema({"enum": [{}]}),
        JsonObject(),
        JsonObject("compact"),
        Regex("a"),
        Regex("(?i)a"),
        Choice(["a"]),
        Choice(["a", "b"]),
        Choice(["ab"]),
        Grammar("a", "lark"),
        Grammar("a", "gbnf"),
        StructuralTag({"format": {"type": "any_text"}}),
        ToolCalls([TOOL]),
        ToolCalls([TOOL], "llama"),
        ToolCalls([TOOL], choice="required"),
        ToolCalls([TOOL], parallel=False),
    ]
    assert len({constraint.key for constraint in different}) == len(different)
    assert len(set(different)) == len(different)


@pytest.mark.parametrize("ref", ["#/examples/0", "#/%65xamples/0"])
def test_annotation_that_is_a_reference_target_changes_the_key(ref: str) -> None:
    keys = {JsonSchema({"$ref": ref, "examples": [{"type": kind}]}).key for kind in ("string", "integer")}
    assert len(keys) == 2


@pytest.mark.parametrize(
    "constraint",
    [
        JsonSchema(Person),
        JsonSchema({"type": "object"}, registry={"http://x": {}}),
        JsonObject(),
        Regex("a"),
        Choice(["a"]),
        Grammar('start: "a"'),
        StructuralTag({"format": {"type": "any_text"}}),
        ToolCalls([TOOL]),
    ],
)
def test_constraints_survive_pickle_and_deepcopy(constraint: Any) -> None:
    constraint.key  # noqa: B018 - the cached key must not get in the way
    for twin in (pickle.loads(pickle.dumps(constraint)), copy.deepcopy(constraint)):
        assert twin == constraint
        assert hash(twin) == hash(constraint)
        assert twin.key == constraint.key
    with pytest.raises(dataclasses.FrozenInstanceError):
        constraint.kind = "other"


# --- Regex


def test_regex_flags_become_part_of_the_pattern() -> None:
    same = [Regex(re.compile("a.", re.I | re.S)), Regex("(?is)a."), Regex(re.compile("(?s)a.", re.I))]
    assert len(set(same)) == 1
    assert same[0].parse("A\n").group() == "A\n"
    with pytest.raises(ValueError, match="does not match"):
        same[0].parse("b\n")
    assert Regex("(?i:a)b").pattern == "(?i:a)b"
    assert Regex(re.compile(" a # a letter\n\\d", re.X | re.A)).parse("a7").group() == "a7"
    assert Regex(re.compile("a", re.X | re.A | re.I | re.S)) == Regex("(?saix)a")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        (b"a", "str pattern"),
        (re.compile(b"a"), "str pattern"),
        ("(", "does not compile"),
        (r"\p{L}", "does not compile"),
        ("(?m)^a", "MULTILINE"),
        (re.compile("^a", re.M | re.X), "MULTILINE"),
        ("\ud800", "surrogate"),
        (5, "int"),
    ],
)
def test_bad_regexes_are_refused(pattern: Any, says: str) -> None:
    with pytest.raises(InvalidConstraint, match=says):
        Regex(pattern)


# --- Choice, Grammar, StructuralTag


def test_choice_keeps_the_order_and_drops_duplicates() -> None:
    assert Choice(["b", "a", "b"]).options == ("b", "a")
    assert Choice(Colour).options == Choice(Literal["red", "blue"]).options == ("red", "blue")
    assert Choice(Colour).values == Choice([*Colour]).values == Choice(Literal[Colour.RED, Colour.BLUE]).values
    assert Choice(Colour).values == tuple(Colour) and Choice(["a"]).values == ("a",)
    assert Choice([*TextColour]).options == ("red", "blue") and Choice([*TextColour]).values == tuple(TextColour)
    assert Choice(["", "a"]).parse("") == ""
    with pytest.raises(ValueError, match="none of the options"):
        Choice(["a"]).parse("b")


@pytest.mark.parametrize("options", [[], (), [""], ["", ""], "ab", {"a"}, ["a", 1], [None], ["\ud800"], None])
def test_bad_choices_are_refused(options: Any) -> None:
    with pytest.raises(InvalidConstraint, match="Choice: expected"):
        Choice(options)


@pytest.mark.parametrize(
    ("text", "syntax"),
    [
        ('root ::= "a"', "gbnf"),
        ('# note: this\nroot ::= "x: y"\n  | item\nitem ::= [a-z]', "gbnf"),
        ('start: "a"', "lark"),
        ('%llguidance {}\n\nstart: "a ::= b"\n', "lark"),
        ("?start: item+\nitem.2: /a/\n", "lark"),
        ("start[capture]: TEXT\nTEXT: /a/", "lark"),
        ("!x: y\ny: z ::=", "lark"),
    ],
)
def test_grammar_syntax_is_detected(text: str, syntax: str) -> None:
    assert Grammar(text).syntax == syntax
    assert Grammar(text, "ebnf").syntax == "gbnf"


@pytest.mark.parametrize(("text", "syntax"), [("", None), ("hello", None), (5, None), ("a: b", "peg")])
def test_bad_grammars_are_refused(text: Any, syntax: Any) -> None:
    with pytest.raises(InvalidConstraint, match="expected"):
        Grammar(text, syntax)


def test_structural_tags_take_every_form_of_xgrammar() -> None:
    tag = {"type": "structural_tag", "format": {"type": "const_string", "value": "a"}}
    model = xgrammar.StructuralTag.model_validate(tag)
    assert StructuralTag(tag) == StructuralTag(json.dumps(tag))
    grammars = {str(xgrammar.Grammar.from_structural_tag(StructuralTag(form).tag)) for form in (tag, model)}
    assert grammars == {str(xgrammar.Grammar.from_structural_tag(model))}
    assert coerce(model) == StructuralTag(model)
    for bad in ({"type": "other", "format": {"type": "any_text"}}, {}, "[]", 5):
        with pytest.raises(InvalidConstraint, match="expected"):
            StructuralTag(bad)


# --- ToolCalls


@pytest.mark.parametrize("choice", ["auto", "required", "none", "get_weather"])
def test_tool_calls_become_a_structural_tag_that_xgrammar_reads(choice: str) -> None:
    tag = ToolCalls([get_weather], "qwen_3", choice).structural_tag()
    xgrammar.Grammar.from_structural_tag(tag.tag)
    assert ("get_weather" in tag.tag_json) == (choice != "none")


@pytest.mark.parametrize("strict", [{}, {"strict": None}, {"strict": True}, {"strict": False}])
def test_tool_calls_enforce_the_schema(strict: dict[str, Any]) -> None:
    function = {"name": "f", **strict, "parameters": {"type": "object", "properties": {"a": {"const": "xyz"}}}}
    assert "xyz" in ToolCalls([{"type": "function", "function": function}], "qwen_3").structural_tag().tag_json


def test_error_of_tool_calls_names_the_invalid_tool() -> None:
    named = {"type": "function", "function": {"name": "f"}}
    assert ToolCalls([TOOL], choice=named) == ToolCalls([TOOL], choice="f")
    for tools, choice, says in [
        ([{}], "auto", r"tools\[0\]"),
        ([TOOL, {"type": "function", "function": {}}], "auto", r"tools\[1\].function.name"),
        *(
            ([{"type": "function", "function": {"name": name}}], "auto", r"tools\[0\].function.name.*quotes")
            for name in ('a"b', "a\\b", "a\nb", "<a>")
        ),
        ([{"type": "function", "function": {"name": "f", "parameters": 5}}], "auto", "parameters"),
        ([TOOL, TOOL], "auto", "its own name"),
        ([TOOL], "g", "one of"),
        ([TOOL], {"type": "function"}, "choice"),
        ([], "required", "at least one"),
        ("f", "auto", "list of tools"),
        ([lambda x: x], "auto", r"tools\[0\]"),
    ]:
        with pytest.raises(InvalidConstraint, match=says):
            ToolCalls(tools, choice=choice)  # type: ignore[arg-type]
    with pytest.raises(InvalidConstraint, match="expected one of apertus, apriel, cohere, .*, got 'nope'"):
        ToolCalls([TOOL], format="nope").check()


# --- coerce


def test_coerce_distinguishes_schemas_and_response_formats() -> None:
    assert coerce({"type": "object"}) == JsonSchema({"type": "object"})
    assert coerce('{"type": "object"}') == JsonSchema({"type": "object"})
    assert coerce({"type": ["object", "null"]}) == JsonSchema({"type": ["object", "null"]})
    assert coerce({"type": "json_object"}) == coerce('{"type": "json_object"}') == JsonObject()
    assert coerce({}) == JsonSchema({})
    assert coerce({"description": "anything"}) == JsonSchema({"description": "anything"})
    assert coerce({"properties": {"json": {}, "regex": {}}}) == JsonSchema({"properties": {"json": {}, "regex": {}}})
    assert coerce({"type": "text"}) is None
    assert coerce(None) is None


def test_coerce_takes_keyword_forms() -> None:
    assert coerce({"json": Person}) == JsonSchema(Person)
    assert coerce({"json": "{}", "regex": None, "disable_fallback": False}) == JsonSchema({})
    assert coerce({"regex": "a"}) == coerce(re.compile("a")) == Regex("a")
    assert coerce({"choice": ["a"]}) == coerce(["a"]) == coerce(("a",)) == Choice(["a"])
    assert coerce({"grammar": 'start: "a"'}) == Grammar('start: "a"')
    assert coerce({"json_object": True}) == JsonObject()
    assert coerce({"structural_tag": {"format": {"type": "any_text"}}}) == StructuralTag(
        {"format": {"type": "any_text"}}
    )


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"json": {}, "regex": "a"}, "json and regex"),
        ({"regex": "a", "type": "json_object"}, "'json_object' and regex"),
        ({"regex": "a", "properties": {}}, "regex and properties"),
        ({"regex": "a", "whitespace_pattern": " "}, "whitespace_pattern"),
        ({"yaml": 1}, "unknown kind 'yaml'.*json, regex, choice"),
        ({"type": "foo"}, "response_format"),
        ({"regex": "("}, "does not compile"),
        ("yes|no", "hg.Regex"),
        ("true", "hg.JsonSchema"),
        ("{bad", "not JSON"),
        ([], "Choice"),
        ([None], "one row"),
        (5, "Pydantic model.*got 5 of type int"),
        pytest.param(10**5000, "got <int without a repr> of type int", id="long int"),
        (True, "Pydantic model"),
        ({"a", "b"}, "list of strings"),
        (Person(name="a", age=1), "pass the class"),
    ],
)
def test_error_of_coerce_gives_a_next_step(value: Any, says: str) -> None:
    with pytest.raises(InvalidConstraint, match=says):
        coerce(value)


def test_coerce_batch() -> None:
    assert coerce_batch(["a", "b"]) == Choice(["a", "b"])
    assert coerce_batch(Person) == JsonSchema(Person)
    assert coerce_batch(None) is None
    assert coerce_batch((None, ["a"], Person)) == [None, Choice(["a"]), JsonSchema(Person)]
    assert coerce_batch([None]) == [None]
    with pytest.raises(InvalidConstraint, match=r"'a' for prompt 1.*hg.Choice"):
        coerce_batch([None, "a"])
    with pytest.raises(InvalidConstraint, match="prompt 1: .*one row"):
        coerce_batch([None, [None]])
    with pytest.raises(InvalidConstraint, match="empty list"):
        coerce_batch([])


@pytest.mark.parametrize(("schema", "text"), [({"type": "integer"}, "19.0"), ({"multipleOf": 0.01}, "19.99")])
def test_validation_reads_numbers_exactly(schema: dict[str, Any], text: str) -> None:
    """19.0 is an integer, and 19.99 is a decimal, not its binary approximation."""
    assert JsonSchema(schema, on_unsupported="validate").parse(text) == float(text)


def test_error_for_an_indented_json_object_names_the_alternative() -> None:
    with pytest.raises(InvalidConstraint, match=r"indent=2, max_depth=\.\.\."):
        laid_out(JsonObject(), None, 2)
    assert laid_out(JsonSchema({"type": "object"}, max_depth=2), None, 2) == JsonSchema(
        {"type": "object"}, indent=2, max_depth=2
    )
