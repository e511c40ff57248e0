"""Masks equal brute force, which tries every token of the vocabulary, byte by byte, in another library's matcher.

For regular expressions it is the partial matching of ``regex`` (test_automaton.py uses the automata of outlines-core),
for JSON Schemas llguidance over single bytes. If a vocabulary cannot write every byte, the oracle also removes tokens
after which no text of the vocabulary reaches the end.
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
from hf_guided.backends.llguidance import LLGuidanceBackend
from hf_guided.backends.matcher import Matcher
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
VOCABULARIES = {"tiny": draw.tiny, "sentencepiece": draw.sentencepiece, "without bytes": draw.without_bytes}
many = settings(max_examples=repeats(25, 100), suppress_health_check=[HealthCheck.too_slow])
few = settings(
    max_examples=repeats(5, 10), suppress_health_check=[HealthCheck.too_slow]
)  # a state of the large vocabulary costs 32,000 matches


def text_tokens(vocabulary: Vocabulary) -> list[tuple[int, bytes]]:
    stops = vocabulary.stop_token_ids
    return [(i, data) for i, data in enumerate(vocabulary.token_bytes) if data and i not in stops]


def automaton_of(matcher: Matcher) -> tuple[ByteDfa, int]:
    """The automaton, and the current state of the matcher."""
    engine = matcher._engine
    assert isinstance(engine, AutomatonEngine)
    return engine._language.walk.dfa, engine._states[-1]


def can_end(dfa: ByteDfa, tokens: list[tuple[int, bytes]]) -> set[int]:
    """The states from which tokens lead to the end, computed without a trie."""
    pieces = sorted({data for _, data in tokens})
    after = {state: {dfa.advance(state, data) for data in pieces} for state in range(1, dfa.states)}
    ending = {state for state in after if dfa.accepting[state]}
    while more := {state for state, leads in after.items() if state not in ending and leads & ending}:
        ending |= more
    return ending


def dead_end_tokens(matcher: Matcher, name: str, candidates: list[int], vocabulary: Vocabulary) -> set[int]:
    """The candidates after which no text of this vocabulary reaches the end."""
    if name != "without bytes":
        return set()
    dfa, state = automaton_of(matcher)
    assume(dfa.states < 300)  # brute force over all states
    ends = can_end(dfa, text_tokens(vocabulary))
    return {token for token in candidates if dfa.advance(state, vocabulary.token_bytes[token] or b"") not in ends}


@cache
def comparable_texts(vocabulary: Vocabulary) -> dict[int, str]:
    """The tokens that ``regex`` can judge.

    Tokens that end inside a character are no text (the automata of outlines-core cover these). A few characters are
    letters for ``regex`` but not for ``re``, whose classes our patterns use.
    """
    texts = {}
    for token_id, data in text_tokens(vocabulary):
        with suppress(UnicodeDecodeError):
            if all(map(same_classes, data.decode())):
                texts[token_id] = data.decode()
    return texts


@cache
def same_classes(character: str) -> bool:
    classes = (r"\w", r"\d", r"\s")
    return all(bool(re.match(each, character)) == bool(partial.match(each, character)) for each in classes)


def check_partial(name: str, pattern: str, random: Random) -> None:
    vocabulary = VOCABULARIES[name]()
    try:
        assume(parse_fullmatch(pattern) != NOTHING)
        matcher = AutomatonBackend(vocabulary).compile(Regex(pattern)).matcher()
    except UnwritableConstraint:
        return
    compiled = partial.compile(pattern)
    whole = comparable_texts(vocabulary)
    text = ""
    for _ in range(4):
        # Where they disagree, re is right: for regex, (?:b|[^a]|(?i:b)) does not match A.
        judged = {
            token
            for token, data in whole.items()
            if bool(compiled.fullmatch(text + data)) == bool(re.fullmatch(pattern, text + data))
        }
        fits = [token for token in judged if compiled.fullmatch(text + whole[token], partial=True)]
        expected = set(fits) - dead_end_tokens(matcher, name, fits, vocabulary)
        allowed = draw.allowed(matcher)
        assert set(allowed) & judged == expected, f"after {text!r}"
        assert matcher.is_completed() == bool(compiled.fullmatch(text))
        assert allowed, f"a dead end after {text!r}"
        if not expected:
            return
        token_id = random.choice(sorted(expected))
        assert matcher.accept_token(token_id)
        text += whole[token_id]


@pytest.mark.parametrize("name", ["tiny", "without bytes"])
@many
@given(pattern=plain_patterns, random=st.randoms(use_true_random=False))
def test_masks_equal_partial_matching(name: str, pattern: str, random: Random) -> None:
    check_partial(name, pattern, random)


@few
@given(plain_patterns, st.randoms(use_true_random=False))
def test_masks_of_a_large_vocabulary_equal_partial_matching(pattern: str, random: Random) -> None:
    check_partial("sentencepiece", pattern, random)


def check_schema(name: str, schema: object, whitespace: str, random: Random) -> None:
    vocabulary = VOCABULARIES[name]()
    constraint = JsonSchema(schema, whitespace=whitespace)
    try:
        matcher = AutomatonBackend(vocabulary).compile(constraint).matcher()
        by_bytes = BYTES.compile(constraint).matcher()
    except (ConstraintError, CompileLimitExceeded):
        return
    tokens = text_tokens(vocabulary)
    taken = []
    for _ in range(6):
        fits = [token for token, data in tokens if by_bytes.validate_tokens(list(data)) == len(data)]
        expected = set(fits) - dead_end_tokens(matcher, name, fits, vocabulary)
        if matcher.is_completed():
            expected |= set(vocabulary.stop_token_ids)
        assert set(draw.allowed(matcher)) == expected, f"{schema} after {vocabulary.decode_bytes(taken)!r}"
        assert matcher.is_completed() == by_bytes.is_completed()
        assert expected, f"a dead end: {schema} after {vocabulary.decode_bytes(taken)!r}"
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
def test_masks_of_random_schemas_equal_llguidance(name: str, random: Random, draft: int, whitespace: str) -> None:
    check_schema(name, Writer(random, draft).document(), whitespace, random)


@pytest.mark.parametrize("name", ["tiny", "without bytes"])
@many
@given(schema=draw.schemas, random=st.randoms(use_true_random=False), whitespace=whitespaces)
def test_masks_of_bounded_schemas_equal_llguidance(name: str, schema: dict, random: Random, whitespace: str) -> None:
    check_schema(name, schema, whitespace, random)


# A state of the large vocabulary costs 32,000 matches.
@pytest.mark.parametrize("examples", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_masks_of_a_large_vocabulary_equal_llguidance(examples: int) -> None:
    @settings(many, max_examples=examples)
    @given(draw.schemas, st.randoms(use_true_random=False), whitespaces)
    def check(schema: dict, random: Random, whitespace: str) -> None:
        check_schema("sentencepiece", schema, whitespace, random)

    check()
