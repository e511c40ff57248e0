"""Examples of regular languages: what they decide, a search decides too, and brute force over short texts agrees."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.regex import (
    ALL,
    And,
    Emptiness,
    Node,
    alt,
    both,
    chars,
    complement,
    concat,
    empty,
    examples,
    is_plain,
    matches,
    parse_search,
    repeat,
    text,
    without_needless,
)

PATTERNS = [
    "^a$",
    "^ab$",
    "^[ab]$",
    "^a?b?$",
    "^(ab|ba|)$",
    "^a{2,3}$",
    "^(a|bb)+$",
    "^b*$",
    "^ab",
    "ab$",
    "a",
    "^[^a]b",
]
WORDS = ["", "a", "b", "ab", "ba", "aab", "abab", "c"]
TEXTS = ["".join(letters) for length in range(6) for letters in product("abc", repeat=length)]
_lengths = st.tuples(st.integers(0, 4), st.none() | st.integers(0, 4)).map(
    lambda pair: repeat(chars(ALL), pair[0], pair[1] if pair[1] is None else sum(pair))  # type: ignore[arg-type]
)
_words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(lambda words: alt(*map(text, words)))
_plain = st.recursive(
    st.sampled_from(PATTERNS).map(parse_search) | _words,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: alt(*parts)),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: concat(*parts)),
        st.tuples(inner, st.integers(0, 2), st.integers(0, 2) | st.none()).map(
            lambda repeated: repeat(repeated[0], repeated[1], None if repeated[2] is None else sum(repeated[1:]))
        ),
    ),
    max_leaves=4,
).filter(is_plain)
_parts = st.lists(_plain | _plain.map(complement) | _words.map(complement) | _lengths, min_size=2, max_size=5)


def _searched(language: Node) -> bool | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(empty, "by_examples", lambda parts, most: (None, 0))
        return Emptiness().verdict(language)


@given(_parts)
def test_verdict_equals_a_search(parts: list[Node]) -> None:
    language = both(*parts)
    verdict, searched = Emptiness().verdict(language), _searched(language)
    assert verdict == searched or searched is None
    if any(matches(language, short) for short in TEXTS):
        assert verdict is not True


@given(_parts)
def test_nothing_is_decided_without_work(parts: list[Node]) -> None:
    language = both(*parts)
    if isinstance(language, And):
        verdict, work = examples.verdict(language.parts, 0)
        assert verdict is not False
        assert work == 0


@given(_parts)
def test_language_without_needless_parts_is_the_same(parts: list[Node]) -> None:
    language = both(*parts)
    less = without_needless(language)
    for short in TEXTS:
        assert matches(less, short) == matches(language, short)


def test_names_and_patterns_with_other_first_characters_are_needless() -> None:
    pattern, other = parse_search("^title_[a-z]+$"), parse_search("^name_")
    names = alt(*map(text, ["title_page", "name", "note"]))
    kept = both(pattern, complement(text("title_page")))
    assert without_needless(both(pattern, complement(names), complement(other))) == kept


@given(_plain)
def test_few_are_all_strings(node: Node) -> None:
    strings = examples.few(node)
    if strings is not None:
        assert len(strings) == len({*strings}) <= examples.MAX_FEW
        assert all(matches(node, string) for string in strings)
        assert {short for short in TEXTS if matches(node, short)} <= {*strings}


@given(_plain, st.integers(0, examples.TURNS - 1))
def test_string_is_in_its_language(node: Node, turn: int) -> None:
    string = examples._string(node, turn)
    assert string is None or matches(node, string)


@given(_plain)
def test_all_strings_begin_with_the_heads(node: Node) -> None:
    heads = examples._heads(node)
    for short in TEXTS:
        if matches(node, short):
            assert len(short) >= len(heads)
            assert all(character in charset for character, charset in zip(short, heads, strict=False))


@given(_plain | _plain.map(complement) | _words.map(complement) | _words, st.sampled_from(TEXTS))
def test_words_are_looked_up_as_they_match(node: Node, short: str) -> None:
    assert examples._has(node, short) == matches(node, short)


@pytest.mark.parametrize(
    "patterns",
    [
        ("^name_[a-z]+$", "^title_", False),  # apart in their first characters
        ("ab1", "c[0-9]", True),  # only together, one after another
        ("^(en|nl)$", "^[a-z]{2}$", True),
        ("^(en|nl)$", "^[a-m]*$", False),
        ("^/[^\n]+/$", "^([a-z/]|\\\\.)+$", True),
    ],
)
def test_examples_decide_without_a_search(patterns: tuple[str, str, bool]) -> None:
    *languages, has_string = patterns
    parts = (*map(parse_search, languages), complement(alt(*map(text, WORDS))))
    verdict, _ = examples.verdict(parts, 1000)
    assert verdict is (not has_string)


def test_long_strings_are_not_made() -> None:
    assert examples._string(parse_search("^(a{40}b){40}$"), 0) is None
    assert examples.few(parse_search("^(a|b){40}$")) is None
    assert examples.few(parse_search(f"^{'ab' * 6_000}$")) is None
