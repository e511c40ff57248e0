"""Laws 1 to 4: masks equal brute force; rollback, fork and jump-forward; paths to the end; finished outputs are valid.

For every backend with a small vocabulary; for the automaton also with a large one, and one without byte tokens.
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

from hf_guided.backends.matcher import Matcher
from hf_guided.constraints.values import Choice, Constraint, JsonObject, JsonSchema, Regex
from hf_guided.errors import UnwritableConstraint
from hf_guided.vocabulary.tokens import Vocabulary
from tests.effort import repeats
from tests.property import strategies as draw
from tests.property.strategies import Case

cases = st.deferred(lambda: st.sampled_from((*draw.cases(draw.tiny()), *draw.native_cases())))
judged_by_python = st.deferred(
    lambda: st.sampled_from(
        [case for case in draw.native_cases() if case.compiled.constraint.kind not in ("structural_tag", "grammar")]
    )
)
whitespaces = st.sampled_from(["flexible", "compact"])
law = settings(max_examples=repeats(60, 120), suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


def test_cases_contain_every_backend_and_kind_of_constraint():
    pairs = {(case.compiled.backend, case.compiled.constraint.kind) for case in draw.cases(draw.tiny())}
    kinds = {
        "llguidance": {"regex", "choice", "json_schema", "json_object", "grammar"},
        "xgrammar": {"regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"},
        "lm_format_enforcer": {"regex", "choice"},
        "outlines": {"regex", "choice"},
        "native": {"regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"},
    }
    assert pairs == {(name, kind) for name, supported in kinds.items() for kind in supported}


@law
@given(cases, draw.picks, st.randoms(use_true_random=False))
def test_mask_equals_accepting_each_token(case: Case, picks: list[int], rng: random.Random):
    compiled = case.compiled
    matcher = compiled.matcher()
    draw.walk(matcher, picks)
    before = draw.view(matcher)
    candidates = list(range(-2, compiled.vocabulary.padded_size + 3))
    if len(candidates) > 1000:  # test_regex_network.py tries all of them
        some_allowed = rng.sample(before[0], min(300, len(before[0])))
        candidates = sorted({*rng.sample(candidates, 300), *some_allowed, *compiled.vocabulary.stop_token_ids})
    accepted = [token_id for token_id in candidates if matcher.fork().accept_token(token_id)]
    assert accepted == sorted({*before[0]} & {*candidates})
    for token_id in candidates:
        if token_id not in accepted:
            assert not matcher.accept_token(token_id)
            assert matcher.validate_tokens([token_id]) == 0
        else:
            assert matcher.validate_tokens([token_id]) == 1
    assert draw.view(matcher) == before, "a refused or validated token changed the matcher"


@law
@given(cases, draw.picks)
def test_masks_never_allow_special_tokens_and_stop_tokens_only_at_the_end(case: Case, picks: list[int]):
    compiled = case.compiled
    matcher = compiled.matcher()
    draw.walk(matcher, picks)
    vocabulary = compiled.vocabulary
    stops = set(vocabulary.stop_token_ids)
    tokens = set(draw.allowed(matcher))
    assert tokens & stops == (stops if matcher.is_completed() else set())
    assert all(vocabulary.is_text(token_id) for token_id in tokens - stops)
    if tokens & stops and not matcher.is_terminated():
        assert matcher.accept_token(min(stops))
        tokens = set(draw.allowed(matcher))
    if matcher.is_terminated():
        assert tokens == stops
        refused = set(range(vocabulary.padded_size)) - stops
        assert not any(matcher.accept_token(token_id) for token_id in refused)


@law
@given(cases, draw.picks, st.data())
def test_rollback_restores_the_state_before_the_tokens(case: Case, picks: list[int], data: st.DataObject):
    compiled = case.compiled
    matcher = compiled.matcher()
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
@given(st.deferred(lambda: st.sampled_from(draw.cases(draw.single_bytes()))), draw.picks)
def test_jump_forward_bytes_are_the_only_continuation(case: Case, picks: list[int]):
    compiled = case.compiled
    matcher = compiled.matcher()
    draw.walk(matcher, picks)
    for byte in matcher.jump_forward_bytes():
        # At each byte, the mask allows no stop token and no other byte.
        assert draw.allowed(matcher) == [byte]
        assert matcher.accept_token(byte)


@law
@given(cases, draw.picks)
def test_every_allowed_token_agrees_with_jump_forward(case: Case, picks: list[int]):
    compiled = case.compiled
    matcher = compiled.matcher()
    draw.walk(matcher, picks)
    forced = matcher.jump_forward_bytes()
    for token_id in draw.allowed(matcher) if forced else ():
        data = compiled.vocabulary.token_bytes[token_id]
        assert data is not None and (data.startswith(forced) or forced.startswith(data))


def shortest_completion(matcher: Matcher, rng: random.Random) -> list[int]:
    """Accept tokens up to the end, each of which reduces the number of tokens needed."""
    taken = []
    while not matcher.is_completed():
        needed = matcher._engine.min_tokens_to_finish()
        tokens = draw.allowed(matcher)
        assert tokens, "a dead end"
        rng.shuffle(tokens)
        nearer = next((token_id for token_id in tokens if _reduces_needed_tokens(matcher, token_id, needed)), None)
        assert nearer is not None, "no token leads to the end"
        assert matcher.accept_token(nearer)
        taken.append(nearer)
    assert matcher._engine.min_tokens_to_finish() == 1
    return taken


def _reduces_needed_tokens(matcher: Matcher, token_id: int, needed: int) -> bool:
    assert matcher.accept_token(token_id)
    nearer = matcher._engine.min_tokens_to_finish() < needed
    matcher.rollback(1)
    return nearer


def is_valid(text: str, constraint: Constraint) -> bool:
    """Whether a text satisfies the constraint, by `re`, membership or `jsonschema`."""
    if isinstance(constraint, Regex):
        return re.fullmatch(constraint.pattern, text) is not None
    if isinstance(constraint, Choice):
        return text in constraint.options
    if isinstance(constraint, JsonObject):
        return isinstance(json.loads(text), dict)
    assert isinstance(constraint, JsonSchema)
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    return jsonschema.Draft202012Validator(constraint.schema, format_checker=checker).is_valid(json.loads(text))


@law
@given(judged_by_python, draw.picks, st.randoms(use_true_random=False))
def test_every_reachable_state_can_be_completed(case: Case, picks: list[int], rng: random.Random):
    compiled = case.compiled
    matcher = compiled.matcher()
    taken = draw.walk(matcher, picks)
    assert len(taken) == len(picks), "a dead end"
    if not matcher.is_terminated():
        taken += shortest_completion(matcher, rng)
        assert matcher.accept_token(compiled.vocabulary.stop_token_ids[0])
    text = compiled.vocabulary.decode_bytes([token_id for token_id in taken if compiled.vocabulary.is_text(token_id)])
    assert is_valid(text.decode(), compiled.constraint)


@pytest.mark.parametrize("name", draw.SCHEMA_BACKENDS)
@settings(max_examples=repeats(10, 60))
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
def test_outputs_of_the_native_engine_are_valid_when_completed_from_any_state(
    make: Callable[[], Vocabulary], schema: dict, whitespace: str, picks: list[int], rng: random.Random
):
    constraint = JsonSchema(schema, whitespace=whitespace)
    engine = draw.backend("native", make())
    if engine.losses(constraint):
        return
    try:
        matcher = engine.compile(constraint).matcher()
    except UnwritableConstraint:
        return
    taken = draw.walk(matcher, picks)
    check_finished(taken if matcher.is_terminated() else taken + shortest_completion(matcher, rng), constraint, make())


def check_finished(taken: list[int], constraint: JsonSchema, vocabulary: Vocabulary) -> None:
    text = vocabulary.decode_bytes(taken).decode()
    assert is_valid(text, constraint)
    if constraint.whitespace == "compact":
        assert draw.is_laid_out_as_json_dumps_does(text)
