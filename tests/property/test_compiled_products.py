"""The compiled loops combine automata as those of tests/reference, state by state, and count the same work."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_guided.automaton import limits, products
from hf_guided.automaton.byte_dfa import NOTHING, ByteDfa, trimmed
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import utf8
from hf_guided.automaton.products import difference, intersection
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from tests.compiled_core import run_under_sanitizers
from tests.effort import repeats
from tests.property.test_compiled_automata import listed, outcome
from tests.reference.products import product

KINDS = [intersection, difference]
LIMITS = [CompileLimits(), CompileLimits(max_work=120), CompileLimits(max_states=8)]


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
@given(automata(), automata(), st.sampled_from(KINDS), st.sampled_from(LIMITS), st.sampled_from([1, 20, 1 << 18]))
def test_products_are_the_same(first, second, kind, limits, at_once):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_CELLS_AT_ONCE", at_once)
        ours = outcome(lambda meter: listed(kind(first, second, meter)), limits)
        assert ours == outcome(lambda meter: listed(product(kind, first, second, meter)), limits)


@given(automata(), automata(), st.sampled_from(KINDS), st.binary(max_size=6))
def test_products_mean_what_they_say(first, second, kind, data):
    ours, theirs = first.accepts(data), second.accepts(data)
    expected = {intersection: ours and theirs, difference: ours and not theirs}[kind]
    assert kind(first, second, WorkMeter()).accepts(data) == expected


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


_UNDER_SANITIZERS = """
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.nfa import utf8
from hf_guided.automaton.products import difference, intersection
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
patterns = ["(a{16})*", "(a{17})*", "[ab]{0,40}", "(ab|c)*d?", "x", "(a|b)*a(a|b){6}"]
dfas = [regex_dfa(parse_fullmatch(pattern), WorkMeter()) for pattern in patterns]
for one in dfas:
    for other in dfas:
        for kind in (difference, intersection):
            for limits in (CompileLimits(), CompileLimits(max_work=300), CompileLimits(max_states=30)):
                try:
                    kind(one, other, WorkMeter(limits))
                except CompileLimitExceeded:
                    assert limits != CompileLimits()
print("clean")
"""


def test_the_loops_stay_within_their_arrays(tmp_path):
    assert run_under_sanitizers(tmp_path, _UNDER_SANITIZERS) == "clean\n"
