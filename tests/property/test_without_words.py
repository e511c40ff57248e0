"""All strings but some words, by brute force over short strings and by another library's automata."""

from __future__ import annotations

import re
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.products import difference
from hf_guided.automaton.without_words import without_words
from hf_guided.regex import parse_fullmatch

PATTERNS = ("[a-c]*", "a{0,3}", "(ab)*c?", "a[bc]|b", "(a|é)*b", "abc", "[^a]*")
LETTERS = "abcé"
words = st.lists(st.text(LETTERS, max_size=4), max_size=6, unique=True)


@given(st.sampled_from(PATTERNS), words)
def test_what_is_left_is_all_that_is_no_word(pattern, words):
    left = without_words(
        regex_dfa(parse_fullmatch(pattern), WorkMeter()), [word.encode() for word in words], WorkMeter()
    )
    for length in range(6):
        for letters in product(LETTERS, repeat=length):
            text = "".join(letters)
            expected = re.fullmatch(pattern, text) is not None and text not in words
            assert left.accepts(text.encode()) == expected, text


@given(st.sampled_from(PATTERNS), words.filter(bool))
def test_it_is_the_minimal_automaton(pattern, words):
    """As large as the one that a product of both automata gives."""
    whole = regex_dfa(parse_fullmatch(pattern), WorkMeter())
    left = without_words(whole, [word.encode() for word in words], WorkMeter())
    listed = regex_dfa(parse_fullmatch("|".join(map(re.escape, words))), WorkMeter())
    usual = difference(whole, listed, WorkMeter())
    assert (left.states, bool(left.start)) == (usual.states, bool(usual.start))
    assert len(set(left.byte_class.tolist())) == left.table.shape[1] == usual.table.shape[1]
