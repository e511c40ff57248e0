"""Masks against brute force: every token of the vocabulary, byte by byte, through a matcher that is not ours.

For regular expressions ``regex``'s partial matching (test_automaton.py has outlines-core's automata), for JSON Schemas
llguidance over single bytes. Where a vocabulary cannot write every byte, tokens behind which it can no longer come to
the end are left out by hand.
"""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from random import Random

import pytest
import regex as partial
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from hf_guided.automaton.byte_dfa import ByteDfa
from hf_guided.backends.automaton import AutomatonBackend, AutomatonEngine
from hf_guided.backends.base import Matcher
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.constraints.values import JsonSchema, Regex
from hf_guided.errors import CompileLimitExceeded, ConstraintError, UnwritableConstraint
from hf_guided.regex import NOTHING, parse_fullmatch
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.schema_examples import DRAFTS, Writer
from tests.property.test_regex import plain_patterns
from tests.toy import all_bytes

BYTES = LLGuidanceBackend(all_bytes())
EVERY = {"tiny": draw.tiny, "sentencepiece": draw.sentencepiece, "without bytes": draw.without_bytes}
many = settings(max_examples=repeats(25, 100), suppress_health_check=[HealthCheck.too_slow])
few = settings(
    max_examples=repeats(5, 10), suppress_health_check=[HealthCheck.too_slow]
)  # a state of the large vocabulary costs 32,000 matches


def text_tokens(vocabulary: Vocabulary) -> list[tuple[int, bytes]]:
    stops = vocabulary.stop_token_ids
    return [(i, data) for i, data in enumerate(vocabulary.token_bytes) if data and i not in stops]


def automaton_of(matcher: Matcher) -> tuple[ByteDfa, int]:
    """The automaton, and the state that the matcher is in."""
    engine = matcher._engine
    assert isinstance(engine, AutomatonEngine)
    return engine._language.walk.dfa, engine._states[-1]


def can_end(dfa: ByteDfa, tokens: list[tuple[int, bytes]]) -> set[int]:
    """States from which some tokens lead to the end, found without a trie."""
    pieces = sorted({data for _, data in tokens})
    after = {state: {dfa.advance(state, data) for data in pieces} for state in range(1, dfa.states)}
    found = {state for state in after if dfa.accepting[state]}
    while more := {state for state, leads in after.items() if state not in found and leads & found}:
        found |= more
    return found


def wayless(matcher: Matcher, name: str, candidates: list[int], vocabulary: Vocabulary) -> set[int]:
    """Of tokens that fit, those that no text of this vocabulary goes on from."""
    if name != "without bytes":
        return set()
    dfa, state = automaton_of(matcher)
    assume(dfa.states < 300)  # tried one by one
    ends = can_end(dfa, text_tokens(vocabulary))
    return {one for one in candidates if dfa.advance(state, vocabulary.token_bytes[one] or b"") not in ends}


@cache
def whole_texts(vocabulary: Vocabulary) -> dict[int, str]:
    """The tokens that ``regex`` can judge.

    One that ends inside a character is no text (outlines-core's automata judge those); a few characters are letters to
    ``regex`` and not to ``re``, whose classes patterns mean.
    """
    found = {}
    for token_id, data in text_tokens(vocabulary):
        with suppress(UnicodeDecodeError):
            if all(map(same_classes, data.decode())):
                found[token_id] = data.decode()
    return found


@cache
def same_classes(character: str) -> bool:
    return all(bool(re.match(one, character)) == bool(partial.match(one, character)) for one in (r"\w", r"\d", r"\s"))


def check_partial(name: str, pattern: str, random: Random) -> None:
    vocabulary = EVERY[name]()
    try:
        assume(parse_fullmatch(pattern) != NOTHING)
        matcher = AutomatonBackend(vocabulary).compile(Regex(pattern)).matcher()
    except UnwritableConstraint:
        return
    compiled = partial.compile(pattern)
    whole = whole_texts(vocabulary)
    text = ""
    for _ in range(4):
        fits = [one for one, data in whole.items() if compiled.fullmatch(text + data, partial=True)]
        expected = set(fits) - wayless(matcher, name, fits, vocabulary)
        allowed = draw.allowed(matcher)
        assert set(allowed) & whole.keys() == expected, f"behind {text!r}"
        assert matcher.is_completed() == bool(compiled.fullmatch(text))
        assert allowed, f"a dead end behind {text!r}"
        if not expected:
            return
        token_id = random.choice(sorted(expected))
        assert matcher.accept_token(token_id)
        text += whole[token_id]


@pytest.mark.parametrize("name", ["tiny", "without bytes"])
@many
@given(pattern=plain_patterns, random=st.randoms(use_true_random=False))
def test_a_mask_is_what_partial_matching_gives(name: str, pattern: str, random: Random) -> None:
    check_partial(name, pattern, random)


@few
@given(plain_patterns, st.randoms(use_true_random=False))
def test_a_mask_of_a_large_vocabulary_is_what_partial_matching_gives(pattern: str, random: Random) -> None:
    check_partial("sentencepiece", pattern, random)


def check_schema(name: str, schema: object, whitespace: str, random: Random) -> None:
    vocabulary = EVERY[name]()
    constraint = JsonSchema(schema, whitespace=whitespace)
    try:
        matcher = AutomatonBackend(vocabulary).compile(constraint).matcher()
        by_bytes = BYTES.compile(constraint).matcher()
    except (ConstraintError, CompileLimitExceeded):
        return
    tokens = text_tokens(vocabulary)
    taken = []
    for _ in range(6):
        fits = [one for one, data in tokens if by_bytes.validate_tokens(list(data)) == len(data)]
        expected = set(fits) - wayless(matcher, name, fits, vocabulary)
        if matcher.is_completed():
            expected |= set(vocabulary.stop_token_ids)
        assert set(draw.allowed(matcher)) == expected, f"{schema} behind {vocabulary.decode_bytes(taken)!r}"
        assert matcher.is_completed() == by_bytes.is_completed()
        assert expected, f"a dead end: {schema} behind {vocabulary.decode_bytes(taken)!r}"
        token_id = random.choice(sorted(expected))
        if token_id in vocabulary.stop_token_ids:
            break
        assert matcher.accept_token(token_id)
        assert all(map(by_bytes.accept_token, vocabulary.token_bytes[token_id] or b""))
        taken.append(token_id)


whitespaces = st.sampled_from(["flexible", "compact"])


@pytest.mark.parametrize("name", ["tiny", "without bytes"])
@many
@given(random=st.randoms(use_true_random=False), draft=st.sampled_from(sorted(DRAFTS)), whitespace=whitespaces)
def test_a_mask_of_a_schema_is_what_llguidance_takes(name: str, random: Random, draft: int, whitespace: str) -> None:
    check_schema(name, Writer(random, draft).document(), whitespace, random)


@pytest.mark.parametrize("name", ["tiny", "without bytes"])
@many
@given(schema=draw.schemas, random=st.randoms(use_true_random=False), whitespace=whitespaces)
def test_a_mask_of_a_bounded_schema_is_what_llguidance_takes(
    name: str, schema: dict, random: Random, whitespace: str
) -> None:
    check_schema(name, schema, whitespace, random)


# A state of the large vocabulary costs 32,000 matches.
@pytest.mark.parametrize("examples", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_a_mask_of_a_large_vocabulary_is_what_llguidance_takes(examples: int) -> None:
    @settings(many, max_examples=examples)
    @given(draw.schemas, st.randoms(use_true_random=False), whitespaces)
    def check(schema: dict, random: Random, whitespace: str) -> None:
        check_schema("sentencepiece", schema, whitespace, random)

    check()
