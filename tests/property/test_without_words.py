"""All strings but some words, by brute force over short strings and by another library's automata."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_guided.automaton import core
from hf_guided.automaton.core import Core
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.products import difference
from hf_guided.automaton.without_words import without_words
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests import compiled_core

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


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> Core:
    return compiled_core.core(tmp_path_factory.mktemp("core"))


@given(st.sampled_from(PATTERNS), words, st.sampled_from([1_000_000, 60, 30]))
def test_the_compiled_loops_leave_the_same(compiled, pattern, words, max_work):
    """State by state, with the same count of work, and within the same limit."""
    whole = regex_dfa(parse_fullmatch(pattern), WorkMeter())
    made: list[Any] = []
    for loops in (None, compiled):
        meter = WorkMeter(CompileLimits(max_work=max_work))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core, "CORE", loops)
            try:
                left = without_words(whole, [word.encode() for word in words], meter)
            except CompileLimitExceeded as error:
                made.append(str(error))
                continue
        arrays = left.table, left.byte_class, left.accepting
        made.append((*((array.dtype.str, array.tolist()) for array in arrays), left.start, meter.work))
    assert made[0] == made[1]


def test_what_a_stopped_compile_has_made_is_freed(compiled, monkeypatch):
    made: list[int] = []
    freed: list[int] = []
    begin, end = compiled.without_words, compiled.minimal_end
    monkeypatch.setattr(compiled, "without_words", lambda *given: made.append(begin(*given)) or made[-1])
    monkeypatch.setattr(compiled, "minimal_end", lambda handle: freed.append(handle) or end(handle))
    monkeypatch.setattr(core, "CORE", compiled)
    whole = regex_dfa(parse_fullmatch("[a-c]*"), WorkMeter())
    meter = WorkMeter()
    monkeypatch.setattr(meter, "spend", stopped)
    freed.clear()
    with pytest.raises(CompileLimitExceeded, match="the clock"):
        without_words(whole, [b"a"], meter)
    assert made == freed


def stopped(steps: int) -> None:
    raise CompileLimitExceeded("the clock is up")
