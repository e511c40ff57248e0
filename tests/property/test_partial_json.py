"""Partial JSON: partial values agree with `json` on the whole text, and with all possible continuations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_guided as hg
from hf_guided.generation.partial_values import PartialJson
from tests.effort import repeats
from tests.sessions import partial_row
from tests.toy import all_bytes

STOP = 256
VOCABULARY = all_bytes()


def pointer_to(path: tuple[str | int, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def parts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield every part of a value with its JSON pointer; the parts of a container come before it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from parts(inner, (*path, key))
    yield pointer_to(path), value


def is_within(part: Any, whole: Any) -> bool:
    """Whether a value can become another by adding parts only."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_within(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(is_within, part, whole))
    return type(part) is type(whole) and part == whole


def has_come_to(part: Any, whole: Any) -> bool:
    """``is_within`` for values of Partials, which are None before the first value."""
    return part is None or is_within(part, whole)


# -- any text, split anywhere ------------------------------------------------------------------------------------------

_space = st.sampled_from(["", "", "", " ", "\n  ", "\t", "\r\n"])
_characters = st.one_of(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\').map(str),
    st.sampled_from(
        [r"\"", r"\\", r"\/", r"\n", r"\u00e9", r"\ud83d\ude00", r"\ud800", "]", "}", ",", ":", "{", "é", "😀"]
    ),
)
_strings = st.lists(_characters, max_size=5).map(lambda characters: f'"{"".join(characters)}"')
_numbers = st.sampled_from(["0", "-0", "-12", "123", "1.50", "0.1", "1e5", "-2E-3", "12345678901234567890", "1e999"])
_scalars = st.one_of(_strings, _numbers, st.sampled_from(["true", "false", "null"]))


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    item = st.tuples(_space, inner, _space).map("".join)
    member = st.tuples(_space, _strings, _space, st.just(":"), item).map(
        lambda pieces: (json.loads(pieces[1]), "".join(pieces))
    )
    return st.one_of(
        st.lists(item, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        _space.map("[{}]".format),
        st.lists(member, max_size=4, unique_by=lambda pair: pair[0]).map(
            lambda members: "{" + ",".join(text for _, text in members) + "}"
        ),
        _space.map("{{{}}}".format),
    )


texts = st.tuples(_space, st.recursive(_scalars, _containers, max_leaves=8), _space).map("".join)


@pytest.mark.parametrize("text", [r'"a\"b"', r'"\\"', r'["\u00e9", "\n"]', r'{"\"": "\\\""}'])
def test_escapes_may_be_cut_anywhere(text: str) -> None:
    data = text.encode()
    for cut in range(1, len(data)):
        row = partial_row(VOCABULARY, hg.JsonSchema(True))
        row.add_tokens(list(data[:cut]))
        whole = row.add_tokens(list(data[cut:]))
        assert whole is not None and whole.value == json.loads(text), cut


@settings(max_examples=repeats(166, 500))
@given(texts, st.data())
def test_partial_values_only_grow(text: str, data: st.DataObject) -> None:
    whole = json.loads(text)
    encoded = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=12).map(sorted))
    prefix_length = data.draw(st.integers(0, len(text)))
    prefix = text[:prefix_length].encode()
    row = partial_row(VOCABULARY, hg.JsonSchema(True), prefix)
    borders = sorted({len(prefix), len(encoded), *(cut for cut in cuts if cut > len(prefix))})
    outputs = [row.add_tokens(list(encoded[a:b])) for a, b in zip(borders, borders[1:], strict=False)]
    outputs.append(row.add_tokens([STOP]))
    partials = [partial for partial in outputs if partial is not None]
    assert outputs[-1] is not None and outputs[-1].result is not None
    assert [partial.result for partial in partials[:-1]] == [None] * (len(partials) - 1)
    assert outputs[-1].text == outputs[-1].result.text == text
    assert outputs[-1].value == whole and outputs[-1].result.value == whole
    for before, partial in zip([None, *partials], partials, strict=False):
        assert text.startswith(partial.text) and has_come_to(partial.value, whole)
        assert before is None or has_come_to(before.value, partial.value)
    all_parts = dict(parts(whole))
    closed = [(pointer, partial) for partial in partials for pointer in partial.closed]
    assert sorted(pointer for pointer, _ in closed) == sorted(all_parts)  # each part is closed once
    for pointer, partial in closed:
        closed_value = dict(parts(partial.value))[pointer]
        assert type(closed_value) is type(all_parts[pointer]) and repr(closed_value) == repr(all_parts[pointer])


# -- all continuations -------------------------------------------------------------------------------------------------

LONGEST = 11
ROOM = 5  # characters beyond the shortest continuation; with fewer, all listed continuations may agree by accident


@cache
def values(length: int) -> frozenset[str]:
    """All JSON texts of exactly this length with few different letters and no duplicate names."""
    texts_ = {"true"} if length == 4 else set()
    texts_ |= {"1" * length, "-" + "1" * (length - 1)} - {"", "-"}
    if length > 2:
        texts_ |= {f"{'1' * n}.{'1' * (length - n - 1)}" for n in range(1, length - 1)}
    if length >= 2:
        texts_ |= {f'"{inside}"' for inside in strings(length - 2)}
        texts_ |= {f"[{inside}]" for inside in lists(length - 2)}
        texts_ |= {f"{{{inside}}}" for inside in members(length - 2)}
    return frozenset(texts_)


@cache
def strings(length: int) -> frozenset[str]:
    if length == 0:
        return frozenset({""})
    texts_ = {letter + rest for letter in "a," for rest in strings(length - 1)}
    return frozenset(texts_ | ({r"\"" + rest for rest in strings(length - 2)} if length > 1 else set()))


@cache
def lists(length: int) -> frozenset[str]:
    texts_ = set(values(length)) if length else {""}
    for first in range(1, length - 1):
        texts_ |= {f"{a},{b}" for a, b in product(values(first), lists(length - first - 1)) if b}
    return frozenset(texts_)


@cache
def members(length: int) -> frozenset[str]:
    texts_ = set() if length else {""}
    for name in range(length):
        for value in range(1, length - name - 2):
            rest = length - name - value - 3
            texts_ |= {f'"{a}":{b}' for a, b in product(strings(name), values(value))} if rest == 0 else set()
            if rest > 1:
                texts_ |= {
                    f'"{a}":{b},{c}'
                    for a, b, c in product(strings(name), values(value), members(rest - 1))
                    if c and json.loads(f'"{a}"') not in json.loads(f"{{{c}}}")
                }
    return frozenset(texts_)


def test_closed_parts_are_those_common_to_all_continuations() -> None:
    language = sorted(text for length in range(1, LONGEST + 1) for text in values(length))
    assert len(language) > 10_000
    parts_of = {text: dict(parts(json.loads(text))) for text in language}
    continuations: dict[str, list[str]] = {}
    for text in language:
        for end in range(1, len(text) + 1):
            continuations.setdefault(text[:end], []).append(text)
    num_certain = 0
    for beginning, whole_texts in continuations.items():
        json_so_far = PartialJson()
        closed = set(json_so_far.feed(beginning))
        written = json_so_far.written(beginning)
        values_so_far = dict(parts(written.value())) if written.certain else {}
        certain = {
            pointer: value
            for pointer, value in parts_of[whole_texts[0]].items()
            if all(pointer in parts_of[text] and same_value(parts_of[text][pointer], value) for text in whole_texts)
        }
        assert closed <= certain.keys(), beginning
        assert all(same_value(values_so_far[pointer], certain[pointer]) for pointer in closed), beginning
        scalars = {pointer for pointer, value in values_so_far.items() if not isinstance(value, (list, dict))}
        assert scalars <= closed, beginning
        if min(map(len, whole_texts)) <= LONGEST - ROOM and not beginning.endswith(("t", "tr", "tru")):
            num_certain += len(certain)
            assert certain.keys() == closed, beginning
    assert num_certain > 150


def same_value(first: Any, second: Any) -> bool:
    return type(first) is type(second) and first == second


# -- special cases -----------------------------------------------------------------------------------------------------


def test_last_value_of_a_duplicate_name_counts() -> None:
    text = '{"a": [1, 2], "b": 0, "a": {"c": 3}, "a": 4}'
    partial = PartialJson()
    assert partial.feed(text) == ["/a/0", "/a/1", "/a", "/b", "/a/c", "/a", "/a", ""]
    assert partial.written(text).value() == json.loads(text)


def test_snapshots_share_no_objects() -> None:
    partial, text = PartialJson(), '{"a": [[1], 2'
    partial.feed(text)
    early = partial.written(text)
    partial.feed(whole := text + ", 3]}")
    first = early.value()
    first["a"][0].append("mine")
    assert early.value() == {"a": [[1]]}
    assert partial.written(whole).value() == {"a": [[1], 2, 3]}


def test_a_deep_text_closes_nothing_more() -> None:
    partial, text = PartialJson(), "[1, " * 100_000
    assert partial.feed(text)[-1] == "/1" * 499 + "/0"
    assert partial.written(text).value()[1][0] == 1 and partial.feed(text + "2]") == []


@pytest.mark.parametrize(
    "text", ["[1, x, 2]", "[1 2]", "[1}", '{"a" 1}', "{1: 2}", "nul]", '["\n", 1]', f"[{'1' * 5000}, 2]", "]"]
)
def test_invalid_json_closes_no_further_parts(text: str) -> None:
    with pytest.raises(ValueError):
        json.loads(text)
    partial = PartialJson()
    assert {*partial.feed(text), *partial.end(text)} <= {"/0"}
    assert partial.feed(f"{text}3]") == []


def test_short_texts_close_where_json_ends() -> None:
    decoder = json.JSONDecoder()
    for text in map("".join, product('{}[]",:1 ', repeat=5)):
        partial = PartialJson()
        closed = [pointer for end in range(1, 6) for pointer in partial.feed(text[:end])]
        try:
            value, end = decoder.raw_decode(text.lstrip())
        except ValueError:
            assert "" not in closed, text
            continue
        rest = text.lstrip()[end:]
        if isinstance(value, (dict, list, str)) or (rest and rest[0] in " ,]}"):
            assert closed[-1] == "", text
            assert partial.written(text).value() == value


def test_numbers_close_at_the_next_character_or_the_end() -> None:
    partial = PartialJson()
    assert [partial.feed(text) for text in ("[1", "[12", "[12.", "[12.5e1", "[12.5e1 ")] == [[], [], [], [], ["/0"]]
    only_number = PartialJson()
    assert only_number.feed("-17") == [] and only_number.end("-17") == [""]
    assert only_number.written("-17").value() == -17
