"""The compiled loops build the automata of tests/reference, state by state, and count the same work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.automaton import nfa, subsets
from hf_guided.automaton.byte_dfa import ByteDfa, finished
from hf_guided.automaton.fragments import Fragment, Literal, from_dfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.automaton.subsets import Copies, Nfa
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.compiled_core import run_under_sanitizers
from tests.effort import repeats
from tests.property.test_counted_repetition import counted
from tests.property.test_regex import edge_patterns, plain_patterns
from tests.reference import minimal as reference_minimal
from tests.reference import subsets as reference
from tests.reference.dominance import Dominance

WORKLOADS = [
    "(?:[a-c]{0,8}x){0,12}",
    "(a[ab]{0,8}[ab]{5,8}){0,4}",
    "((a?b?){0,5}c?){2,7}",
    '[^\\x00-\\x1f"]{0,100}',
    "(\\w{2,20}|\\d{3,30}){1,3}",
    "(one|two|three|four|five|six|seven|eight|nine){2,9}",
    "((x{0,3}y{0,3}){0,4}|z){0,6}",
    "(?!(?:ab|abc|b\u00e9)\\Z)[a-z\u00e9]*",  # all but some words
]
LIMITS = CompileLimits(max_work=200_000, max_states=2_000)
patterns = st.one_of(plain_patterns, edge_patterns, counted.map(lambda made: made.pattern))
few = settings(max_examples=repeats(60, 400), suppress_health_check=[HealthCheck.too_slow])


def outcome(make: Callable[[WorkMeter], Any], limits: CompileLimits) -> tuple[Any, str, int]:
    """What was made, or the message of the limit; and the work, where it was not stopped at some point."""
    meter = WorkMeter(limits)
    try:
        return make(meter), "", meter.work
    except CompileLimitExceeded as error:
        return None, str(error), 0


def listed(made: ByteDfa | reference.Table | None) -> list[Any] | None:
    if made is None:
        return None
    arrays = [made.table, made.byte_class, made.accepting] if isinstance(made, ByteDfa) else made
    return [[array.dtype.str, array.shape, array.tolist()] for array in arrays] + [getattr(made, "start", 1)]


def check_subsets(nfa: Nfa, start: int, end: int, limits: CompileLimits) -> None:
    makes = subsets.determinize, reference.determinize
    ours, theirs = [outcome(lambda meter, make=make: listed(make(nfa, start, end, meter)), limits) for make in makes]
    assert ours == theirs


@few
@given(patterns, st.sampled_from([LIMITS, CompileLimits(max_work=3_000), CompileLimits(max_states=40)]))
def test_every_table_of_a_pattern_is_the_same(pattern, limits):
    """Every automaton on the way to that of the pattern, with limits that some examples reach."""
    found: list[tuple[Nfa, int, int]] = []

    def noted(nfa: Nfa, start: int, end: int, meter: WorkMeter) -> ByteDfa:
        found.append((nfa, start, end))
        return subsets.determinize(nfa, start, end, meter)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nfa, "_kept_languages", ByteCache(2**20))
        patch.setattr(nfa, "determinize", noted)
        outcome(lambda meter: regex_dfa(parse_fullmatch(pattern), meter), LIMITS)
    assert found
    for noted_nfa, start, end in found:
        check_subsets(noted_nfa, start, end, limits)


def pieces() -> Iterator[Fragment | Literal]:
    yield from map(Literal, (b"a", b"ab", b"abc", b"\xc3\xa9"))
    for pattern in ("a*b", "(ab|b)+", "[ab]", "(a|ab)(c|bcd)?", "[^b]{1,3}"):
        piece = from_dfa(regex_dfa(parse_fullmatch(pattern), WorkMeter()))
        assert piece is not None
        yield piece


@few
@given(st.data())
def test_tables_of_any_network_of_pieces_are_the_same(data):
    """Pieces between any states, in cycles too, which no pattern writes."""
    states = data.draw(st.integers(2, 7))
    state = st.integers(0, states - 1)
    between = data.draw(st.lists(st.tuples(state, st.sampled_from(list(pieces())), state), max_size=12))
    skips = data.draw(st.lists(st.tuples(state, state), max_size=6))
    check_subsets(Nfa(states, between, skips, []), 0, states - 1, LIMITS)


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 9), st.booleans())
def test_minimal_automata_are_the_same(seed, states, classes, has_cycles):
    """Tables in which few rows are different, so that many states are equivalent."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, states, (max(2, states // 4), classes))
    table = rows[rng.integers(0, len(rows), states)]
    if not has_cycles:
        table = np.where(table > np.arange(states)[:, None], table, 0)
    table[0] = 0
    accepting = rng.random(states) < 0.4
    accepting[0] = False
    byte_class = rng.integers(0, classes, 256)
    made = []
    for make in (finished, reference_minimal.finished):
        meter = WorkMeter()
        made.append((listed(make(table, byte_class, accepting, 1, meter)), meter.work))
    assert made[0] == made[1]


@pytest.mark.parametrize("pattern", WORKLOADS)
def test_work_and_limits_do_not_depend_on_the_compiled_loops(pattern, monkeypatch):
    """A constraint that is served with them is served without them."""
    node, works = parse_fullmatch(pattern), []
    for make in (subsets.determinize, reference.determinize):
        monkeypatch.setattr(nfa, "determinize", make)
        monkeypatch.setattr(nfa, "_kept_languages", ByteCache(2**20))
        works.append(outcome(lambda meter: listed(regex_dfa(node, meter)), CompileLimits()))
    assert works[0] == works[1] and works[0][2]


def nfa_of(pattern: str) -> tuple[Nfa, int, int]:
    builder = nfa.NfaBuilder(WorkMeter())
    start, end = builder.state(), builder.state()
    builder.add(parse_fullmatch(pattern), start, end)
    return Nfa(builder._states, builder._pieces, builder._skips, builder._repetitions), start, end


@pytest.mark.parametrize("pattern", ["[^a]", "(\\w{2,3}|\\d{3,4}x){1,3}", "(?:[a-c]{0,3}x){0,4}"])
def test_where_two_limits_are_near_the_same_one_is_reported(pattern):
    made = nfa_of(pattern)
    for max_states in range(1, 40, 3):
        for max_work in range(1, 400, 7):
            check_subsets(*made, CompileLimits(max_work=max_work, max_states=max_states))


def test_a_limit_ends_the_loops_at_the_same_step():
    made = nfa_of("(((a?b?){0,40}c?){0,40}d?){0,40}")
    works = []
    for make in (reference.determinize, subsets.determinize):
        meter = WorkMeter(CompileLimits(max_work=20_000))
        with pytest.raises(CompileLimitExceeded):
            make(*made, meter)
        works.append(meter.work)
    assert works[0] == works[1]


def test_numbers_too_large_for_the_loops_are_refused():
    """A piece of a million states thousands of times: the loops have numbers of 32 bits."""
    huge = Literal(b"a" * 1_000_000)
    between = [(0, huge, 1)] * 2_200 + [(2, Literal(b"xy"), 1), (2, Literal(b"xyz"), 1)]
    with pytest.raises(CompileLimitExceeded, match="grew past 2147483647 states; bound its repetitions"):
        subsets.determinize(Nfa(3, between, [], []), 2, 1, WorkMeter())
    dfa = subsets.determinize(Nfa(3, between[100:], [], []), 2, 1, WorkMeter())  # the end has the largest numbers
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
    endings = from_dfa(regex_dfa(parse_fullmatch("a+"), WorkMeter()))
    assert endings is not None
    between = [(0, endings, 1)] * many + [(2 + i, Literal(b"a%d" % i), 2 + many) for i in range(many)]
    skips = [(1, 2 + i) for i in range(many)]
    clock = Clock()
    with pytest.raises(KeyboardInterrupt):
        subsets.determinize(Nfa(many + 3, between, skips, []), 0, many + 2, clock)
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


def test_work_does_not_depend_on_the_order_of_members():
    """Members in two pieces of one kind: what is found out for some of them saves work for the others."""
    rows = [[0, 0], [0, 0], [0, 4], [1, 5], [0, 6], [0, 7], [0, 1], [0, 1]]
    is_end = np.zeros(len(rows), np.uint8)
    piece = Fragment(np.array(rows), np.array([0, 98, 256]), np.array([2, 3]), is_end, nullable=False)
    one_each, no_ranks = np.arange(2), np.zeros((2, 1), np.int32)
    works = []
    for members in ([2, 3, 10, 11], [10, 11, 2, 3]):
        meter = WorkMeter()
        made = Dominance(Copies(one_each, one_each, no_ranks, no_ranks), [piece, piece], [2, 8], meter)
        made.undominated(members)  # type: ignore[arg-type]  # a set's order cannot be chosen
        works.append(meter.work)
    assert works[0] == works[1]


def test_an_array_whose_address_is_kept_is_made_once():
    """Two threads that need it first would make it twice, and one of the two is freed."""
    assert not isinstance(vars(Fragment)["is_end"], cached_property)


_UNDER_SANITIZERS = """
import json
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.nfa import regex_dfa
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import CompileLimits
from hf_guided.regex import parse_fullmatch
for pattern in json.loads(sys.argv[2]):
    for limits in (CompileLimits(), CompileLimits(max_work=2_000), CompileLimits(max_states=30)):
        try:
            regex_dfa(parse_fullmatch(pattern), WorkMeter(limits))
        except CompileLimitExceeded:
            assert limits != CompileLimits()
print("clean")
"""


@pytest.mark.slow
def test_the_loops_stay_within_their_arrays(tmp_path):
    assert run_under_sanitizers(tmp_path, _UNDER_SANITIZERS, json.dumps(WORKLOADS)) == "clean\n"
