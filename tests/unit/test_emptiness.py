"""Emptiness of regular languages, compared with brute force over short texts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.emptiness import Emptiness
from hf_guided.regex import (
    ALL,
    Node,
    all_but,
    alt,
    both,
    chars,
    complement,
    concat,
    matches,
    parse_search,
    repeat,
    text,
)

PATTERNS = [
    "^a", "^b", "b$", "^ab$", "^(ab)*$", "^a?b?$", "^a{2,3}$", "^(aa|bbb)+$", "^.$", "a", "[^a]", "^(?!a)", "^b{0,2}a",
]  # fmt: skip
WORDS = ["", "a", "b", "ab", "ba", "aab", "abab", "c"]
TEXTS = ["".join(letters) for length in range(6) for letters in product("abc", repeat=length)]
_lengths = st.tuples(st.integers(0, 4), st.none() | st.integers(0, 4)).map(
    lambda pair: repeat(chars(ALL), pair[0], pair[1] if pair[1] is None else sum(pair))  # type: ignore[arg-type]
)
_word_lists = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5)
_languages = st.recursive(
    st.sampled_from(PATTERNS).map(parse_search)
    | _lengths
    | _word_lists.map(lambda words: alt(*map(text, words)))
    | _word_lists.map(lambda words: all_but(tuple(dict.fromkeys(words)))),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: both(*parts)),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: alt(*parts)),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: concat(*parts)),
        st.tuples(inner, st.integers(1, 2)).map(lambda repeated: repeat(repeated[0], repeated[1], None)),
        inner.map(complement),
    ),
    max_leaves=4,
)


@given(_languages)
def test_language_with_a_text_is_not_empty(language: Node) -> None:
    if any(matches(language, text) for text in TEXTS):
        assert Emptiness().verdict(language) is False


@given(_languages)
def test_what_is_not_in_itself_is_nothing(language: Node) -> None:
    assert Emptiness().verdict(both(concat(language, language), complement(repeat(language, 2, 2)))) is True


@pytest.mark.parametrize(
    "patterns",
    [
        ("^a", "^b"),
        ("^ab$", "b.+$"),
        ("^(ab)*$", "^.{3}$"),
        ("^[0-9.]*$", "a|b"),
        ("^(?!a)", "^ab"),
        ("^é*$", "^[^é]"),
        ("^.$", "^[^]{2,}$"),
        ("^(aa)+$", "^(aaa)+$", "^a{1,5}$"),
        ("^[^]{3,900000}$", "^[ab]{0,2}$"),
        ("^(ab|cd)*$", "c$", "^[^]{99999,}$"),
    ],
)
def test_empty_intersection_is_detected(patterns: tuple[str, ...]) -> None:
    assert Emptiness()(both(*map(parse_search, patterns)))


@pytest.mark.parametrize(
    "patterns",
    [
        ("ab1", "c[0-9]"),
        ("^(aa)+$", "^(aaa)+$", "^a{1,6}$"),
        ("^[^]{2}$", "^[😀é]+$", "é"),
        ("^[^]{3,900000}$", "^[ab]*$", "ba$"),
        ("^(ab|cd)*$", "d$", "^[^]{99999,}$"),
        ("^(a|b)*a(a|b){12}$", "^[^]{13,}$"),
        # z9, t8 many times, c1d3g3t8t8 six times, t8t8t8z9
        ("^([a-z][0-9])+$", "(c1d3g3.{4,8}){6}", "(t|8){10}..$", "^z9(.{10}){10}z9$"),
    ],
)
def test_intersection_with_a_string_is_not_empty(patterns: tuple[str, ...]) -> None:
    assert Emptiness().verdict(both(*map(parse_search, patterns))) is False


@given(st.sampled_from(PATTERNS).map(parse_search), _lengths)
def test_pattern_with_a_length_is_decided_exactly(pattern: Node, length: Node) -> None:
    """These languages are small enough for an exact decision, and short texts decide all of them."""
    language = both(pattern, length)
    texts = ["".join(letters) for n in range(9) for letters in product("ab", repeat=n)]
    assert Emptiness()(language) == (not any(matches(language, text) for text in [*texts, "c", "cc", "ccc"]))


def test_work_is_bounded_and_so_is_all_work_together() -> None:
    emptiness, easy = Emptiness(), both(parse_search("a"), parse_search("b"))
    for times in range(30, 40):
        hard = both(*(parse_search(f"^[ab]*{letter}[ab]{{{times}}}c$") for letter in "ab"))
        assert emptiness.verdict(hard) is None
    assert emptiness.verdict(easy) is None
    assert Emptiness().verdict(easy) is False
