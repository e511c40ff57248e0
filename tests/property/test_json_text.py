"""Strict JSON: the short way to a text finds out exactly what the long one does."""

from __future__ import annotations

import json
from collections import OrderedDict
from enum import IntEnum
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.constraints import json_text
from hf_guided.errors import InvalidConstraint


class Number(IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


KEYS = st.sampled_from(["a", "b", "é", "\ud800", Name("a"), 1, 1.0, True, None, (1,)])
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -1, 1.0, -0.0, 1e300, 10**30, float("nan"), float("inf"), "", "a", "{[", "\ud800", "😀"]
    + [Number.ONE, Name("n"), b"bytes", object(), {1}]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3).map(OrderedDict)
    ),
    max_leaves=8,
)


def outcome(value: Any) -> str:
    try:
        return json_text.dumps(value, "value")
    except InvalidConstraint as error:
        return f"refused: {error}"


@given(VALUES)
def test_the_short_way_finds_out_what_the_long_one_does(value: Any) -> None:
    with patch.object(json_text, "_text_of_plain", lambda value: None):
        expected = outcome(value)
    assert outcome(value) == expected


class Liar(list[Any]):
    """Equal to everything, or to nothing that can be said."""

    def __eq__(self, other: object) -> Any:
        if "raises" in self:
            raise RuntimeError("not comparable")
        return [True]

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize("inside", [1, {1: 2}, {True: 1}, "raises", "\ud800"])
def test_values_are_not_asked_whether_they_are_equal(inside: Any) -> None:
    for value in (Liar([inside]), {"a": Liar([inside])}):
        with patch.object(json_text, "_text_of_plain", lambda value: None):
            expected = outcome(value)
        assert outcome(value) == expected


@given(st.integers(0, 5), st.integers(250, 262), st.booleans())
def test_values_that_nest_deeply(beside: int, depth: int, in_lists: bool) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value] if in_lists else {"a": value}
    value = [value, *[[] for _ in range(beside)]]
    assert outcome(value).startswith("refused") == (depth + 1 > json_text.MAX_NESTING)


@given(VALUES)
def test_a_text_is_read_as_what_was_written(value: Any) -> None:
    text = outcome(value)
    if not text.startswith("refused"):
        assert json_text.dumps(json_text.read_only(text), "value") == text
        assert json_text.read_only(text) == json.loads(text)


@given(st.integers(json_text._SHORT - 40, json_text._SHORT + 40), VALUES)
def test_texts_about_as_long_as_those_that_are_short(length: int, value: Any) -> None:
    value = ["x" * length, value]
    with patch.object(json_text, "_text_of_plain", lambda value: None):
        expected = outcome(value)
    assert outcome(value) == expected
    if not expected.startswith("refused"):
        assert json_text.read_only(expected) == json.loads(expected)


def test_what_refers_to_itself_is_refused() -> None:
    loop: dict[str, Any] = {"a": []}
    loop["a"].append(loop)
    assert "refers to itself" in outcome(loop)
