"""Emptiness of regular languages, compared with brute force over short texts."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.regex import ALL, Emptiness, Node, alt, both, chars, complement, concat, matches, parse_search, repeat

PATTERNS = [
    "^a",
    "^b",
    "b$",
    "^ab$",
    "^(ab)*$",
    "^a?b?$",
    "^a{2,3}$",
    "^(aa|bbb)+$",
    "^.$",
    "a",
    "[^a]",
    "^(?!a)",
    "^b{0,2}a",
]
TEXTS = ["".join(letters) for length in range(6) for letters in product("abc", repeat=length)]
_lengths = st.tuples(st.integers(0, 4), st.none() | st.integers(0, 4)).map(
    lambda pair: repeat(chars(ALL), pair[0], pair[1] if pair[1] is None else sum(pair))  # type: ignore[arg-type]
)
_languages = st.recursive(
    st.sampled_from(PATTERNS).map(parse_search) | _lengths,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: both(*parts)),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: alt(*parts)),
        st.lists(inner, min_size=2, max_size=2).map(lambda parts: concat(*parts)),
        inner.map(complement),
    ),
    max_leaves=4,
)


@given(_languages)
def test_language_with_a_text_is_not_empty(language: Node) -> None:
    if any(matches(language, text) for text in TEXTS):
        assert not Emptiness()(language)


@pytest.mark.parametrize(
    "patterns",
    [("^a", "^b"), ("^ab$", "b.+$"), ("^(ab)*$", "^.{3}$"), ("^[0-9.]*$", "a|b"), ("^(?!a)", "^ab")],
)
def test_empty_intersection_is_detected(patterns: tuple[str, str]) -> None:
    assert Emptiness()(both(*map(parse_search, patterns)))


@given(st.sampled_from(PATTERNS).map(parse_search), _lengths)
def test_pattern_with_a_length_is_decided_exactly(pattern: Node, length: Node) -> None:
    """These languages are small enough for an exact decision, and short texts decide all of them."""
    language = both(pattern, length)
    texts = ["".join(letters) for n in range(9) for letters in product("ab", repeat=n)]
    assert Emptiness()(language) == (not any(matches(language, text) for text in [*texts, "c", "cc", "ccc"]))
