"""What is shown of JSON that is being written: against `json` on the whole, and on every way it may go on."""

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
from hf_guided.generation.partial import PartialRow
from hf_guided.generation.partial_json import PartialJson, value_of
from hf_guided.session.result import RowReader
from tests.effort import repeats
from tests.toy import all_bytes

STOP = 256
VOCABULARY = all_bytes()


def pointer_to(path: tuple[str | int, ...]) -> str:
    return "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in path)


def parts(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every part of a value, and its JSON pointer; what is inside of a container in front of it."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from parts(inner, (*path, key))
    yield pointer_to(path), value


def is_within(part: Any, whole: Any) -> bool:
    """Whether nothing of a value has to be taken back for it to become another."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_within(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return isinstance(whole, list) and len(part) <= len(whole) and all(map(is_within, part, whole))
    return type(part) is type(whole) and part == whole


def has_come_to(part: Any, whole: Any) -> bool:
    """``is_within`` for values of Partials, which are None in front of the first that is shown."""
    return part is None or is_within(part, whole)


# -- any text, cut anywhere --------------------------------------------------------------------------------------------

_space = st.sampled_from(["", "", "", " ", "\n  ", "\t", "\r\n"])
_characters = st.one_of(
    st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"\\').map(str),
    st.sampled_from(
        [r"\"", r"\\", r"\/", r"\n", r"\u00e9", r"\ud83d\ude00", r"\ud800", "]", "}", ",", ":", "{", "é", "😀"]
    ),
)
_strings = st.lists(_characters, max_size=5).map(lambda some: f'"{"".join(some)}"')
_numbers = st.sampled_from(["0", "-0", "-12", "123", "1.50", "0.1", "1e5", "-2E-3", "12345678901234567890", "1e999"])
_scalars = st.one_of(_strings, _numbers, st.sampled_from(["true", "false", "null"]))


def _containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    item = st.tuples(_space, inner, _space).map("".join)
    member = st.tuples(_space, _strings, _space, st.just(":"), item).map(
        lambda some: (json.loads(some[1]), "".join(some))
    )
    return st.one_of(
        st.lists(item, max_size=4).map(lambda items: f"[{','.join(items)}]"),
        _space.map("[{}]".format),
        st.lists(member, max_size=4, unique_by=lambda one: one[0]).map(
            lambda members: "{" + ",".join(text for _, text in members) + "}"
        ),
        _space.map("{{{}}}".format),
    )


texts = st.tuples(_space, st.recursive(_scalars, _containers, max_leaves=8), _space).map("".join)


@settings(max_examples=repeats(166, 500))
@given(texts, st.data())
def test_nothing_that_was_shown_is_taken_back(text: str, data: st.DataObject) -> None:
    whole = json.loads(text)
    encoded = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(encoded)), max_size=12).map(sorted))
    begun = data.draw(st.integers(0, len(text)))
    prefix = text[:begun].encode()
    row = PartialRow(3, RowReader(VOCABULARY, constraint=hg.JsonSchema(True), prefix=prefix))
    places = sorted({len(prefix), len(encoded), *(cut for cut in cuts if cut > len(prefix))})
    shown = [row.add_tokens(list(encoded[a:b])) for a, b in zip(places, places[1:], strict=False)]
    shown.append(row.add_tokens([STOP]))
    told = [partial for partial in shown if partial is not None]
    assert shown[-1] is not None and shown[-1].result is not None
    assert [partial.result for partial in told[:-1]] == [None] * (len(told) - 1)
    assert shown[-1].text == shown[-1].result.text == text
    assert shown[-1].value == whole and shown[-1].result.value == whole
    for before, partial in zip([None, *told], told, strict=False):
        assert text.startswith(partial.text) and has_come_to(partial.value, whole)
        assert before is None or has_come_to(before.value, partial.value)
    all_parts = dict(parts(whole))
    closed = [(pointer, partial) for partial in told for pointer in partial.closed]
    assert sorted(pointer for pointer, _ in closed) == sorted(all_parts)  # each once
    for pointer, partial in closed:
        found = dict(parts(partial.value))[pointer]
        assert type(found) is type(all_parts[pointer]) and repr(found) == repr(all_parts[pointer])


# -- every way it may go on --------------------------------------------------------------------------------------------

LONGEST = 11
ROOM = 5  # characters more than the shortest way to go on: with less, all there are may agree for want of room


@cache
def values(length: int) -> frozenset[str]:
    """All JSON texts of just this length, of few letters, no name twice."""
    found = {"true"} if length == 4 else set()
    found |= {"1" * length, "-" + "1" * (length - 1)} - {"", "-"}
    if length > 2:
        found |= {f"{'1' * n}.{'1' * (length - n - 1)}" for n in range(1, length - 1)}
    if length >= 2:
        found |= {f'"{inside}"' for inside in strings(length - 2)}
        found |= {f"[{inside}]" for inside in lists(length - 2)}
        found |= {f"{{{inside}}}" for inside in members(length - 2)}
    return frozenset(found)


@cache
def strings(length: int) -> frozenset[str]:
    if length == 0:
        return frozenset({""})
    found = {letter + rest for letter in "a," for rest in strings(length - 1)}
    return frozenset(found | ({r"\"" + rest for rest in strings(length - 2)} if length > 1 else set()))


@cache
def lists(length: int) -> frozenset[str]:
    found = set(values(length)) if length else {""}
    for first in range(1, length - 1):
        found |= {f"{a},{b}" for a, b in product(values(first), lists(length - first - 1)) if b}
    return frozenset(found)


@cache
def members(length: int) -> frozenset[str]:
    found = set() if length else {""}
    for name in range(length):
        for value in range(1, length - name - 2):
            rest = length - name - value - 3
            found |= {f'"{a}":{b}' for a, b in product(strings(name), values(value))} if rest == 0 else set()
            if rest > 1:
                found |= {
                    f'"{a}":{b},{c}'
                    for a, b, c in product(strings(name), values(value), members(rest - 1))
                    if c and json.loads(f'"{a}"') not in json.loads(f"{{{c}}}")
                }
    return frozenset(found)


def test_what_is_shown_is_what_every_way_to_go_on_keeps() -> None:
    language = sorted(text for length in range(1, LONGEST + 1) for text in values(length))
    assert len(language) > 10_000
    read = {text: dict(parts(json.loads(text))) for text in language}
    ways: dict[str, list[str]] = {}
    for text in language:
        for end in range(1, len(text) + 1):
            ways.setdefault(text[:end], []).append(text)
    complete = 0
    for beginning, texts_behind in ways.items():
        json_so_far = PartialJson()
        closed = set(json_so_far.feed(beginning))
        shown = dict(parts(value_of(json_so_far.moves, len(json_so_far.moves)))) if json_so_far.moves else {}
        certain = {
            pointer: value
            for pointer, value in read[texts_behind[0]].items()
            if all(pointer in read[text] and same(read[text][pointer], value) for text in texts_behind)
        }
        assert closed <= certain.keys(), beginning
        assert all(same(shown[pointer], certain[pointer]) for pointer in closed), beginning
        scalars = {pointer for pointer, value in shown.items() if not isinstance(value, (list, dict))}
        assert scalars <= closed, beginning
        if min(map(len, texts_behind)) <= LONGEST - ROOM and not beginning.endswith(("t", "tr", "tru")):
            complete += len(certain)
            assert certain.keys() == closed, beginning
    assert complete > 150


def same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and one == other


# -- what is particular ------------------------------------------------------------------------------------------------


def test_a_name_that_comes_twice_counts_as_json_has_it() -> None:
    text = '{"a": [1, 2], "b": 0, "a": {"c": 3}, "a": 4}'
    found = PartialJson()
    assert found.feed(text) == ["/a/0", "/a/1", "/a", "/b", "/a/c", "/a", "/a", ""]
    assert value_of(found.moves, len(found.moves)) == json.loads(text)


def test_values_made_at_different_times_share_nothing() -> None:
    found = PartialJson()
    found.feed('{"a": [[1], 2')
    early = len(found.moves)
    found.feed(", 3]}")
    first = value_of(found.moves, early)
    first["a"][0].append("mine")
    assert value_of(found.moves, early) == {"a": [[1]]}
    assert value_of(found.moves, len(found.moves)) == {"a": [[1], 2, 3]}


@pytest.mark.parametrize(
    "text", ["[1, x, 2]", "[1 2]", "[1}", '{"a" 1}', "{1: 2}", "nul]", '["\n", 1]', f"[{'1' * 5000}, 2]", "]"]
)
def test_what_is_no_json_closes_nothing_more(text: str) -> None:
    with pytest.raises(ValueError):
        json.loads(text)
    found = PartialJson()
    assert {*found.feed(text), *found.end()} <= {"/0"}
    assert found.feed("3]") == []


def test_every_short_text_closes_where_json_ends() -> None:
    decoder = json.JSONDecoder()
    for text in map("".join, product('{}[]",:1 ', repeat=5)):
        found = PartialJson()
        closed = [pointer for character in text for pointer in found.feed(character)]
        try:
            value, end = decoder.raw_decode(text.lstrip())
        except ValueError:
            assert "" not in closed, text
            continue
        behind = text.lstrip()[end:]
        if isinstance(value, (dict, list, str)) or (behind and behind[0] in " ,]}"):
            assert closed[-1] == "", text
            assert value_of(found.moves, len(found.moves)) == value


def test_numbers_close_at_what_stands_behind_them() -> None:
    found = PartialJson()
    assert found.feed("[1") == [] and found.feed("2") == [] and found.feed(".") == [] and found.feed("5e1") == []
    assert found.feed(" ") == ["/0"]
    alone = PartialJson()
    assert alone.feed("-17") == [] and alone.end() == [""]
    assert value_of(alone.moves, 1) == -17
