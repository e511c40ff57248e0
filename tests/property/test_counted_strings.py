"""Strings in tags whose characters are counted: the texts that `json` and `len` say, and masks of all that may come."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.automaton import component_walk, frame_machine
from hf_guided.backends.network import NetworkBackend
from hf_guided.schema import scalars
from hf_guided.vocabulary.tokens import Vocabulary
from tests import toy
from tests.effort import repeats
from tests.property.strategies import allowed
from tests.property.test_frame_machine import check_same, engines
from tests.property.test_network import check_masks
from tests.property.test_tag_network import pieces
from tests.toy import components_of

BYTES = NetworkBackend(toy.all_bytes())


@pytest.fixture(scope="module", autouse=True)
def all_bounds_are_counted() -> Iterator[None]:
    """By a register, however small they are; also in components that are built while a text is read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scalars, "_FEW_CHARACTERS", 0)
        yield


# Of one character, that ends in its own beginning, that begins with another one's beginning, of characters of two and
# three bytes.
MARKS = [["</p>"], ["<"], ["xy", "zw!"], ["</p>", "</q>"], ["<<a"], ["é!", "€|"], ["<\U0001f600"]]
PARTS = [
    "<", "</p>", "</q", "/p>", "a", "x", "y", "zw", "<<", "é", "!", "€", "\U0001f600", '"', "\\", "\n", "\x1f",
    "u003c",
]  # fmt: skip


def written(value: str, marks: list[str]) -> str:
    """As `json` writes a string, but for marks, which begin with an escape."""
    text = json.dumps(value, ensure_ascii=False)[1:-1]
    for mark in marks:
        text = text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")
    return text


def tagged(schema: dict[str, Any], marks: list[str]) -> hg.StructuralTag:
    content = {"type": "json_schema", "json_schema": schema, "excludes": marks}
    return hg.StructuralTag({"format": {"type": "tag", "begin": "~", "content": content, "end": "~"}})


def elements(schema: dict[str, Any]) -> hg.StructuralTag:
    """One argument, whose string is written as it is."""
    arguments = {"type": "object", "properties": {"v": schema}, "required": ["v"], "additionalProperties": False}
    return hg.StructuralTag({"format": {"type": "json_schema", "json_schema": arguments, "style": "qwen_xml"}})


def bounded(low: int, high: int | None) -> dict[str, Any]:
    return {"type": "string", "minLength": low} | ({} if high is None else {"maxLength": high})


BOUNDS = st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 6))).map(
    lambda pair: (pair[0], None if pair[1] is None else sum(pair))
)


@settings(max_examples=repeats(60, 3000))
@given(
    bounds=BOUNDS,
    marks=st.sampled_from(MARKS),
    parts=st.lists(st.sampled_from(PARTS), max_size=8),
    change=st.sampled_from([None, "\\u003c", "\\u", "\\n", "\\u0061", "\\u00e9", "\\u20ac", "\\ud83d\\ude00", '"']),
    at=st.floats(0, 1),
)
def test_strings_in_tags_are_those_of_json(
    bounds: tuple[int, int | None], marks: list[str], parts: list[str], change: str | None, at: float
) -> None:
    """Where characters are counted by a register, whatever the bounds are, and marks are kept out."""
    matcher = BYTES.compile(tagged(bounded(*bounds), marks)).matcher()
    text = written("".join(parts), marks)
    if change is not None:
        cut = int(at * len(text))
        text = text[:cut] + change + text[cut:]
    try:
        value = json.loads(f'"{text}"')
    except ValueError:
        is_text = False
    else:
        low, high = bounds
        is_text = written(value, marks) == text and low <= len(value) and (high is None or len(value) <= high)
    token_ids = [*f'~"{text}"~'.encode(), matcher.stop_token_ids[0]]
    assert (matcher.validate_tokens(token_ids) == len(token_ids)) == is_text


@settings(max_examples=repeats(40, 2000))
@given(bounds=BOUNDS, parts=st.lists(st.sampled_from(["</parameter", ">", *PARTS]), max_size=8))
def test_strings_in_elements_are_as_they_are(bounds: tuple[int, int | None], parts: list[str]) -> None:
    low, high = bounds
    matcher = BYTES.compile(elements(bounded(low, high))).matcher()
    text = "".join(parts)
    is_text = "</parameter>" not in text and low <= len(text) and (high is None or len(text) <= high)
    token_ids = [*f"<parameter=v>{text}</parameter>".encode(), matcher.stop_token_ids[0]]
    assert (matcher.validate_tokens(token_ids) == len(token_ids)) == is_text


@settings(max_examples=repeats(40, 2000))
@given(
    bounds=BOUNDS,
    items=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    marks=st.sampled_from([[], ["</p>"], ["<"]]),
    parts=st.lists(st.lists(st.sampled_from(["a", "b", "<", "</p>"]), max_size=6), max_size=4),
)
def test_different_strings_are_those_of_jsonschema(
    bounds: tuple[int, int | None], items: tuple[int, int], marks: list[str], parts: list[list[str]]
) -> None:
    """Also where a string has begun like one that is there already, and has just room to become another one."""
    low, more = items
    of_items = {"items": bounded(*bounds), "minItems": low, "maxItems": low + more, "uniqueItems": True}
    schema = {"type": "array", **of_items}
    values = ["".join(each) for each in parts]
    try:
        matcher = BYTES.compile(tagged(schema, marks)).matcher()
    except hg.InvalidConstraint:  # there are fewer different strings
        assert bounds[1] == 0 and low > 1
        return
    text = f"~[{', '.join(f'{chr(34)}{written(value, marks)}{chr(34)}' for value in values)}]~"
    token_ids = [*text.encode(), matcher.stop_token_ids[0]]
    is_text = jsonschema.Draft202012Validator(schema).is_valid(values)
    assert (matcher.validate_tokens(token_ids) == len(token_ids)) == is_text


def test_different_strings_of_many_characters_are_found_at_once() -> None:
    """Each way to another string is as long as the string has to be."""
    schema = {"type": "array", "items": bounded(1_500, 9_000), "uniqueItems": True, "minItems": 3}
    matcher = BYTES.compile(tagged(schema, ["</p>"])).matcher()
    items = ", ".join(f'"{letter * 1_500}"' for letter in "abc")
    text = [*f"~[{items}]~".encode()]
    assert matcher.validate_tokens(text) == len(text)


@pytest.mark.parametrize("length", [2, 17, 300])
@pytest.mark.parametrize("left", [1, 2, 3])
def test_an_escape_may_stand_anywhere_in_another_string(length: int, left: int) -> None:
    """Each digit of the string may become thousands of characters, and the string must end as a new one."""
    if left > length:
        return
    schema = {"type": "array", "items": bounded(length, length), "uniqueItems": True}
    matcher = BYTES.compile(hg.JsonSchema(schema, spelling="any")).matcher()
    before, after = "," * (length - left), "," * (left - 1)
    text = f'["{"," * length}","{before}\\u003c{after}"]'
    assert jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
    assert matcher.validate_tokens([*text.encode()]) == len(text)


def a_constraint(style: str, schema: dict[str, Any]) -> hg.StructuralTag | hg.JsonSchema:
    if style == "any spelling":
        return hg.JsonSchema(schema, spelling="any")
    return elements(schema) if style == "elements" else tagged(schema, ["</p>"] if style == "marks" else [])


@pytest.mark.parametrize("style", ["marks", "no marks", "elements", "any spelling"])
@settings(max_examples=repeats(4, 200))
@given(
    bounds=BOUNDS,
    random=st.randoms(use_true_random=False),
    few=st.sampled_from([0, 30, 2_000]),
    most_bytes=st.sampled_from([0, 30_000, 10 * 2**20]),
)
def test_masks_are_what_a_machine_reads_that_finds_none(
    style: str, bounds: tuple[int, int | None], random: Random, few: int, most_bytes: int
) -> None:
    backend = NetworkBackend(pieces())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(component_walk, "FEW", few)
        patch.setattr(frame_machine, "FEW", few)
        patch.setattr(frame_machine, "_BYTES", most_bytes)
        check_same(
            *engines(backend.compile(a_constraint(style, bounded(*bounds))), backend), backend.vocabulary, random
        )


ITEMS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "strings": lambda string: {"items": string},
    "first items": lambda string: {"prefixItems": [string, {"type": "boolean"}], "items": string},
    "closed objects": lambda string: {"items": {"properties": {"a": string}, "additionalProperties": False}},
    "open objects": lambda string: {"items": {"type": "object", "properties": {"a": string}}},
    "lists": lambda string: {"items": {"type": "array", "items": string, "maxItems": 2}},
}
OPTIONS: list[dict[str, Any]] = [{}, {"spelling": "any"}, {"key_order": "any"}, {"extra": "allow"}]


@pytest.mark.parametrize("items", ITEMS)
@settings(max_examples=repeats(8, 300))
@given(bounds=BOUNDS, low=st.integers(0, 3), options=st.sampled_from(OPTIONS), random=st.randoms(use_true_random=False))
def test_masks_of_different_items_equal_reading_every_token(
    items: str, bounds: tuple[int, int | None], low: int, options: dict[str, Any], random: Random
) -> None:
    schema = {"type": "array", "uniqueItems": True, "minItems": low} | ITEMS[items](bounded(*bounds))
    try:
        matcher = NetworkBackend(pieces()).compile(hg.JsonSchema(schema, **options)).matcher()
    except hg.InvalidConstraint:  # there are fewer different items
        assert bounds[1] == 0
        return
    check_masks(matcher, random, steps=25, vocabulary=pieces())
    assert allowed(matcher), "a dead end"


def test_many_characters_are_no_states() -> None:
    """With a state for each character and each part of a mark these would be hundreds of thousands."""
    vocabulary: Vocabulary = pieces()
    for constraint in (tagged(bounded(9, 9_000), ["</tool_call>"]), elements(bounded(9, 9_000))):
        compiled = NetworkBackend(vocabulary).compile(constraint)
        assert sum(component.dfa.states for component in components_of(compiled.new_engine())) < 200
        matcher = compiled.matcher()
        opening, closing = ('~"', '"~') if "tag" in constraint.tag_json else ("<parameter=v>", "</parameter>")
        text = [*f"{opening}{9_000 * 'a'}".encode()]
        assert matcher.validate_tokens(text) == len(text)
        assert matcher.validate_tokens([*text, ord("a")]) == len(text)
        assert matcher.validate_tokens([*text, *closing.encode()]) == len(text) + len(closing)
