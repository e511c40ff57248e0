"""Requests that the manager's device masks get the tokens of the plain loop, beside those that the host masks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from transformers.generation.continuous_batching.requests import RequestState

import hf_guided as hg
from hf_guided.hf.continuous_batching.compat import first_processor
from hf_guided.hf.continuous_batching.device_masks import DeviceRequestMasks
from hf_guided.hf.device.request_states import RequestStates
from tests.integration.test_continuous_batching import (
    CASES,
    CODE,
    SCHEMA,
    add,
    alone,
    guide,
    is_code,
    model,
    old_objects_aside,
    prompt,
    results,
    running,
    text_of,
    unstarted,
)

__all__ = ["old_objects_aside"]
AUTOMATON = {"backend": "automaton"}


@contextmanager
def on_device(name: str = "demo", **config: Any) -> Iterator[tuple[Any, DeviceRequestMasks]]:
    manager = guide(name).attach(unstarted(name, **config), device_lane=True)
    masks = first_processor(manager)
    assert isinstance(masks, DeviceRequestMasks)
    with running(manager):
        yield manager, masks


@pytest.mark.parametrize("name", ["demo", "tiny_byte_level"])
def test_each_request_gets_the_tokens_that_it_gets_alone(name: str) -> None:
    """Regular constraints on the device; a grammar and another engine's on the host; free ones; more than a batch."""
    prompts = [prompt(case.length, name, seed) for seed, case in enumerate(CASES)]
    with on_device(name) as (manager, masks):
        ids = []
        for number, (ids_of_prompt, case) in enumerate(zip(prompts, CASES, strict=True)):
            backend = "llguidance" if isinstance(case.constraint, hg.Grammar) or number == 4 else "automaton"
            chosen = {} if case.constraint is None else {"backend": backend}
            ids.append(add(manager, ids_of_prompt, case.constraint, max_new_tokens=case.max_new_tokens, **chosen))
        outputs = results(manager, set(ids))
    assert masks.host_reason == "" and masks.stats.device_steps > 0
    for request_id, case, ids_of_prompt in zip(ids, CASES, prompts, strict=True):
        token_ids = outputs[request_id].generated_tokens
        assert token_ids == alone(ids_of_prompt, case.constraint, case.max_new_tokens, name), case
        assert outputs[request_id].error is None
        if case.constraint is not None:
            assert case.is_good(text_of(token_ids, name))


def test_the_tokens_stay_when_requests_give_back_their_cache_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    anew = []
    begin_anew = RequestState.create_equivalent_initial_request

    def noted(state: RequestState) -> RequestState:
        anew.append(len(state.generated_tokens))
        return begin_anew(state)

    monkeypatch.setattr(RequestState, "create_equivalent_initial_request", noted)
    constraint = hg.Regex("([a-i][0-9][j-z]){10,}!")
    prompts = [prompt(6, seed=seed) for seed in range(6)]
    with on_device(room={"num_blocks": 6, "page_size": 16, "allow_block_sharing": False}) as (manager, _):
        ids = [add(manager, ids, constraint, **AUTOMATON) for ids in prompts]
        outputs = results(manager, set(ids))
    assert any(anew)
    assert [outputs[one].generated_tokens for one in ids] == [alone(ids, constraint, 40) for ids in prompts]


def test_return_sequences_are_independent() -> None:
    config = {"do_sample": True, "temperature": 3.0, "num_return_sequences": 4}
    with on_device(**config) as (manager, masks):
        asked = add(manager, prompt(9, seed=1), hg.Regex(CODE), **AUTOMATON)
        outputs = results(manager, {asked, *(f"{asked}__child#{i}" for i in range(3))})
    codes = {text_of(output.generated_tokens) for output in outputs.values()}
    assert len(codes) > 1 and all(map(is_code, codes)) and masks.stats.device_steps > 0


def test_more_constraints_than_places_share_the_batch_with_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hf_guided.hf.device.request_states.PLACES", 2)
    constraints = [hg.Regex(f"{letter}[0-9]{{4,6}}") for letter in "abcde"]
    with on_device() as (manager, masks):
        ids = [add(manager, prompt(4, seed=seed), one, **AUTOMATON) for seed, one in enumerate(constraints * 2)]
        outputs = results(manager, set(ids))
    assert masks.stats.device_steps > 0 and masks.host_reason == ""
    for seed, (request_id, constraint) in enumerate(zip(ids, constraints * 2, strict=True)):
        assert outputs[request_id].generated_tokens == alone(prompt(4, seed=seed), constraint, 40)


def test_a_token_forced_from_outside_ends_the_request_and_is_told() -> None:
    x = guide().vocabulary.encode_bytes(b"x")[0]
    never = [i for i in range(len(guide().tokenizer)) if b"x" in guide().vocabulary.decode_bytes([i])]
    assert x in never
    with on_device(suppress_tokens=never) as (manager, _):
        ids = [add(manager, prompt(5), hg.Regex(one), **AUTOMATON) for one in ("[a-c]{2}x+", CODE)]
        outputs = results(manager, set(ids))
    assert "forbids" in outputs[ids[0]].error
    assert outputs[ids[1]].error is None and is_code(text_of(outputs[ids[1]].generated_tokens))


def test_other_stop_tokens_and_errors_are_the_host_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the device's tables is kept, and costs the request nothing but its place."""
    letter = guide().vocabulary.encode_bytes(b"!")[0]
    stops = [guide().tokenizer.eos_token_id, letter]
    monkeypatch.setattr(RequestStates, "place", lambda *_: 1 / 0)
    with on_device() as (manager, masks):
        other = add(manager, prompt(4), hg.Regex("[a-c]{3}"), eos_token_id=stops, **AUTOMATON)
        results(manager, {other})
        assert masks.host_reason == "" and masks.stats.device_steps == 0
        asked = add(manager, prompt(5), hg.Regex(CODE), **AUTOMATON)
        output = results(manager, {asked})[asked]
        assert "ZeroDivisionError" in masks.host_reason
    assert output.error is None and output.generated_tokens == alone(prompt(5), hg.Regex(CODE), 40)


def test_rows_that_pad_a_graph_s_shape_are_told_of_no_request() -> None:
    """Their numbers would otherwise be those of an earlier batch, and advance its states."""
    with on_device() as (manager, masks):
        results(manager, {add(manager, prompt(3, seed=seed), SCHEMA, **AUTOMATON) for seed in range(5)})
        arguments = masks.prepare_tensor_args([])
    assert arguments.shape == (6, 5) and bool((arguments == -1).all())


def test_generate_asks_for_it() -> None:
    found = {}
    for lane in (False, True):
        stats: list[Any] = []
        [result] = hg.generate(
            model(),
            guide().tokenizer,
            "Say it: ",
            hg.Regex(CODE),
            guide=guide(),
            do_sample=False,
            max_new_tokens=20,
            continuous_batching=True,
            device_lane=lane,
            stats=stats.append,
            **AUTOMATON,
        )
        found[lane] = result.token_ids
        assert (stats[0].device_steps > 0) == lane
    assert found[False] == found[True]
