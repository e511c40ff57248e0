"""All strings but some words, by brute force over short strings and by another library's automata."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton.core import CORE
from hf_guided.automaton.fragments import EXIT, Fragment
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.products import difference, without_words
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.reference.without_words import without_words as in_python

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
            assert accepts(left, text.encode()) == expected, text


def accepts(left: Fragment | None, data: bytes) -> bool:
    """Read byte by byte, from the arrays alone."""
    if left is None:
        return False
    if not data:
        return left.nullable
    state, row = 0, left.start
    for byte in data:
        segment = next(i for i in range(len(row)) if left.bounds[i] <= byte < left.bounds[i + 1])
        state = int(row[segment])
        row = left.table[state]
    return state == EXIT or bool(left.is_end[state])


@given(st.sampled_from(PATTERNS), words.filter(bool))
def test_it_has_a_state_for_each_prefix_of_a_word_at_most(pattern, words):
    """Beside those of the automaton; the minimal one, which a product of both automata gives, has no more."""
    whole = regex_dfa(parse_fullmatch(pattern), WorkMeter())
    left = without_words(whole, [word.encode() for word in words], WorkMeter())
    listed = regex_dfa(parse_fullmatch("|".join(map(re.escape, words))), WorkMeter())
    usual = difference(whole, listed, WorkMeter())
    assert (left is None) == (not usual.start)
    if left is not None:
        prefixes = {word.encode()[:length] for word in words for length in range(len(word.encode()) + 1)}
        assert usual.states <= left.states + 1 <= whole.states + len(prefixes) + 2


@given(st.sampled_from(PATTERNS), words, st.sampled_from([1_000_000, 60, 30]))
def test_the_compiled_loops_leave_what_python_leaves(pattern, words, max_work):
    """State by state, with the same count of work, and within the same limit."""
    whole = regex_dfa(parse_fullmatch(pattern), WorkMeter())
    made: list[Any] = []
    for make in (without_words, in_python):
        meter = WorkMeter(CompileLimits(max_work=max_work))
        try:
            left = make(whole, [word.encode() for word in words], meter)
        except CompileLimitExceeded as error:
            made.append(str(error))
            continue
        arrays = () if left is None else (left.table, left.bounds, left.start, left.is_end)
        made.append((*((array.dtype.str, array.tolist()) for array in arrays), left and left.nullable, meter.work))
    assert made[0] == made[1]


def test_what_a_stopped_compile_has_made_is_freed(monkeypatch):
    made: list[int] = []
    freed: list[int] = []
    begin, end = CORE.without_words, CORE.piece_end
    monkeypatch.setattr(CORE, "without_words", lambda *given: made.append(begin(*given)) or made[-1])
    monkeypatch.setattr(CORE, "piece_end", lambda handle: freed.append(handle) or end(handle))
    whole = regex_dfa(parse_fullmatch("[a-c]*"), WorkMeter())
    meter = WorkMeter()
    monkeypatch.setattr(meter, "spend", stopped)
    freed.clear()
    with pytest.raises(CompileLimitExceeded, match="the clock"):
        without_words(whole, [b"a"], meter)
    assert made == freed


def stopped(steps: int) -> None:
    raise CompileLimitExceeded("the clock is up")
