"""Hostile constraints end: with an automaton, or with an error that says which limit, within time and memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from hf_guided.automaton import byte_dfa
from hf_guided.automaton.limits import Clock, Limits
from hf_guided.automaton.nfa import NfaBuilder, regex_dfa
from hf_guided.automaton.words import words_dfa
from hf_guided.backends.automaton import AutomatonBackend
from hf_guided.constraints import JsonSchema
from hf_guided.errors import CompileLimitExceeded
from hf_guided.regex import parse_fullmatch
from tests.toy import all_bytes

GRACE = 1.5  # seconds beside the limit itself


@pytest.fixture(autouse=True)
def frozen_heap() -> Iterator[None]:
    """What other tests left behind is not collected on the compile's time, where it would take half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize(
    "pattern",
    [
        "(a{1000}){1000}",
        "(a|b)*a(a|b){24}",
        r"\w{1,1000}",
        r"((\w{1,50}){1,50}){1,50}",
        "((a|b)?c?){1000}",
        "(.*a.{0,1000}b)+",
        ".{1,100}(ab)?.{1,1000}",
        r"(?!.*\w{1,300}x)\w{1,300}",
        "a{50000}",
    ],
)
def test_a_hostile_pattern_ends_in_time(pattern):
    node = parse_fullmatch(pattern)
    began = time.thread_time()
    with pytest.raises(CompileLimitExceeded, match="grew past|was not ready in 2 s"):
        regex_dfa(node, Clock())
    assert time.thread_time() - began < 2 + GRACE


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("((a?b?)*c?){200}", ["", "abc", "ba" * 9, "c" * 200], ["d", "c" * 201, "cab" * 201]),
        ("(?=(a|b)*a(a|b){12})(?=(a|b)*b(a|b){13}).*", ["ba" + "a" * 12, "aba" + "b" * 12], ["", "ab" * 6, "a" * 14]),
        (r"(\w+\s?)+", ["a", "a b", "ab c d "], ["", " a", "a  b", "a-b"]),
    ],
)
def test_what_only_looks_hostile_is_taken(pattern, inside, outside):
    """Python's own engine would try for ever, so the texts are sorted by hand."""
    dfa = regex_dfa(parse_fullmatch(pattern), Clock(Limits(seconds=20)))
    assert all(dfa.accepts(text.encode()) for text in inside)
    assert not any(dfa.accepts(text.encode()) for text in outside)


SCHEMAS: dict[str, Any] = {
    "a pattern that repeats a repetition": {"type": "string", "pattern": "^(a{1000}){1000}$"},
    "a pattern that must remember": {"type": "string", "pattern": "(a|b)*a(a|b){24}"},
    "a long string of words": {"type": "string", "pattern": r"^(\w{1,9} )\w{1,1000}x\w{1,1000}$"},
    "a very long string": {"type": "string", "maxLength": 10**9},
    "many items": {"type": "array", "items": {"type": "string"}, "minItems": 99_999, "maxItems": 100_000},
    "many optional members": {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(2000)}},
    "many levels": {
        "$defs": {
            "0": {"type": "null"},
            **{
                f"{i}": {"type": "array", "items": {"$ref": f"#/$defs/{i - 1}"}, "minItems": 1, "maxItems": 2}
                for i in range(1, 3001)
            },
        },
        "$ref": "#/$defs/3000",
    },
    "many that forbid": {"type": "string", "allOf": [{"not": {"pattern": f".*a.{{{i}}}b"}} for i in range(9, 17)]},
    "many items of a kind": {
        "type": "array",
        "items": {"type": "integer"},
        "contains": {"const": 5},
        "minContains": 30,
        "maxItems": 60,
    },
    "many remainders": {"type": "integer", "allOf": [{"multipleOf": prime} for prime in (997, 991, 983)]},
}


@pytest.mark.parametrize("case", SCHEMAS)
def test_a_hostile_schema_ends_in_time(case):
    backend, constraint = AutomatonBackend(all_bytes()), JsonSchema(SCHEMAS[case])
    began = time.thread_time()
    assert not backend.losses(constraint), "what is too large is no loss"
    with pytest.raises(CompileLimitExceeded, match="grew past|was not ready in 2 s"):
        backend.compile(constraint)
    assert time.thread_time() - began < 2 + 2 * GRACE  # checking the schema is not on the clock


def test_schemas_that_only_look_hostile_are_taken():
    backend = AutomatonBackend(all_bytes(), Limits(seconds=20))
    words = [f"{'x' * 30}{i * 7919}" for i in range(50_000)]
    matcher = backend.compile(JsonSchema({"enum": [*words, *range(0, 5000, 3)]})).matcher()
    for text, inside in ((f'"{words[77]}"', True), ('"x"', False), ("333", True), ("334", False)):
        matcher.reset()
        assert (all(map(matcher.accept_token, text.encode())) and matcher.is_completed()) == inside
    deep: Any = {"type": "null"}
    for _ in range(60):
        deep = {"type": "array", "items": deep, "minItems": 1, "maxItems": 1}
    dfa = backend.compile(JsonSchema(deep, "compact")).new_engine()._language.walk.dfa
    assert dfa.accepts(b"[" * 60 + b"null" + b"]" * 60) and not dfa.accepts(b"[" * 59 + b"null" + b"]" * 59)
    assert dfa.language_size() == 1


def test_memory_is_bounded_by_the_states_not_by_the_time():
    node = parse_fullmatch("((a|b)?c?){3000}")  # sets of 3,000 states each
    tracemalloc.start()
    try:
        with pytest.raises(CompileLimitExceeded, match="grew past 10000 states"):
            regex_dfa(node, Clock(Limits(max_states=10_000, seconds=600)))
        assert tracemalloc.get_traced_memory()[1] < 120e6
    finally:
        tracemalloc.stop()


def test_word_lists_end_in_time():
    shared = [f"{'x' * 100}{i:05d}{'y' * (i % 20)}".encode() for i in range(50_000)]
    began = time.thread_time()
    assert words_dfa(shared, Clock(Limits(seconds=20))).language_size() == 50_000
    with pytest.raises(CompileLimitExceeded, match="grew past"):
        words_dfa([(str(i * i) * 40).encode() for i in range(20_000)], Clock())
    assert time.thread_time() - began < 20 + 2 + GRACE


def test_the_time_limit_is_kept_at_every_stage():
    """Wherever the compile is when the time runs out, it stops soon."""
    node = parse_fullmatch(r"(?=\w{1,400})(.*[aeiou]){1,6}")
    for milliseconds in (0, 20, 60, 120, 250, 500, 1000):
        began = time.thread_time()  # of the processor: what else the machine does is not the compile's fault
        with pytest.raises(CompileLimitExceeded, match="was not ready in"):
            regex_dfa(node, Clock(Limits(10**6, milliseconds / 1000)))
        assert time.thread_time() - began < milliseconds / 1000 + 0.5


def test_limits_on_states_are_told():
    with pytest.raises(CompileLimitExceeded, match="grew past 100 states; bound its repetitions"):
        regex_dfa(parse_fullmatch("(a|b)*a(a|b){7}"), Clock(Limits(max_states=100)))
    with pytest.raises(CompileLimitExceeded, match="grew past 400 states"):
        builder = NfaBuilder(Clock(Limits(max_states=100)))
        for _ in range(600):
            builder.state()
    even, third = (regex_dfa(parse_fullmatch(p), Clock()) for p in ("(a{16})*", "(a{17})*"))
    assert byte_dfa.intersection(even, third, Clock()).states == 16 * 17 + 1
    with pytest.raises(CompileLimitExceeded, match="grew past 200 states"):
        byte_dfa.intersection(even, third, Clock(Limits(max_states=200)))


@pytest.mark.parametrize(
    ("pattern", "states"),
    [("[a-z ]{1,1000}", 1002), ("(a?){1000}", 1002), ("(a{1,30}){1,30}", 902), ("a{0,10000}", 10_002)],
)
def test_counted_repetition_is_linear(pattern, states):
    assert regex_dfa(parse_fullmatch(pattern), Clock(Limits(seconds=20))).states == states


def test_optional_parts_share_their_tails():
    """Fifteen nested optional objects: as a plain regex 2.5 MB, as an automaton a chain."""
    pattern = ""
    for name in "abcdefghijklmno":
        pattern = rf'\{{("{name}": [0-9]{{1,3}}(, )?)?({pattern})?\}}'
    assert regex_dfa(parse_fullmatch(pattern), Clock()).states < 500


def test_pieces_of_an_automaton_are_put_together():
    """What other code does with the builder: bytes, ways without a byte, languages, word lists and automata."""
    clock = Clock()
    builder = NfaBuilder(clock)
    start = builder.state()
    opened = builder.state()
    builder.edge(start, 0x5B, 0x5B, opened)  # [
    item = builder.regex(parse_fullmatch("[0-9]+"), opened)
    word = builder.state()
    builder.add_words([b"null", b"nil"], opened, word)
    builder.epsilon(word, item)
    comma = builder.automaton(regex_dfa(parse_fullmatch(", ?"), clock), item)
    builder.epsilon(comma, opened)
    end = builder.state()
    builder.edge(item, 0x5D, 0x5D, end)
    dfa = builder.dfa(start, end)
    for text in ("[1]", "[1, 22,null]", "[nil]"):
        assert dfa.accepts(text.encode())
    for text in ("[]", "[1,]", "[nul]", "1", "[1", "[1]]", "[1 2]"):
        assert not dfa.accepts(text.encode())
    assert bytes(dfa.forced[[dfa.start]].astype("u1")) == b"["


def test_a_language_without_strings():
    dfa = regex_dfa(parse_fullmatch("(?!a)a"), Clock())
    assert (dfa.states, dfa.start, dfa.language_size(), dfa.accepts(b"")) == (1, 0, 0, False)
    everything = byte_dfa.complement(dfa, Clock())
    assert everything.accepts("é".encode()) and not everything.accepts(b"\xe9")
    assert byte_dfa.union(dfa, everything, Clock()).states == everything.states == byte_dfa.utf8().states


def test_time_between_the_losses_and_the_compile_does_not_count(monkeypatch):
    backend, constraint = AutomatonBackend(all_bytes()), JsonSchema({"type": "boolean"})
    assert not backend.losses(constraint)
    later = time.thread_time() + 60
    monkeypatch.setattr(time, "thread_time", lambda: later)
    assert backend.compile(constraint).matcher().validate_tokens(b"true") == 4
