"""Automata of two languages, and of all strings but some words: read byte by byte, of few states, in bounded work."""

from __future__ import annotations

import re
import threading
import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton import limits, products
from hf_guided.automaton.byte_dfa import NOTHING, ByteDfa, trimmed
from hf_guided.automaton.core import CORE
from hf_guided.automaton.fragments import EXIT, Fragment
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa, utf8
from hf_guided.automaton.products import difference, intersection, without_words
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.effort import repeats
from tests.property.test_automaton import check_minimal

KINDS = [intersection, difference]


@st.composite
def automata(draw) -> ByteDfa:
    """A minimal one, or one without a string."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    states, classes = draw(st.integers(2, 12)), draw(st.integers(1, 5))
    table = rng.integers(0, states, (states, classes))
    if draw(st.booleans()):  # no cycles
        table = np.where(table > np.arange(states)[:, None], table, 0)
    table[0] = 0
    accepting = rng.random(states) < 0.3
    accepting[0] = False
    # A table in which all states are reached.
    reached, todo = {0, 1}, [1]
    while todo:
        for target in table[todo.pop()].tolist():
            if target not in reached:
                reached.add(target)
                todo.append(target)
    kept = np.array(sorted(reached))
    number = np.zeros(states, np.int64)
    number[kept] = np.arange(len(kept))
    return trimmed(number[table[kept]], rng.integers(0, classes, 256), accepting[kept], 1, WorkMeter())


@settings(max_examples=repeats(100, 1000))
@given(automata(), automata(), st.sampled_from(KINDS), st.sampled_from([1, 20, 1 << 18]))
def test_products_mean_what_they_say(first, second, kind, at_once):
    """Both automata are read beside their product, along all bytes, wherever they lead."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_CELLS_AT_ONCE", at_once)
        made = kind(first, second, WorkMeter())
    seen, todo = set(), [(first.start, second.start, made.start)]
    for states in todo:  # grows meanwhile
        ours, theirs, of_both = (bool(dfa.accepting[at]) for dfa, at in zip((first, second, made), states, strict=True))
        assert of_both == (ours and (theirs if kind is intersection else not theirs))
        for byte in range(256):
            after = tuple(dfa.advance(at, bytes([byte])) for dfa, at in zip((first, second, made), states, strict=True))
            if after not in seen:
                seen.add(after)
                todo.append(after)
    if made.start:
        check_minimal(made)
    for most in (CompileLimits(max_work=1), CompileLimits(max_states=1)):
        if first.start and (second.start or kind is difference):
            with pytest.raises(CompileLimitExceeded):
                kind(first, second, WorkMeter(most))


def test_what_has_no_string_meets_nothing():
    some = utf8()
    assert not intersection(some, NOTHING, WorkMeter()).start
    assert not difference(NOTHING, some, WorkMeter()).start
    assert difference(some, NOTHING, WorkMeter()).states == some.states


def test_the_end_of_the_interpreter_stops_the_loop(monkeypatch):
    """Within one batch, in which nothing is counted yet."""
    states = 2_000
    lines = [np.stack([np.roll(np.arange(1, states + 1), shift)] * 256, 1) for shift in (-1, -3)]
    tables = [np.concatenate((np.zeros((1, 256), np.int64), line)) for line in lines]
    ring, other = (ByteDfa(table, np.arange(256, dtype=np.uint8), np.arange(states + 1) > 0, 1) for table in tables)
    clock = WorkMeter(CompileLimits(max_states=10**7, max_work=10**9))
    monkeypatch.setattr(limits, "interpreter_ends", threading.Event())
    limits.interpreter_ends.set()
    began = time.thread_time()
    with pytest.raises(CompileLimitExceeded, match="interpreter ends"):
        difference(ring, other, clock)
    assert time.thread_time() - began < 2


# -- all strings but some words

PATTERNS = ("[a-c]*", "a{0,3}", "(ab)*c?", "a[bc]|b", "(a|é)*b", "abc", "[^a]*")
LETTERS = "abcé"
words = st.lists(st.text(LETTERS, max_size=4), max_size=6, unique=True)


def automaton(pattern: str) -> ByteDfa:
    return regex_dfa(parse_fullmatch(pattern), WorkMeter())


@given(st.sampled_from(PATTERNS), words)
def test_what_is_left_is_all_that_is_no_word(pattern, words):
    left = without_words(automaton(pattern), [word.encode() for word in words], WorkMeter())
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
    whole = automaton(pattern)
    left = without_words(whole, [word.encode() for word in words], WorkMeter())
    usual = difference(whole, automaton("|".join(map(re.escape, words))), WorkMeter())
    assert (left is None) == (not usual.start)
    if left is not None:
        prefixes = {word.encode()[:length] for word in words for length in range(len(word.encode()) + 1)}
        assert usual.states <= left.states + 1 <= whole.states + len(prefixes) + 2


def test_words_reach_a_limit_and_what_a_stopped_compile_has_made_is_freed(monkeypatch):
    whole = automaton("[a-c]*")
    with pytest.raises(CompileLimitExceeded, match="more than 30 steps of work"):
        without_words(whole, [b"abcabcabc", b"cba"] * 5, WorkMeter(CompileLimits(max_work=30)))
    made: list[int] = []
    freed: list[int] = []
    begin, end = CORE.without_words, CORE.piece_end
    monkeypatch.setattr(CORE, "without_words", lambda *given: made.append(begin(*given)) or made[-1])
    monkeypatch.setattr(CORE, "piece_end", lambda handle: freed.append(handle) or end(handle))
    meter = WorkMeter()
    monkeypatch.setattr(meter, "spend", stopped)
    with pytest.raises(CompileLimitExceeded, match="the clock"):
        without_words(whole, [b"a"], meter)
    assert made == freed


def stopped(steps: int) -> None:
    raise CompileLimitExceeded("the clock is up")
