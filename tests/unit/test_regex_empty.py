"""Languages without a string: short texts are the oracle."""

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
    lambda one: repeat(chars(ALL), one[0], one[1] if one[1] is None else sum(one))  # type: ignore[arg-type]
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
def test_what_has_a_string_is_not_empty(language: Node) -> None:
    if any(matches(language, text) for text in TEXTS):
        assert not Emptiness()(language)


@pytest.mark.parametrize(
    "patterns",
    [("^a", "^b"), ("^ab$", "b.+$"), ("^(ab)*$", "^.{3}$"), ("^[0-9.]*$", "a|b"), ("^(?!a)", "^ab")],
)
def test_what_has_none_is_found(patterns: tuple[str, str]) -> None:
    assert Emptiness()(both(*map(parse_search, patterns)))


@given(st.sampled_from(PATTERNS).map(parse_search), _lengths)
def test_patterns_of_some_length(pattern: Node, length: Node) -> None:
    """Small enough to be decided; six letters are long enough for all of these."""
    language = both(pattern, length)
    texts = ["".join(letters) for n in range(9) for letters in product("ab", repeat=n)]
    assert Emptiness()(language) == (not any(matches(language, text) for text in [*texts, "c", "cc", "ccc"]))
