"""Laws 1 to 4: masks against brute force, rollback and fork, jump-forward, ways to the end, finished outputs.

For every backend on a small vocabulary, for the automaton on a large one and on one without bytes too.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.backends.base import Matcher
from hf_guided.constraints.values import Choice, Constraint, JsonSchema, Regex
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.strategies import Case

cases = st.deferred(lambda: st.sampled_from((*draw.cases(draw.tiny()), *draw.cases_of_the_automaton())))
of_the_automaton = st.deferred(lambda: st.sampled_from(draw.cases_of_the_automaton()))
whitespaces = st.sampled_from(["flexible", "compact"])
law = settings(max_examples=repeats(30, 120), suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


def test_every_backend_and_constraint_takes_part():
    taken = {(one.backend, one.constraint.kind) for one in (case.compiled for case in draw.cases(draw.tiny()))}
    kinds = {
        "llguidance": {"regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"},
        "xgrammar": {"regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"},
        "lm_format_enforcer": {"regex", "choice", "json_schema", "json_object"},
        "automaton": {"regex", "choice", "json_schema"},
        "outlines": {"regex", "choice"},
    }
    assert taken == {(name, kind) for name, some in kinds.items() for kind in some}


@law
@given(cases, draw.picks, st.randoms(use_true_random=False))
def test_the_mask_is_what_trying_every_token_gives(case: Case, picks: list[int], rng: random.Random):
    one = case.compiled
    matcher = one.matcher()
    draw.walk(matcher, picks)
    before = draw.view(matcher)
    candidates = list(range(-2, one.vocabulary.padded_size + 3))
    if len(candidates) > 1000:  # all of them are tried in test_token_masks.py
        some_allowed = rng.sample(before[0], min(300, len(before[0])))
        candidates = sorted({*rng.sample(candidates, 300), *some_allowed, *one.vocabulary.stop_token_ids})
    by_trying = [token_id for token_id in candidates if matcher.fork().accept_token(token_id)]
    assert by_trying == sorted({*before[0]} & {*candidates})
    for token_id in candidates:
        if token_id not in by_trying:
            assert not matcher.accept_token(token_id)
            assert matcher.validate_tokens([token_id]) == 0
        else:
            assert matcher.validate_tokens([token_id]) == 1
    assert draw.view(matcher) == before, "a refused or validated token moved the matcher"


@law
@given(cases, draw.picks)
def test_special_tokens_never_and_stop_tokens_exactly_at_the_end(case: Case, picks: list[int]):
    one = case.compiled
    matcher = one.matcher()
    draw.walk(matcher, picks)
    vocabulary = one.vocabulary
    stops = set(vocabulary.stop_token_ids)
    tokens = set(draw.allowed(matcher))
    assert tokens & stops == (stops if matcher.is_completed() else set())
    assert all(vocabulary.is_text(token_id) for token_id in tokens - stops)
    if matcher.is_terminated():
        assert tokens == stops
        refused = set(range(vocabulary.padded_size)) - stops
        assert not any(matcher.accept_token(token_id) for token_id in refused)


@law
@given(cases, draw.picks, st.data())
def test_rollback_takes_back_exactly_what_was_accepted(case: Case, picks: list[int], data: st.DataObject):
    one = case.compiled
    matcher = one.matcher()
    views = [draw.view(matcher)]
    taken = []
    for pick in picks:
        taken += draw.walk(matcher, [pick])
        if len(taken) < len(views):
            break  # a dead end
        views.append(draw.view(matcher))
    count = data.draw(st.integers(0, len(taken)))
    matcher.rollback(count)
    assert draw.view(matcher) == views[len(taken) - count]
    with pytest.raises(ValueError, match="cannot roll back"):
        matcher.rollback(len(taken) - count + 1)
    assert matcher.validate_tokens(taken[len(taken) - count :]) == count
    assert draw.view(matcher) == views[len(taken) - count]
    assert all(matcher.accept_token(token_id) for token_id in taken[len(taken) - count :])
    assert draw.view(matcher) == views[-1]
    matcher.reset()
    assert draw.view(matcher) == views[0]


@law
@given(cases, draw.picks, draw.picks)
def test_a_fork_is_independent(case: Case, first: list[int], second: list[int]):
    one = case.compiled
    matcher = one.matcher()
    taken = draw.walk(matcher, first)
    before = draw.view(matcher)
    twin = matcher.fork()
    assert draw.view(twin) == before
    more = draw.walk(twin, second)
    assert draw.view(matcher) == before
    after = draw.view(twin)
    matcher.rollback(len(taken))
    assert draw.view(twin) == after
    twin.rollback(len(more))
    assert draw.view(twin) == before


@law
@given(st.deferred(lambda: st.sampled_from(draw.cases(draw.single_bytes()))), draw.picks)
def test_jump_forward_is_true_of_every_continuation(case: Case, picks: list[int]):
    one = case.compiled
    matcher = one.matcher()
    draw.walk(matcher, picks)
    for byte in matcher.jump_forward_bytes():
        # Byte by byte: no stop token, and no other byte.
        assert draw.allowed(matcher) == [byte]
        assert matcher.accept_token(byte)


@law
@given(cases, draw.picks)
def test_every_allowed_token_agrees_with_jump_forward(case: Case, picks: list[int]):
    one = case.compiled
    matcher = one.matcher()
    draw.walk(matcher, picks)
    forced = matcher.jump_forward_bytes()
    for token_id in draw.allowed(matcher) if forced else ():
        data = one.vocabulary.token_bytes[token_id]
        assert data is not None and (data.startswith(forced) or forced.startswith(data))


def shortest_way(matcher: Matcher, rng: random.Random) -> list[int]:
    """Finish by tokens of which each is one nearer to the end."""
    taken = []
    while not matcher.is_completed():
        needed = matcher._engine.min_tokens_to_finish()
        tokens = draw.allowed(matcher)
        assert tokens, "a dead end"
        rng.shuffle(tokens)
        nearer = next((token_id for token_id in tokens if _comes_nearer(matcher, token_id, needed)), None)
        assert nearer is not None, "no token leads to the end"
        assert matcher.accept_token(nearer)
        taken.append(nearer)
    assert matcher._engine.min_tokens_to_finish() == 1
    return taken


def _comes_nearer(matcher: Matcher, token_id: int, needed: int) -> bool:
    assert matcher.accept_token(token_id)
    nearer = matcher._engine.min_tokens_to_finish() < needed
    matcher.rollback(1)
    return nearer


def is_valid(text: str, constraint: Constraint) -> bool:
    """Decided by what is not ours."""
    if isinstance(constraint, Regex):
        return re.fullmatch(constraint.pattern, text) is not None
    if isinstance(constraint, Choice):
        return text in constraint.options
    assert isinstance(constraint, JsonSchema)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(constraint.schema, format_checker=checker).is_valid(json.loads(text))


@law
@given(of_the_automaton, draw.picks, st.randoms(use_true_random=False))
def test_from_everywhere_there_is_a_way_to_the_end(case: Case, picks: list[int], rng: random.Random):
    one = case.compiled
    matcher = one.matcher()
    taken = draw.walk(matcher, picks)
    assert len(taken) == len(picks), "a dead end"
    if not matcher.is_terminated():
        taken += shortest_way(matcher, rng)
        assert matcher.accept_token(one.vocabulary.stop_token_ids[0])
    text = one.vocabulary.decode_bytes([one_id for one_id in taken if one.vocabulary.is_text(one_id)])
    assert is_valid(text.decode(), one.constraint)


@pytest.mark.parametrize("name", draw.SCHEMA_BACKENDS)
@settings(max_examples=repeats(15, 60))
@given(schema=draw.schemas, whitespace=whitespaces, seed=st.integers(0, 10_000))
def test_finished_outputs_are_valid(name: str, schema: dict, whitespace: str, seed: int):
    constraint = JsonSchema(schema, whitespace=whitespace)
    engine = draw.backend(name, draw.tiny())
    if engine.losses(constraint):
        return
    matcher = engine.compile(constraint).matcher()
    rng = random.Random(seed)
    taken = draw.walk(matcher, [rng.randrange(10_000) for _ in range(400)])
    if matcher.is_terminated():
        check_finished(taken, constraint, draw.tiny())


@pytest.mark.parametrize("make", [draw.tiny, draw.sentencepiece, draw.without_bytes])
@settings(max_examples=repeats(20, 40))
@given(schema=draw.schemas, whitespace=whitespaces, picks=draw.picks, rng=st.randoms(use_true_random=False))
def test_outputs_of_the_automaton_are_valid_wherever_they_are_finished(
    make: Callable[[], Vocabulary], schema: dict, whitespace: str, picks: list[int], rng: random.Random
):
    constraint = JsonSchema(schema, whitespace=whitespace)
    engine = draw.backend("automaton", make())
    if engine.losses(constraint):
        return
    try:
        matcher = engine.compile(constraint).matcher()
    except UnwritableConstraint:
        return
    taken = draw.walk(matcher, picks)
    check_finished(taken if matcher.is_terminated() else taken + shortest_way(matcher, rng), constraint, make())


def check_finished(taken: list[int], constraint: JsonSchema, vocabulary: Vocabulary) -> None:
    text = vocabulary.decode_bytes(taken).decode()
    assert is_valid(text, constraint)
    if constraint.whitespace == "compact":
        assert draw.is_laid_out_as_json_dumps_does(text)
