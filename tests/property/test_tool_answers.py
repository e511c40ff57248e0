"""Tool calls beside an answer in a format: random texts, texts of chat templates, and the parts that readers find.

The oracles are transformers' own parser of calls, ``json`` and ``jsonschema`` for answers and arguments.
"""

from __future__ import annotations

import json
import random
import re
from typing import Any

import jsonschema
import pydantic
import pytest

import hf_guided as hg
from hf_guided.constraints.tool_answers import Place, with_answer
from hf_guided.serve.answers.answer import Content
from hf_guided.serve.answers.parts import CallReader
from tests.effort import repeats
from tests.pairs import one_in
from tests.property.test_tool_calls import STOP, as_tools, compiler, markers_around, target_texts, walk
from tests.tool_families import FAMILIES, flat, parsed, template
from tests.vocabularies import demo

SCHEMAS: dict[str, Any] = {
    "look_up": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    "now": {"type": "object", "properties": {}},
}
TOOLS = as_tools(SCHEMAS)
ANSWER: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "sure": {"type": "boolean"}},
    "required": ["text", "sure"],
    "additionalProperties": False,
}
# The texts around an answer, as the families' chat templates write them.
AROUND = {
    "harmony": ("<|channel|>final<|message|>", "<|return|>"),
    "kimi_k3": ("", "<|close|>response<|sep|><|close|>message<|sep|>"),
    "command_r7b": ("<|START_RESPONSE|>", "<|END_RESPONSE|>"),
    "functionary_v3_2": ("all\n", ""),
}
# What a message of kimi_k3 begins with where it has calls and no text.
BEFORE_CALLS = {"kimi_k3": "<|close|>response<|sep|>"}
CALLS = (hg.ToolCall("look_up", {"q": 'ä "b"'}), hg.ToolCall("now", {}))


def written_calls(family: str, calls: tuple[hg.ToolCall, ...] = CALLS) -> str:
    """Calls as the family's chat template writes them."""
    message = hg.ToolAnswer("", calls).message
    return str(demo().apply_chat_template([message], chat_template=template(family), tokenize=False))


def written_answer(family: str, value: Any) -> str:
    before, after = AROUND.get(family, ("", ""))
    return before + json.dumps(value, ensure_ascii=False) + after


def accepted(constraint: hg.ToolCalls, text: str) -> bool:
    token_ids = [*text.encode(), STOP]
    return compiler().compile(constraint).matcher().validate_tokens(token_ids) == len(token_ids)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_or_calls_and_nothing_else(family: str) -> None:
    constraint = hg.ToolCalls(TOOLS, family, answer=ANSWER)
    value = {"text": "<tool_call>[TOOL_CALLS]\\n", "sure": True}
    calls, answer = written_calls(family), written_answer(family, value)
    one = written_calls(family, CALLS[:1])
    assert accepted(constraint, calls) and accepted(constraint, answer)
    assert constraint.parse(calls) == hg.ToolAnswer("", CALLS)
    assert constraint.parse(answer) == hg.ToolAnswer(json.dumps(value, ensure_ascii=False), (), value)
    wrong = (f"Well. {calls}", f"Well. {answer}", answer + calls, f"{calls} Well.", "Well.", "", calls + answer)
    assert not [text for text in wrong if accepted(constraint, text)]
    assert accepted(hg.ToolCalls(TOOLS, family, parallel=False, answer=ANSWER), one)
    assert not accepted(hg.ToolCalls(TOOLS, family, parallel=False, answer=ANSWER), calls)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_choice(family: str) -> None:
    one, answer = written_calls(family, CALLS[:1]), written_answer(family, {"text": "a", "sure": False})
    for choice, calls, answers in (
        ("auto", True, True),
        ("required", True, False),
        ("none", False, True),
        ("look_up", True, False),
        ("now", False, False),
    ):
        constraint = hg.ToolCalls(TOOLS, family, choice, answer=ANSWER)
        assert (accepted(constraint, one), accepted(constraint, answer)) == (calls, answers)
        if calls:
            assert constraint.parse(one).calls == CALLS[:1]
        if answers:
            assert constraint.parse(answer).value == {"text": "a", "sure": False}


@pytest.mark.parametrize(("family", "parallel"), [(family, bool(i % 2)) for i, family in enumerate(FAMILIES)])
def test_random_texts_are_valid_calls_or_valid_answers(family: str, parallel: bool) -> None:
    constraint = hg.ToolCalls(TOOLS, family, parallel=parallel, answer=ANSWER)
    matcher = compiler().compile(constraint).matcher()
    before, after = AROUND.get(family, ("", ""))
    targets = [
        *target_texts(family, [*SCHEMAS]),
        before.encode() or b"{",
        b'{"text": "',
        b'", "sure": ',
        after.encode() or b"}",
    ]
    rng, kinds = random.Random(family), {True: 0, False: 0}
    walks = repeats(20, 60)
    for number in range(walks + 4):
        row, first = matcher.fork(), b""
        if number < walks and number % 3 == 0:
            text = written_calls(family)
            first = text[: rng.randrange(len(text) // 3)].encode()
        elif number >= walks:  # an answer: in some families few walks come to its end otherwise
            first = f'{before}{{"text": "'.encode()
        assert all(map(row.accept_token, first))
        written = walk(row, targets, rng)
        if written is None:
            continue
        text = (first + written).decode()
        found = constraint.parse(text)
        kinds[bool(found.calls)] += 1
        if found.calls:
            assert found.text == "" and found.value is None and (parallel or len(found.calls) == 1)
            # The other parser searches for marks, also in strings.
            if not any(mark in str(call.arguments) for call in found.calls for mark in ("<|", *markers_around(family))):
                assert [(call.name, flat(call.arguments)) for call in found.calls] == parsed(family, text)
            for call in found.calls:
                jsonschema.validate(call.arguments, {**SCHEMAS[call.name], "additionalProperties": False})
        else:
            assert text.startswith(before)
            assert found.text in text and found.value == json.loads(found.text)
            jsonschema.validate(found.value, ANSWER)
    assert min(kinds.values()) > 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_text_that_arrives_in_pieces(family: str) -> None:
    """What the server's reader passes on is the same for all pieces, and never has to be taken back."""
    constraint = hg.ToolCalls(TOOLS, family, answer=ANSWER)
    value = {"text": "é<tool_call>", "sure": True}
    for text, calls in ((written_calls(family), CALLS), (written_answer(family, value), ())):
        for size in (1, 2, 3, 7, 1000):
            reader, content = CallReader(constraint), Content()
            data = text.encode()
            first = None  # how many bytes came before anything was passed on
            for start in range(0, len(data), size):
                content.add(reader.feed(data[start : start + size]))
                if first is None and (content.text or content.calls):
                    first = start
            content.add(reader.finish())
            assert [(call.name, json.loads(call.arguments)) for call in content.calls] == [
                (call.name, call.arguments) for call in calls
            ]
            assert content.text == ("" if calls else json.dumps(value, ensure_ascii=False))
            # A call comes with its arguments at the latest, and the text of an answer while it is written.
            soon = len(written_calls(family, calls[:1]).encode()) if calls else len(data) // 2
            assert first is not None and (size > 1 or first < soon), "nothing came before the end was near"


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=5)
    age: int = pydantic.Field(ge=0, le=9)


# A call of Llama has no mark of its own: an answer may be the same text.
LIKE_A_CALL: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "parameters": {"type": "object"}},
    "required": ["name", "parameters"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "called"),
    [({"q": "a"}, True), ({}, False), ({"q": 5}, False), ({"q": "a", "r": 1}, False)],
)
def test_a_text_that_is_both_is_a_call(arguments: dict[str, Any], called: bool) -> None:
    constraint = hg.ToolCalls(TOOLS, "llama", answer=LIKE_A_CALL)
    text = json.dumps({"name": "look_up", "parameters": arguments})
    assert accepted(constraint, text)
    found = constraint.parse(text)
    assert [call.arguments for call in found.calls] == ([arguments] if called else [])
    assert found.value == (None if called else json.loads(text))
    content = Content()
    reader = CallReader(constraint)
    for char in text:
        content.add(reader.feed(char.encode()))
    content.add(reader.finish())
    assert ([json.loads(call.arguments) for call in content.calls], content.text) == (
        ([arguments], "") if called else ([], text)
    )


ANYTHING = re.compile("(.|\n){0,100}")


@pytest.mark.parametrize("family", AROUND)
@pytest.mark.parametrize("choice", ["auto", "none"])
def test_no_beginning_of_an_answer_is_read_as_an_answer(family: str, choice: str) -> None:
    """Where texts around an answer say where it begins and ends; one without an end of its own may end anywhere."""
    constraint = hg.ToolCalls(TOOLS, family, choice, answer=ANYTHING)
    before, after = AROUND[family]
    text = f"{before}It is dry.{after}"
    assert (constraint.parse(text).text, constraint.parse(text).calls) == ("It is dry.", ())
    for size in range(len(text) if after else len(before)):
        with pytest.raises(ValueError, match="expected "):
            constraint.parse(text[:size])


class Z(pydantic.BaseModel):
    z: int


class Named(pydantic.BaseModel):
    name: str
    parameters: Z


def test_what_is_neither_a_call_nor_an_answer_says_why() -> None:
    constraint = hg.ToolCalls(TOOLS, "llama", answer=hg.JsonSchema(Named))
    with pytest.raises(ValueError, match=r"(?s)no answer in its format: .*parameters\.z.*; and no call: .*\$\.q"):
        constraint.parse('{"name": "look_up", "parameters": {"q": 5}}')
    with pytest.raises(ValueError, match="'q' is a required property"):
        hg.ToolCalls(TOOLS, "qwen_3", answer=ANSWER).parse(
            '<tool_call>\n{"name": "look_up", "arguments": {}}\n</tool_call>'
        )


@pytest.mark.parametrize(
    ("family", "answer", "text", "content", "arguments"),
    [
        ("llama", LIKE_A_CALL, '{"name": "look', '{"name": "look', []),
        ("llama", LIKE_A_CALL, '{"name": "look_up", "parameters": {"q', "", ['{"q']),
        ("llama", LIKE_A_CALL, '{"name": "other", "par', '{"name": "other", "par', []),
        ("qwen_3", ANSWER, "<tool_c", "", []),
        ("qwen_3", ANSWER, '{"text": "<tool_c', '{"text": "<tool_c', []),
        ("qwen_3", ANSWER, '<tool_call>\n{"name": "look_up", "arguments": {"q', "", ['{"q']),
        ("harmony", ANSWER, '<|channel|>final<|message|>{"te', '{"te', []),
        ("harmony", ANSWER, "<|channel|>fin", "", []),
        ("kimi_k3", ANSWER, '{"text": "a", "sure": true}<|close|>resp', '{"text": "a", "sure": true}', []),
        ("harmony", ANYTHING, "<|channel|>fin", "", []),
        ("harmony", ANYTHING, "<|channel|>commentary to=functions.look", "", []),
        ("harmony", ANYTHING, "<|channel|>final<|message|>It is", "It is", []),
        ("harmony", ANYTHING, "<|channel|>final<|message|>It is<|en", "It is", []),
        ("command_r7b", ANYTHING, "<|START_RESP", "", []),
        ("command_r7b", ANYTHING, "<|START_ACT", "", []),
        ("functionary_v3_2", ANYTHING, "al", "", []),
        ("functionary_v3_2", ANYTHING, "look_", "", []),
        ("functionary_v3_2", ANYTHING, "all\nIt is", "It is", []),
    ],
)
def test_a_text_that_is_cut(family: str, answer: Any, text: str, content: str, arguments: list[str]) -> None:
    reader, found = CallReader(hg.ToolCalls(TOOLS, family, answer=answer)), Content()
    for char in text:
        found.add(reader.feed(char.encode()))
    found.add(reader.finish())
    assert (found.text, [call.arguments for call in found.calls]) == (content, arguments)


@pytest.mark.parametrize(
    ("answer", "at_once"),
    [
        (ANSWER, True),
        (hg.JsonSchema(Person), True),
        ({"type": "object", "properties": {"name": {"type": "string"}}}, True),
        (hg.JsonSchema(ANSWER | {"additionalProperties": {"type": "object"}}), False),
        (hg.JsonSchema({"type": "object", "properties": {"name": {}}}, extra="allow"), False),
        ({"allOf": [{"type": "object", "properties": {"name": {}}}, {"properties": {"parameters": {}}}]}, False),
        (LIKE_A_CALL, False),
        (hg.JsonObject(), False),
        (True, False),
    ],
    ids=range(9),
)
def test_a_call_of_llama_arrives_in_pieces_where_no_answer_is_like_it(answer: Any, at_once: bool) -> None:
    answer = hg.JsonSchema(answer) if isinstance(answer, (dict, bool)) else answer
    constraint = hg.ToolCalls(TOOLS, "llama", answer=answer)
    start = '{"name": "look_up", "parameters": '
    reader, content = CallReader(constraint), Content()
    content.add(reader.feed(start.encode() + b'{"q'))
    assert [call.arguments for call in content.calls] == (['{"q'] if at_once else [])
    begins = compiler().compile(answer).matcher().validate_tokens(list(start.encode())) == len(start)
    assert not (begins and at_once)


@pytest.mark.parametrize(
    "format",
    [
        hg.ToolFormat("<c>", end="</c>", first="<calls>"),
        hg.ToolFormat("<c>", end="</c>", last="</calls>"),
        hg.ToolFormat("<c>", end="</c>", text="<t>{text}</t>"),
        hg.ToolFormat("<c>", end="</c>", first="<calls>", text="{text}<end>"),
        hg.ToolFormat(first="[", between=", ", last="]"),
    ],
    ids=range(5),
)
@pytest.mark.parametrize("answer", [None, ANSWER, {"type": "array"}], ids=["text", "object", "array"])
def test_earlier_calls_are_written_as_the_model_writes_calls(format: hg.ToolFormat, answer: Any) -> None:
    constraint = hg.ToolCalls(TOOLS, format, answer=answer)
    text = format.written([(call.name, json.dumps(call.arguments, ensure_ascii=False)) for call in CALLS])
    assert accepted(constraint, text)
    assert constraint.parse(text).calls == CALLS
    texts = {"array": ["[1]", "[ ]"], "object": ['{"text": "", "sure": true}']}
    for inside in [] if answer is None else texts[answer["type"]]:
        written = format.text.replace("{text}", inside)
        assert accepted(constraint, written)
        assert constraint.parse(written).value == json.loads(inside)
        reader, content = CallReader(constraint), Content()
        for char in written:
            content.add(reader.feed(char.encode()))
        content.add(reader.finish())
        assert (content.text, content.calls) == (inside, [])


@pytest.mark.parametrize(
    ("format", "at_once"),
    [("functionary_v3_2", True), (hg.ToolFormat("a", "{name}:", "{arguments}", text="all\n{text}"), False)],
    ids=["family", "alike"],
)
def test_the_header_of_an_answer_is_no_text(format: Any, at_once: bool) -> None:
    reader, content = CallReader(hg.ToolCalls(TOOLS, format, answer=re.compile("[a-c]+"))), Content()
    content.add(reader.feed(b"all\naa"))
    assert content.text == ("aa" if at_once else "")
    content.add(reader.feed(b"ba"))
    content.add(reader.finish())
    assert (content.text, content.calls, reader.num_before, reader.num_given) == ("aaba", [], 4, 8)


def test_a_tool_with_the_name_by_which_text_begins() -> None:
    with pytest.raises(hg.InvalidConstraint, match=r"a call of 'all' begins as text: 'all\\n'"):
        compiler().compile(hg.ToolCalls(as_tools({"all": None}), "functionary_v3_2"))


def test_the_audit_warns_of_texts_that_are_both() -> None:
    def outcomes(family: str, answer: Any) -> list[str]:
        audit = compiler().audit(hg.ToolCalls(TOOLS, family, answer=answer))
        assert audit.ok and repr(audit).splitlines()[0].startswith("Audit: ok")
        return [row.outcome for row in audit.rows]

    assert outcomes("llama", LIKE_A_CALL) == ["enforced", "ambiguous", "ambiguous"]
    assert outcomes("llama", ANSWER) == ["enforced"]
    assert outcomes("qwen_3", LIKE_A_CALL) == ["enforced"]
    assert outcomes("qwen_3", re.compile(r"(.|\n){0,100}")) == ["enforced", "ambiguous", "ambiguous"]


NESTED = {"type": "object", "properties": {"a": {"type": "array", "items": {}}}, "required": ["a"]}
KINDS: list[tuple[Any, list[str], list[str], Any]] = [
    (Person, ['{"name": "a", "age": 5}'], ['{"name": "a", "age": 10}'], Person(name="a", age=5)),
    (hg.JsonObject(), ['{"x": [1]}'], ["[1]"], {"x": [1]}),
    (hg.JsonObject("minified"), ['{"x":[1]}'], ['{"x": [1]}'], {"x": [1]}),
    (hg.JsonSchema(ANSWER, "minified"), ['{"text":"","sure":true}'], ['{"text": "", "sure": true}'], ...),
    (hg.JsonSchema(NESTED, extra="allow"), ['{"a": [], "b": 1}'], ['{"b": 1}'], ...),
    (hg.JsonSchema(NESTED, max_depth=2), ['{"a": [1]}'], ['{"a": [[]]}'], ...),
    (hg.JsonSchema(ANSWER, indent=2), ['{\n  "text": "",\n  "sure": true\n}'], ['{"text": "", "sure": true}'], ...),
    (hg.JsonSchema(ANSWER, key_order="any"), ['{"sure": true, "text": ""}'], ['{"sure": true, "sure": true}'], ...),
    (hg.JsonSchema({"type": "number", "minimum": 1}, spelling="any"), ["1.50"], ["0.5"], 1.5),
    (hg.JsonSchema({"type": "array", "uniqueItems": True}), ["[1, 2]"], ["[1, 1]"], [1, 2]),
    (hg.JsonSchema({"$ref": "http://x.example/a"}, registry={"http://x.example/a": {"const": 1}}), ["1"], ["2"], 1),
    (re.compile("[a-c]{2}"), ["ab"], ["abc"], ...),
    (["yes", "no"], ["yes", "no"], ["y", "yesno"], ...),
    (hg.Grammar('root ::= "(" root ")" | "x"'), ["((x))"], ["((x)"], "((x))"),
    (
        hg.StructuralTag({"format": {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}}),
        ["<a>b</a>"],
        ["<a>b"],
        "<a>b</a>",
    ),
]


@pytest.mark.parametrize("family", ["qwen_3", "llama", "harmony", "kimi_k3"])
@pytest.mark.parametrize(("answer", "right", "wrong", "value"), KINDS, ids=range(len(KINDS)))
def test_every_kind_of_answer_keeps_its_options(
    family: str, answer: Any, right: list[str], wrong: list[str], value: Any
) -> None:
    constraint = hg.ToolCalls(TOOLS, family, answer=answer)
    before, after = AROUND.get(family, ("", ""))
    for text in right:
        assert accepted(constraint, before + text + after)
        assert value is ... or constraint.parse(before + text + after).value == value
    assert not [text for text in wrong if accepted(constraint, before + text + after)]
    assert accepted(constraint, written_calls(family))


def test_answers_that_cannot_stand_beside_calls() -> None:
    with pytest.raises(hg.InvalidConstraint, match="got ToolCalls"):
        hg.ToolCalls(TOOLS, answer=hg.ToolCalls(TOOLS))
    lark = hg.ToolCalls(TOOLS, "qwen_3", answer=hg.Grammar('start: "a"'))
    with pytest.raises(hg.InvalidConstraint, match="a GBNF grammar whose first rule is root"):
        compiler().compile(lark)
    loose = hg.ToolCalls(TOOLS, "qwen_3", answer=hg.JsonSchema(Person, spelling="any"))
    with pytest.raises(hg.InvalidConstraint, match="leave spelling out"):
        compiler().compile(loose)
    with pytest.raises(hg.InvalidConstraint, match="got 5 of type int"):
        hg.ToolCalls(TOOLS, answer=5)


def test_the_place_of_an_answer() -> None:
    free = {"type": "any_text", "excludes": ["</a>"]}
    marked = {"type": "tag", "begin": "<a>", "content": free, "end": "</a>"}
    headed = {"type": "sequence", "elements": [{"type": "const_string", "value": "<a>"}, free]}
    constant = hg.Choice(["x"])
    assert with_answer(free, constant, "<h>")[1] == Place("<h>")
    assert with_answer(headed, constant, "")[1] == Place("<a>")
    assert with_answer(marked, constant, "")[1] == Place("<a>", ("</a>",))
    assert with_answer({"type": "or", "elements": [marked, headed]}, constant, "")[1] == Place("<a>", ("</a>",))
    assert Place("<a>", ("</a>", "</b>")).answer_in("<a>x</a></b>") == "x</a>"
    assert Place().answer_in("x") == "x"


@pytest.mark.parametrize("family", one_in(2, FAMILIES))
def test_a_budget_closes_calls_and_answers(family: str) -> None:
    """From every state of a random text, the shortest way out leads to a text that is read back."""
    constraint = hg.ToolCalls(TOOLS, family, answer=ANSWER)
    matcher, rng = compiler().compile(constraint).matcher(), random.Random(family)
    assert matcher.min_tokens_to_finish() is not None
    for _ in range(repeats(10, 40)):
        row, number = matcher.fork(), rng.randrange(30)
        text = (written_calls if rng.random() < 0.5 else lambda f: written_answer(f, {"text": "abc", "sure": True}))(
            family
        )
        token_ids = list(text.encode())[:number]
        assert row.validate_tokens(token_ids) == len(token_ids)
        assert all(map(row.accept_token, token_ids))
        least = row.min_tokens_to_finish()
        assert least is not None and least <= len(text.encode()) - len(token_ids) + 1
