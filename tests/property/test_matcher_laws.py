"""Laws 1, 2 and 4 for every backend: masks against brute force, rollback and fork, jump-forward, finished outputs."""

from __future__ import annotations

import json
import random

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hf_guided.constraints import JsonSchema
from tests.property import strategies as draw
from tests.property.strategies import Case

cases = st.deferred(lambda: st.sampled_from(draw.cases(draw.tiny())))
law = settings(max_examples=120, suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])


def test_every_backend_and_constraint_takes_part():
    taken = {(one.backend, one.constraint.kind) for one in (case.compiled for case in draw.cases(draw.tiny()))}
    kinds = {
        "llguidance": {"regex", "choice", "json_schema", "json_object", "grammar"},
        "xgrammar": {"regex", "choice", "json_schema", "json_object", "grammar", "structural_tag"},
        "lm_format_enforcer": {"regex", "choice", "json_schema", "json_object"},
        "automaton": {"regex", "choice", "json_schema"},
        "outlines": {"regex", "choice"},
    }
    assert taken == {(name, kind) for name, some in kinds.items() for kind in some}


@law
@given(cases, draw.picks)
def test_the_mask_is_what_trying_every_token_gives(case: Case, picks: list[int]):
    one = case.compiled
    matcher = one.matcher()
    draw.walk(matcher, picks)
    before = draw.view(matcher)
    candidates = range(-2, one.vocabulary.padded_size + 3)
    by_trying = [token_id for token_id in candidates if matcher.fork().accept_token(token_id)]
    assert by_trying == before[0]
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


@pytest.mark.parametrize("name", draw.SCHEMA_BACKENDS)
@settings(max_examples=60)
@given(schema=draw.schemas, whitespace=st.sampled_from(["flexible", "compact"]), seed=st.integers(0, 10_000))
def test_finished_outputs_are_valid(name: str, schema: dict, whitespace: str, seed: int):
    constraint = JsonSchema(schema, whitespace=whitespace)
    engine = draw.backend(name, draw.tiny())
    if engine.losses(constraint):
        return
    matcher = engine.compile(constraint).matcher()
    rng = random.Random(seed)
    taken = draw.walk(matcher, [rng.randrange(10_000) for _ in range(400)])
    if not matcher.is_terminated():
        return
    text = draw.tiny().decode_bytes(taken).decode()
    value = json.loads(text)
    jsonschema.validate(value, schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    if whitespace == "compact":
        assert draw.is_laid_out_as_json_dumps_does(text)
