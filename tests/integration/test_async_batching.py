"""Constraints in transformers' asynchronous batching: a batch is prepared before the tokens of the last are read.

The copies of test_continuous_batching.py's manager arrive late here; what a request gets is what its prompt gets alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import CompileConfig
from transformers.generation.continuous_batching import RequestState
from transformers.generation.continuous_batching.offloading_manager import OffloadingManager

import hf_guided as hg
from hf_guided.hf.continuous_batching import request_masks
from hf_guided.hf.continuous_batching.compat import called_after_forward, first_processor
from tests.async_batching import allow_on_cpu
from tests.integration.test_continuous_batching import (
    CASES,
    add,
    alone,
    guide,
    prompt,
    results,
    running,
    text_of,
    unstarted,
)
from tests.pairs import once_each

pytestmark = pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")

FILLED = ("during the forward pass", "before the forward pass")  # before it, as for CUDA graphs


@pytest.fixture(params=FILLED)
def filled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    allow_on_cpu(monkeypatch)
    if request.param == FILLED[1]:
        monkeypatch.setattr(request_masks, "called_after_forward", lambda manager: False)
    return str(request.param)


@contextmanager
def guided(**config: Any) -> Iterator[Any]:
    manager = guide().attach(unstarted(**config))
    manager.continuous_batching_config.use_async_batching = True
    with running(manager):
        yield manager


def test_each_request_gets_the_tokens_that_it_gets_alone(filled: str) -> None:
    """More requests than fit into a batch, prompts longer than one, and outputs that end by their length."""
    cases = [*CASES, CASES[0]]
    limits = [case.max_new_tokens for case in CASES] + [30]
    prompts = [prompt(case.length, seed=seed) for seed, case in enumerate(cases)]
    with guided() as manager:
        ids = [
            add(manager, ids, case.constraint, max_new_tokens=limit)
            for ids, case, limit in zip(prompts, cases, limits, strict=True)
        ]
        outputs = results(manager, set(ids))
    for request_id, case, ids_of_prompt, limit in zip(ids, cases, prompts, limits, strict=True):
        token_ids = outputs[request_id].generated_tokens
        assert token_ids == alone(ids_of_prompt, case.constraint, limit), case
        assert outputs[request_id].error is None
        if case.constraint is not None:
            assert case.is_good(text_of(token_ids))


@pytest.mark.parametrize(("filled", "offload_gib"), once_each(FILLED, [0.0, 0.01]), indirect=["filled"])
def test_tokens_stay_when_a_token_in_flight_is_thrown_away(
    filled: str, offload_gib: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache has room for two of the six: running requests lose theirs, or it is kept on the host."""
    again: list[int] = []
    begin_again, offload = RequestState.create_equivalent_initial_request, OffloadingManager._offload_to_cpu

    def noted(state: RequestState) -> RequestState:
        again.append(len(state.generated_tokens))
        return begin_again(state)

    def kept(self: OffloadingManager, *arguments: Any) -> Any:
        kept_ids = offload(self, *arguments)
        again.extend([1] * len(kept_ids))
        return kept_ids

    if offload_gib:
        monkeypatch.setattr(OffloadingManager, "_offload_to_cpu", kept)
    else:
        monkeypatch.setattr(RequestState, "create_equivalent_initial_request", noted)
    pattern = "([a-i][0-9][j-z]){10,}!"
    constraints = [hg.Regex(pattern)] * 5 + [None]
    prompts = [prompt(6, seed=seed) for seed in range(6)]
    room = {"num_blocks": 6, "page_size": 16, "allow_block_sharing": False, "cpu_offload_space": offload_gib}
    with guided(room=room) as manager:
        ids = [add(manager, ids, one) for ids, one in zip(prompts, constraints, strict=True)]
        outputs = results(manager, set(ids))
    assert any(again)
    for request_id, ids_of_prompt, one in zip(ids, prompts, constraints, strict=True):
        assert outputs[request_id].error is None
        assert outputs[request_id].generated_tokens == alone(ids_of_prompt, one, 40)
    assert all(re.fullmatch(pattern, text_of(outputs[one].generated_tokens)) for one in ids[:5])


@pytest.mark.parametrize(
    ("device", "sequences", "kept"), [("cuda", None, True), ("cuda", 1, True), ("cuda", 4, False), ("cpu", None, False)]
)
def test_it_stays_on_where_it_works(
    device: str, sequences: int | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers' manager fails to fork a request of a running batch, with or without constraints."""
    config = {} if sequences is None else {"do_sample": True, "num_return_sequences": sequences}
    manager = unstarted(room={"use_async_batching": True}, **config)
    monkeypatch.setattr(type(manager.model), "device", torch.device(device))
    guide().attach(manager)
    assert manager.continuous_batching_config.use_async_batching is kept


@pytest.mark.parametrize(
    ("graphs", "filled_late"), [(False, (True, True)), ((False, True), (True, False)), (True, (False, False))]
)
def test_a_replayed_graph_calls_no_processor(graphs: Any, filled_late: tuple[bool, bool]) -> None:
    """For passes that read prompts, and for those that only continue."""
    manager = unstarted(room={"use_cuda_graph": graphs})
    assert not called_after_forward(manager), "it has no tensors yet"
    for decode, late in zip((False, True), filled_late, strict=True):
        manager.batch_processor = SimpleNamespace(inputs_and_outputs=SimpleNamespace(use_block_table=decode))
        manager.continuous_batching_config.use_cuda_graph = graphs
        assert called_after_forward(manager) is late
        manager.continuous_batching_config.decode_compile_config = CompileConfig()
        assert called_after_forward(manager) is (late and not decode)
        manager.continuous_batching_config.decode_compile_config = None


def test_only_guided_batches_wait_for_the_tokens_of_the_last(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events that preparing a batch, and applying its masks, wait for."""
    waited: list[str] = []
    inside: list[str] = []
    synchronize = torch.Event.synchronize

    def noted(event: Any) -> None:
        waited.extend(inside[-1:])
        synchronize(event)

    monkeypatch.setattr(torch.Event, "synchronize", noted)
    manager = guide().attach(unstarted())
    manager.continuous_batching_config.use_async_batching = True
    masks = first_processor(manager)

    def within(place: str, method: Any) -> Any:
        def call(*arguments: Any) -> Any:
            inside.append(place)
            try:
                return method(*arguments)
            finally:
                inside.pop()

        return call

    class Watching(type(masks)):  # type: ignore[misc]
        prepare_tensor_args = within("before", type(masks).prepare_tensor_args)
        __call__ = within("during", type(masks).__call__)

    masks.__class__ = Watching
    with running(manager):
        results(manager, {add(manager, prompt(5), None, max_new_tokens=12)})
        assert not waited
        constraint = hg.Regex("[a-c]{9}")
        request = add(manager, prompt(5), constraint, max_new_tokens=12)
        token_ids = results(manager, {request})[request].generated_tokens
    assert set(waited) == {"during" if filled == FILLED[0] else "before"}
    # The first token follows the prompt; the batch after the last one is queued before the end is known.
    assert len(waited) in (len(token_ids) - 1, len(token_ids))
