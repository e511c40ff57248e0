"""Automata of states with languages between them: the texts of a slow reading, few states, and bounded work."""

from __future__ import annotations

import re
import time
from functools import cache, cached_property
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.byte_dfa import finished
from hf_guided.automaton.fragments import Fragment, Literal, from_dfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.subsets import Nfa, determinize
from hf_guided.errors import CompileLimitExceeded
from hf_guided.regex import parse_fullmatch
from tests.effort import repeats
from tests.property.test_automaton import check_minimal

PATTERNS = ["a", "ab", "abc", "é", "a*b", "(ab|b)+", "[ab]", "(a|ab)(c|bcd)", "[^b]{1,3}"]
TEXTS = ["".join(letters) for length in range(5) for letters in product("abcé", repeat=length)]
Between = list[tuple[int, str, int]]
matches = cache(re.fullmatch)


def piece(pattern: str) -> Fragment | Literal:
    if pattern.isalpha():
        return Literal(pattern.encode())
    made = from_dfa(regex_dfa(parse_fullmatch(pattern), WorkMeter()))
    assert made is not None
    return made


def is_read(between: Between, skips: list[tuple[int, int]], end: int, text: str) -> bool:
    """Whether a text leads from state 0 to the end: by the states that each of its beginnings leads to."""
    reached: list[set[int]] = [set() for _ in range(len(text) + 1)]
    todo = [(0, 0)]
    while todo:
        at, state = todo.pop()
        if state not in reached[at]:
            reached[at].add(state)
            todo += [(at, to) for source, to in skips if source == state]
            for source, pattern, to in between:
                if source == state:
                    todo += [(i, to) for i in range(at + 1, len(text) + 1) if matches(pattern, text[at:i])]
    return end in reached[-1]


@settings(max_examples=repeats(40, 400), suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_network_of_pieces_is_read_as_its_pieces_are(data):
    """Pieces between any states, in cycles too, which no pattern writes."""
    states = data.draw(st.integers(2, 7))
    state = st.integers(0, states - 1)
    between = data.draw(st.lists(st.tuples(state, st.sampled_from(PATTERNS), state), max_size=12))
    skips = data.draw(st.lists(st.tuples(state, state), max_size=6))
    pieces = {pattern: piece(pattern) for _, pattern, _ in between}
    nfa = Nfa(states, [(source, pieces[pattern], to) for source, pattern, to in between], skips, [])
    dfa = determinize(nfa, 0, states - 1, WorkMeter())
    for text in TEXTS:
        assert dfa.accepts(text.encode()) == is_read(between, skips, states - 1, text), text
    if dfa.start and dfa.states < 60:
        check_minimal(dfa)


def test_numbers_too_large_for_the_loops_are_refused():
    """A piece of a million states thousands of times: the loops have numbers of 32 bits."""
    huge = Literal(b"a" * 1_000_000)
    between = [(0, huge, 1)] * 2_200 + [(2, Literal(b"xy"), 1), (2, Literal(b"xyz"), 1)]
    with pytest.raises(CompileLimitExceeded, match="grew past 2147483647 states; bound its repetitions"):
        determinize(Nfa(3, between, [], []), 2, 1, WorkMeter())
    dfa = determinize(Nfa(3, between[100:], [], []), 2, 1, WorkMeter())  # the end has the largest numbers
    assert dfa.accepts(b"xy") and dfa.accepts(b"xyz") and not dfa.accepts(b"x")


class Clock(WorkMeter):
    """Says that the time is over when loops look at it."""

    def look(self) -> None:
        raise KeyboardInterrupt


def test_minimizing_looks_at_the_clock():
    states = np.arange(20_000, dtype=np.int32)
    table = np.repeat(np.append(0, np.append(states[2:], 0))[:, None], 256, 1)
    with pytest.raises(KeyboardInterrupt):
        finished(table, np.arange(256), states == states[-1], 1, Clock())


def test_loops_that_count_no_work_look_at_the_clock():
    """Where many pieces that may end meet many that begin there."""
    many = 3_000
    between = [(0, piece("a+"), 1)] * many + [(2 + i, Literal(b"a%d" % i), 2 + many) for i in range(many)]
    skips = [(1, 2 + i) for i in range(many)]
    clock = Clock()
    with pytest.raises(KeyboardInterrupt):
        determinize(Nfa(many + 3, between, skips, []), 0, many + 2, clock)
    assert not clock.work  # the loops themselves have looked


def test_columns_that_differ_at_the_end_alone_are_told_apart_quickly():
    states = 20_000
    table = np.repeat(np.arange(1, states + 1, dtype=np.int32)[:, None], 256, 1)
    table[0] = 0
    table[-257] = np.arange(states - 256, states)
    table[-256:] = 0
    table[np.arange(states - 256, states - 1), np.arange(255)] = states - 1
    began = time.thread_time()
    accepting = np.arange(states) == states - 1
    made = finished(table, np.arange(256), accepting, 1, WorkMeter())
    assert time.thread_time() - began < 2
    assert len(np.unique(made.byte_class)) == made.table.shape[1] == 256


def test_an_array_whose_address_is_kept_is_made_once():
    """Two threads that need it first would make it twice, and one of the two is freed."""
    assert not isinstance(vars(Fragment)["is_end"], cached_property)
