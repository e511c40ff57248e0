"""Hostile constraints end after a bounded amount of work, with an automaton or with an error that names the limit."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from typing import Any

import pytest

from hf_guided.automaton import nfa, products, rtn
from hf_guided.automaton.direct_dfas import dawg_dfa
from hf_guided.automaton.limits import WorkMeter
from hf_guided.automaton.lru_bytes import ByteCache
from hf_guided.automaton.nfa import NfaBuilder, regex_dfa
from hf_guided.automaton.rtn import Component, ComponentBuilder
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import JsonSchema
from hf_guided.errors import CompileLimitExceeded
from hf_guided.options import NETWORK, CompileLimits
from hf_guided.regex import parse_fullmatch
from tests.calls import counted_calls
from tests.pairs import one_in
from tests.toy import all_bytes

LIMIT = "grew past|steps of work"
AMPLE = CompileLimits(max_work=20_000_000)  # for languages that look hostile, but are not


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "(a|b)*a(a|b){24}",
        pytest.param(r"(\w{1,20}[ ,]?){5,80}", marks=pytest.mark.slow),
        pytest.param("(?:.{1,20}[,;]){1,30}", marks=pytest.mark.slow),
        r"\w{1,1000}",
        pytest.param(r"((\w{1,50}){1,50}){1,50}", marks=pytest.mark.slow),
        r"(?!.*\w{1,300}x)\w{1,300}",
        "a{50000}",
    ],
)
def test_hostile_pattern_reaches_a_limit(pattern):
    node, meter = parse_fullmatch(pattern), WorkMeter()
    with pytest.raises(CompileLimitExceeded, match=LIMIT):
        regex_dfa(node, meter)
    assert meter.work <= 1.1 * meter.limits.max_work


# Patterns whose texts can be split into repetitions in many ways, with the number of states of the smallest automaton.
# Tracking the set of all possible counts would need tens of thousands of states, in some cases millions.
AMBIGUOUS = {
    "(?:alphabet|[a-z ]{1,9}[.]){3,60}": 1219,
    "(?:alphabet|[a-z ]{1,9}[.]){30,60}": 5387,
    "(?:alphabet|[a-z ]{1,9}[.]){3,200}": 4019,
    "(a|ab|b){3,60}": 125,
    "([a-z]{1,5}|[0-9a-f]{2,7}){2,50}": 999,
    "([a-z]{1,9} ?){1,40}": 402,
    "((a|b){1,5}c?){3,40}": 246,
    "(?:[a-z]{1,5}[a-m]{2,6}){1,30}": 1168,
    "(([a-z]{1,10} ?){1,10}[.]?){1,20}": 2222,
    "((ab?){1,9}(ba?){1,9}){1,9}": 910,
    "((((a|b){1,3}c?){1,3}d?){1,3}e?){1,20}": 802,
    "(x[a-z]{0,9}|xy|y[a-z]?){3,90}": 5061,
    "(([a-z]{1,9}|[a-f0-9]{1,9}) ?){4,90}": 2360,
    "[a-z]{1,100}[a-m]{1,100}[a-f]{1,100}": 599,
    "(.*a.{0,1000}b)+": 9011,
    ".{1,100}(ab)?.{1,1000}": 8805,
    "((a|b)?c?){1000}": 2002,
    "(.*[a-f]){3,30}(.*[0-9]){2,20}": 42,
}


@pytest.mark.parametrize("pattern", one_in(2, AMBIGUOUS))
def test_ambiguous_repetition_has_the_smallest_automaton(pattern):
    meter = WorkMeter()
    assert regex_dfa(parse_fullmatch(pattern), meter).states == AMBIGUOUS[pattern]
    assert meter.work < meter.limits.max_work / 3


def test_counted_work_does_not_depend_on_earlier_compiles(monkeypatch):
    """If cached pieces saved counted work, a constraint could compile today and reach a limit tomorrow."""
    patterns = ["([a-z]{1,5}|[0-9a-f]{2,7}){2,9}", "(([a-z]{1,5}|[0-9a-f]{2,7}){2,9}-){9}", "(a?b?){1,90}"]

    def works(order: list[str]) -> dict[str, int]:
        monkeypatch.setattr(nfa, "_kept_languages", ByteCache(2**20))
        work_of = {}
        for pattern in order:
            meter = WorkMeter()
            regex_dfa(parse_fullmatch(pattern), meter)
            work_of[pattern] = meter.work
        return work_of

    assert works(patterns) == works(patterns[::-1]) == {pattern: works([pattern])[pattern] for pattern in patterns}


def test_work_of_a_kept_component_is_counted_again(monkeypatch):
    """Another schema has the same list; its automaton is not made again, but for one with names of its own."""
    monkeypatch.setattr(rtn, "_kept_automata", ByteCache(2**20))

    def built(opening: bytes) -> tuple[Component, int]:
        meter = WorkMeter()
        builder = ComponentBuilder(meter)
        start, inside, end = builder.state(), builder.state(), builder.state()
        builder.row((opening, "item"), start, inside)
        builder.row((b",", "item"), inside, inside)
        builder.add_word(b"]", inside, end)
        return builder.component(start, end, lambda name: 7), meter.work

    for opening, is_kept in ((b"[", True), (b'"name":[', False)):
        (first, work), (second, work_again) = built(opening), built(opening)
        assert work == work_again > 0
        assert (first.dfa is second.dfa) == is_kept
        assert first.callees == second.callees == (7,)
        for component in (first, second):
            assert component.after_calls[0, component.dfa.advance(component.dfa.start, opening)]


@pytest.mark.parametrize(
    "pattern", ["(?:alphabet|[a-z ]{1,9}[.]){20,30}", "(a|b)*a(a|b){9}", r"(\w{1,5},){1,9}", "a{9999}"]
)
def test_all_work_is_counted(pattern):
    """Most operations of Python are calls, so the number of calls per counted step is small."""
    node, meter = parse_fullmatch(pattern), WorkMeter()
    _, calls = counted_calls(lambda: regex_dfa(node, meter))
    assert calls < 10 * meter.work


def test_counted_work_does_not_depend_on_the_machine(monkeypatch):
    """A machine that is a hundred times slower counts the same work."""
    node = parse_fullmatch("(?:alphabet|[a-z ]{1,9}[.]){3,60}")
    fast, slow, now = WorkMeter(), WorkMeter(), itertools.count(step=0.5)
    regex_dfa(node, fast)
    monkeypatch.setattr(time, "thread_time", lambda: next(now))  # each reading of the clock is half a second later
    regex_dfa(node, slow)
    assert fast.work == slow.work


def test_the_time_holds_where_a_long_text_is_repeated():
    """Each copy takes two steps of work, and as much time as its text is long."""
    node = parse_fullmatch("(?:z" + "b" * 20_000 + "){0,3000}c")
    began = time.thread_time()
    with pytest.raises(CompileLimitExceeded, match="steps of work"):
        regex_dfa(node, WorkMeter(NETWORK))
    assert time.thread_time() - began < 4, "two seconds, on a busy machine"


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("((a?b?)*c?){200}", ["", "abc", "ba" * 9, "c" * 200], ["d", "c" * 201, "cab" * 201]),
        ("(?=(a|b)*a(a|b){12})(?=(a|b)*b(a|b){13}).*", ["ba" + "a" * 12, "aba" + "b" * 12], ["", "ab" * 6, "a" * 14]),
        (r"(\w+\s?)+", ["a", "a b", "ab c d "], ["", " a", "a  b", "a-b"]),
    ],
)
def test_patterns_that_only_look_hostile_compile(pattern, inside, outside):
    """Python's own engine would not finish, so the expected results are given by hand."""
    dfa = regex_dfa(parse_fullmatch(pattern), WorkMeter(AMPLE))
    assert all(dfa.accepts(text.encode()) for text in inside)
    assert not any(dfa.accepts(text.encode()) for text in outside)


def test_schemas_that_only_look_hostile_compile():
    backend = NetworkBackend(all_bytes())
    words = [f"{'x' * 30}{i * 7919}" for i in range(50_000)]
    matcher = backend.compile(JsonSchema({"enum": [*words, *range(0, 5000, 3)]})).matcher()
    for text, inside in ((f'"{words[77]}"', True), ('"x"', False), ("333", True), ("334", False)):
        matcher.reset()
        assert (all(map(matcher.accept_token, text.encode())) and matcher.is_completed()) == inside
    deep: Any = {"type": "null"}
    for _ in range(60):
        deep = {"type": "array", "items": deep, "minItems": 1, "maxItems": 1}
    matcher = backend.compile(JsonSchema(deep, "compact")).matcher()
    assert matcher.jump_forward_bytes() == b"[" * 60 + b"null" + b"]" * 60


def test_memory_is_bounded_by_the_states_not_by_the_work():
    node = parse_fullmatch("(a|b)*a(a|b){3000}")  # sets of up to 3,000 states each
    tracemalloc.start()
    try:
        with pytest.raises(CompileLimitExceeded, match="grew past 10000 states"):
            regex_dfa(node, WorkMeter(CompileLimits(max_states=10_000, max_work=10**9)))
        assert tracemalloc.get_traced_memory()[1] < 120e6
    finally:
        tracemalloc.stop()


def test_word_lists_reach_a_limit():
    shared = [f"{'x' * 100}{i:05d}{'y' * (i % 20)}".encode() for i in range(50_000)]
    assert all(map(dawg_dfa(shared, WorkMeter(AMPLE)).accepts, shared[::7]))
    with pytest.raises(CompileLimitExceeded, match="grew past"):
        dawg_dfa([(str(i * i) * 40).encode() for i in range(20_000)], WorkMeter(AMPLE))


@pytest.mark.parametrize("share", [0.0, 0.02, 0.1, 0.3, 0.6, 0.95])
def test_work_limit_holds_at_every_stage(share):
    """At any stage, a compile stops soon after its work is used up."""
    node = parse_fullmatch(r"(?=\w{1,15})(.*[aeiou]){1,6}")
    whole = WorkMeter()
    regex_dfa(node, whole)
    most = int(share * whole.work)
    meter = WorkMeter(CompileLimits(max_work=most))
    with pytest.raises(CompileLimitExceeded, match=f"more than {most} steps of work"):
        regex_dfa(node, meter)
    assert meter.work <= most + whole.work / 5


def test_state_limit():
    with pytest.raises(CompileLimitExceeded, match="grew past 100 states; bound its repetitions"):
        regex_dfa(parse_fullmatch("(a|b)*a(a|b){7}"), WorkMeter(CompileLimits(max_states=100)))
    with pytest.raises(CompileLimitExceeded, match="grew past 400 states"):
        builder = NfaBuilder(WorkMeter(CompileLimits(max_states=100)))
        for _ in range(600):
            builder.state()
    even, third = (regex_dfa(parse_fullmatch(p), WorkMeter()) for p in ("(a{16})*", "(a{17})*"))
    assert products.intersection(even, third, WorkMeter()).states == 16 * 17 + 1
    with pytest.raises(CompileLimitExceeded, match="grew past 200 states"):
        products.intersection(even, third, WorkMeter(CompileLimits(max_states=200)))


def test_optional_parts_share_their_tails():
    """Fifteen nested optional objects, which take 2.5 MB as a plain regex, and a chain as an automaton."""
    pattern = ""
    for name in "abcdefghijklmno":
        pattern = rf'\{{("{name}": [0-9]{{1,3}}(, )?)?({pattern})?\}}'
    assert regex_dfa(parse_fullmatch(pattern), WorkMeter()).states < 500


def test_empty_language():
    dfa = regex_dfa(parse_fullmatch("(?!a)a"), WorkMeter())
    assert (dfa.states, dfa.start, dfa.accepts(b"")) == (1, 0, False)
    everything = products.difference(nfa.utf8(), dfa, WorkMeter())
    assert everything.accepts("é".encode()) and not everything.accepts(b"\xe9")
    assert everything.states == nfa.utf8().states
