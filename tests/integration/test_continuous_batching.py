"""Constraints in transformers' own continuous batching manager: the tokens that each prompt gets alone.

What a request gets is compared with transformers' plain loop on that prompt alone; what it says, with ``re``, ``json``
and ``jsonschema``. Whoever waits here waits for a result or an event; PATIENCE only bounds how long a failure takes.
"""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import jsonschema
import numpy as np
import pytest
import torch
from transformers import GenerationConfig, LlamaForCausalLM
from transformers.generation.configuration_utils import ContinuousBatchingConfig
from transformers.generation.continuous_batching import RequestState

import hf_guided as hg
from hf_guided.backends.network import NetworkBackend
from hf_guided.hf.continuous_batching import request_masks
from hf_guided.hf.continuous_batching.compat import first_processor
from hf_guided.hf.continuous_batching.request_masks import RequestConstraint
from hf_guided.vocabulary.bitmask import words
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES

pytestmark = pytest.mark.filterwarnings("ignore:llguidance keeps no token limit")

PATIENCE = 120.0
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "tags": {"type": "array", "items": {"enum": [1, "b"]}}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}
CODE = "[a-f]{2}-[0-9]{3,9}"


@dataclass(frozen=True)
class Case:
    """One request: what it asks for, and who says whether it got that."""

    constraint: Any
    is_good: Callable[[str], bool]
    length: int = 5  # of its prompt
    max_new_tokens: int = 40


def is_valid(text: str) -> bool:
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(text))


def is_code(text: str) -> bool:
    return re.fullmatch(CODE, text) is not None


CASES = [
    Case(SCHEMA, is_valid),
    Case(None, lambda text: True, length=17),
    Case(hg.Regex(CODE), is_code, length=1, max_new_tokens=12),
    Case(["yes", "no", "perhaps"], {"yes", "no", "perhaps"}.__contains__),
    Case(SCHEMA, is_valid, length=33, max_new_tokens=60),
    Case(hg.Grammar('start: "(" start ")" | "x"'), lambda text: bool(re.fullmatch(r"\(*x\)*", text)), length=9),
    Case(None, lambda text: True, length=2, max_new_tokens=7),
    Case(hg.JsonSchema(SCHEMA, whitespace="compact"), is_valid, length=12),
]


@pytest.fixture(autouse=True, scope="module")
def old_objects_aside() -> Iterator[None]:
    """A manager collects garbage when it stops, twice, which takes long among all that has been imported."""
    gc.freeze()
    yield
    gc.unfreeze()


@cache
def pair(name: str) -> tuple[LlamaForCausalLM, hg.Guide]:
    tokenizer = getattr(vocabularies, name)()
    model = models.llama(tokenizer, layers=1)
    return model, hg.Guide(model, tokenizer)


def model(name: str = "demo") -> LlamaForCausalLM:
    return pair(name)[0]


def guide(name: str = "demo") -> hg.Guide:
    return pair(name)[1]


def tokenizer(name: str = "demo") -> Any:
    return guide(name).tokenizer


def prompt(length: int, name: str = "demo", seed: int = 0) -> list[int]:
    text_ids = [i for i in range(len(tokenizer(name))) if guide(name).vocabulary.is_text(i)]
    return models.prompts(text_ids, 1, length, seed)[0].tolist()


def alone(ids: Sequence[int], constraint: Any, max_new_tokens: int, name: str = "demo") -> list[int]:
    """What transformers' plain loop gives this prompt greedily, up to and with the stop token."""
    processors = []
    if constraint is not None:
        processors.append(guide(name).logits_processor(constraint, max_new_tokens=max_new_tokens))
    input_ids = torch.tensor([list(ids)])
    output = model(name).generate(
        input_ids,
        attention_mask=torch.ones_like(input_ids),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        logits_processor=processors,
    )
    return output[0, len(ids) :].tolist()


def unstarted(name: str = "demo", *, room: dict[str, Any] | None = None, **config: Any) -> Any:
    """A manager of transformers' that has not been attached."""
    return model(name).init_continuous_batching(
        generation_config=GenerationConfig(
            **{"do_sample": False, "max_new_tokens": 40, "eos_token_id": tokenizer(name).eos_token_id, **config}
        ),
        continuous_batching_config=ContinuousBatchingConfig(
            **{"num_blocks": 128, "page_size": 16, "max_batch_tokens": 24, "max_requests_per_batch": 5, **(room or {})}
        ),
    )


@contextmanager
def running(manager: Any) -> Iterator[Any]:
    manager.start()
    try:
        yield manager
    finally:
        manager.stop(block=True, hard_stop=True)
        manager.destroy()


@contextmanager
def guided(name: str = "demo", **config: Any) -> Iterator[Any]:
    with running(guide(name).attach(unstarted(name, **config))) as manager:
        yield manager


def add(manager: Any, ids: Sequence[int], constraint: Any, **kwargs: Any) -> str:
    if constraint is not None:
        kwargs = {"response_format": constraint, **kwargs}
    return manager.add_request(list(ids), **kwargs)


def results(manager: Any, wanted: set[str]) -> dict[str, Any]:
    """The last output of each of these requests; those of others are lost."""
    found: dict[str, Any] = {}
    while wanted - found.keys():
        output = manager.get_result(timeout=PATIENCE)
        assert output is not None, f"nothing came of {wanted - found.keys()}"
        if output.is_finished():
            assert output.status.name == "FINISHED", output.error
            found[output.request_id] = output
    return found


def text_of(token_ids: Sequence[int], name: str = "demo") -> str:
    stop = tokenizer(name).eos_token_id
    assert token_ids[-1] == stop
    return guide(name).vocabulary.decode_bytes(token_ids[:-1]).decode()


# -- the tokens of single generation -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["demo", "tiny_byte_level", "sentencepiece_32k"])
def test_each_request_gets_the_tokens_that_it_gets_alone(name: str) -> None:
    """More requests than fit into a batch, prompts longer than one; free and guided mixed."""
    prompts = [prompt(case.length, name, seed) for seed, case in enumerate(CASES)]
    with guided(name) as manager:
        ids = [
            add(manager, ids, case.constraint, max_new_tokens=case.max_new_tokens)
            for ids, case in zip(prompts, CASES, strict=True)
        ]
        outputs = results(manager, set(ids))
    for request_id, case, ids_of_prompt in zip(ids, CASES, prompts, strict=True):
        token_ids = outputs[request_id].generated_tokens
        assert token_ids == alone(ids_of_prompt, case.constraint, case.max_new_tokens, name), case
        assert outputs[request_id].error is None
        if case.constraint is not None:
            assert case.is_good(text_of(token_ids, name))


def test_the_tokens_stay_when_requests_give_back_their_cache_and_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache has room for two of the six, so running requests are stopped, and resumed behind what they have."""
    anew = []
    begin_anew = RequestState.create_equivalent_initial_request

    def noted(state: RequestState) -> RequestState:
        anew.append(len(state.generated_tokens))
        return begin_anew(state)

    monkeypatch.setattr(RequestState, "create_equivalent_initial_request", noted)
    pattern = "([a-i][0-9][j-z]){10,}!"  # at each place something else may come
    constraint = hg.Regex(pattern)
    asked = [constraint] * 5 + [None]
    prompts = [prompt(6, seed=seed) for seed in range(6)]
    with guided(room={"num_blocks": 6, "page_size": 16, "allow_block_sharing": False}) as manager:
        ids = [add(manager, ids, one) for ids, one in zip(prompts, asked, strict=True)]
        outputs = results(manager, set(ids))
    assert any(anew)
    for request_id, ids_of_prompt, one in zip(ids, prompts, asked, strict=True):
        assert outputs[request_id].generated_tokens == alone(ids_of_prompt, one, 40)
    assert all(re.fullmatch(pattern, text_of(outputs[one].generated_tokens)) for one in ids[:5])


def test_sixty_requests_share_a_cache_for_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free and guided, some with settings of their own, some cancelled; requests give back their cache all the time."""
    anew = []
    begin_anew = RequestState.create_equivalent_initial_request

    def noted(state: RequestState) -> RequestState:
        anew.append(state.request_id)
        return begin_anew(state)

    monkeypatch.setattr(RequestState, "create_equivalent_initial_request", noted)
    constraints = [hg.Regex("([a-i][0-9][j-z]){6,}!"), None, hg.Regex("[a-f]{20,}-"), hg.Regex("[0-9]{9,}x")]
    kinds = [(prompt(6, seed=seed), constraints[seed % 4]) for seed in range(8)]
    config: dict[str, Any] = {"do_sample": True, "temperature": 1.5, "top_k": 50}
    room = {"num_blocks": 6, "page_size": 16, "allow_block_sharing": False, "per_request_processors": True}
    with guided(room=room, **config) as manager:
        added = {}
        for number in range(60):
            ids, constraint = kinds[number % 8]
            # With one token to choose from, sampling is greedy.
            added[add(manager, ids, constraint, max_new_tokens=24, top_k=1, temperature=2.0)] = number
        cancelled = {request_id for request_id, number in added.items() if number % 10 == 9}
        for request_id in cancelled:
            manager.cancel_request(request_id)
        outputs = results(manager, set(added) - cancelled)
        assert len(first_processor(manager)._rows) <= 5  # those of the last batch
    assert len(outputs) == 54 and len(set(anew)) > 5
    expected = [alone(ids, constraint, 24) for ids, constraint in kinds]
    for request_id, output in outputs.items():
        assert output.error is None and output.generated_tokens == expected[added[request_id] % 8]


def test_what_travels_to_other_processes_is_the_constraint_alone() -> None:
    """Under tensor parallelism requests reach the other ranks pickled; there they begin without what was compiled."""
    sent: list[Any] = []

    def broadcast(payload: Any) -> Any:
        sent.append(pickle.dumps(payload))
        return pickle.loads(sent[-1])

    ids = prompt(4)
    manager = guide().attach(unstarted())
    manager.distributed_helper.tp_broadcast_object_from_rank_0 = broadcast
    with running(manager):
        asked = add(manager, ids, SCHEMA)
        token_ids = results(manager, {asked})[asked].generated_tokens
    assert token_ids == alone(ids, SCHEMA, 40)
    assert max(map(len, sent)) < 4000
    (state,) = pickle.loads(sent[0])[0]
    assert state.logit_processor_kwargs["response_format"].row is None


def test_what_was_asked_is_a_value() -> None:
    asked = RequestConstraint(hg.Regex("a"), "auto", "b", (1, 2), 7, object())  # type: ignore[arg-type]
    assert copy.deepcopy(asked) is asked
    again = pickle.loads(pickle.dumps(asked))
    assert again == asked and hash(again) == hash(asked) and again.row is None


# -- return sequences, cancellation, sharing ---------------------------------------------------------------------------


@pytest.mark.parametrize("num_blocks", [128, 5])
def test_return_sequences_are_independent(num_blocks: int) -> None:
    """Forks of one request, made with the cache (128 blocks) or begun from scratch where it is full (5)."""
    config = {"do_sample": True, "temperature": 3.0, "num_return_sequences": 4}
    with guided(room={"num_blocks": num_blocks}, **config) as manager:
        ids = [add(manager, prompt(9, seed=1), hg.Regex(CODE)), add(manager, prompt(12), SCHEMA, max_new_tokens=30)]
        wanted = {one for asked in ids for one in (asked, *(f"{asked}__child#{i}" for i in range(3)))}
        outputs = results(manager, wanted)
    codes = {text_of(output.generated_tokens) for name, output in outputs.items() if name.startswith(ids[0])}
    assert len(codes) > 1  # each went its own way
    assert all(map(is_code, codes))
    assert all(
        is_valid(text_of(output.generated_tokens)) for name, output in outputs.items() if name.startswith(ids[1])
    )


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    with guided() as manager:
        masks = first_processor(manager)
        endless = add(manager, prompt(5), hg.Regex("[a-z]{300}"), max_new_tokens=400, streaming=True)
        while manager.get_result(timeout=PATIENCE).request_id != endless:
            pass
        assert set(masks._rows) == {endless}
        manager.cancel_request(endless)
        with_its_id = add(manager, prompt(6), hg.Regex(CODE), request_id="again")
        outputs = results(manager, {with_its_id})
        assert outputs[with_its_id].generated_tokens == alone(prompt(6), hg.Regex(CODE), 40)
        # The batch that is prepared next lets go of the last one's requests.
        last = add(manager, prompt(3), ["yes", "no"])
        results(manager, {last})
        assert set(masks._rows) <= {last}


def test_an_id_may_come_again() -> None:
    with guided() as manager:
        for seed, constraint in enumerate([hg.Regex(CODE), SCHEMA, ["yes", "no"]]):
            add(manager, prompt(5, seed=seed), constraint, request_id="same")
            output = results(manager, {"same"})["same"]
            assert output.generated_tokens == alone(prompt(5, seed=seed), constraint, 40)


def test_requests_come_from_many_threads() -> None:
    """Sixteen callers, each with two requests, every fourth of which is cancelled at once; none is lost or crossed."""
    added: dict[str, tuple[int, Case]] = {}
    cancelled = set()
    with guided() as manager:

        def call(caller: int) -> None:
            for turn in range(2):
                number = 2 * caller + turn
                case = CASES[number % len(CASES)]
                name = f"{caller}-{turn}"
                added[name] = number, case
                add(
                    manager,
                    prompt(case.length, seed=number),
                    case.constraint,
                    request_id=name,
                    max_new_tokens=case.max_new_tokens,
                )
                if number % 4 == 3:
                    cancelled.add(name)
                    manager.cancel_request(name)

        callers = [threading.Thread(target=call, args=(caller,)) for caller in range(16)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(PATIENCE)
        outputs = results(manager, set(added) - cancelled)
    assert len(added) == 32 and len(cancelled) == 8
    for name in set(added) - cancelled:
        number, case = added[name]
        assert outputs[name].prompt_ids == prompt(case.length, seed=number)
        if case.constraint is not None:
            assert case.is_good(text_of(outputs[name].generated_tokens))


def test_requests_added_together_share_a_constraint_and_a_prefix() -> None:
    begun = guide().vocabulary.encode_bytes(b"ab-")
    with guided() as manager:
        ids = manager.add_requests(
            [[*prompt(4, seed=seed), *begun] for seed in range(3)], response_format=re.compile(CODE), prefix="ab-"
        )
        outputs = results(manager, set(ids))
    assert all(is_code("ab-" + text_of(outputs[one].generated_tokens)) for one in ids)


@pytest.mark.parametrize("rows", [0, 3, 1000])
@pytest.mark.parametrize("filled_late", [True, False])
def test_masks_stay_where_they_are(rows: int, filled_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a CUDA graph that was captured for one batch reads in all others; tables of masks have any size."""
    monkeypatch.setenv("HF_GUIDED_MASK_TABLE_BYTES", str(rows * 4 * words(model().config.vocab_size)))
    monkeypatch.setattr(request_masks, "called_after_forward", lambda manager: filled_late)
    manager = hg.Guide(model(), tokenizer()).attach(unstarted())
    masks = first_processor(manager)
    addresses, padding, count, shared, own = set(), set(), 0, 0, 0

    class Watching(type(masks)):  # type: ignore[misc]
        def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
            nonlocal count
            count = len(requests_with_new_token)
            return super().prepare_tensor_args(requests_with_new_token)

        def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
            nonlocal shared, own
            result = super().__call__(scores, tensor_arg)
            addresses.add((self._own.data_ptr(), self._shared.data_ptr()))
            slots = self._slots if filled_late else tensor_arg.tolist()
            padding.update(slots[count:5])
            shared += sum(slot >= 0 for slot in slots)
            own += sum(slot < -1 for slot in slots)
            return result

    masks.__class__ = Watching
    prompts = [prompt(case.length, seed=seed) for seed, case in enumerate(CASES)]
    with running(manager):
        ids = [
            manager.add_request(ids, response_format=case.constraint, max_new_tokens=case.max_new_tokens)
            for ids, case in zip(prompts, CASES, strict=True)
        ]
        outputs = results(manager, set(ids))
        kept = manager.add_request(prompts[0], response_format=hg.Regex("[a-c]{9}"), backend="native")
        results(manager, {kept})
        results(manager, {manager.add_request(prompts[1], max_new_tokens=4)})
        table = masks._table
        assert table is None or not any(row.users for row in table._rows.values()), "rows stay for free requests"
    for request_id, ids_of_prompt, case in zip(ids, prompts, CASES, strict=True):
        alone_ids = alone(ids_of_prompt, case.constraint, case.max_new_tokens)
        assert outputs[request_id].generated_tokens == alone_ids, case
    assert len(addresses) == 1
    assert padding == {-1}
    assert (shared > 0) == (rows > 0) and own > 0  # near the end of a budget, masks are in no table


@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_a_row_without_a_score_ends_alone(value: float) -> None:
    """Sampling from it would raise, and end the generation of all requests."""
    manager = guide().attach(unstarted(do_sample=True, temperature=1.0))
    masks = first_processor(manager)
    spoiled: list[str] = []

    class Spoiled(type(masks)):  # type: ignore[misc]
        def __call__(self, scores: torch.Tensor, tensor_arg: torch.Tensor) -> torch.Tensor:
            begun = [one for one in self._unfilled if one.state.generated_tokens]
            if begun and not spoiled:
                spoiled.append(begun[0].state.request_id)
                scores = scores.clone()
                scores[begun[0].row] = value
            return super().__call__(scores, tensor_arg)

    masks.__class__ = Spoiled
    with running(manager):
        ids = [add(manager, prompt(4, seed=seed), hg.Regex("[a-z]{30}"), max_new_tokens=40) for seed in range(4)]
        outputs = results(manager, set(ids))
    bad = [one for one in ids if not re.fullmatch("[a-z]{30}", text_of(outputs[one].generated_tokens))]
    assert bad == spoiled


def test_batches_are_prepared_behind_the_tokens_of_the_last() -> None:
    manager = unstarted(room={"use_async_batching": True})
    assert manager.continuous_batching_config.use_async_batching
    guide().attach(manager)
    assert manager.continuous_batching_config.use_async_batching is False


# -- what cannot be had ------------------------------------------------------------------------------------------------

REFUSED = {
    "malformed": ({"response_format": {"type": "strin"}}, hg.InvalidConstraint),
    "several": ({"response_format": [hg.Regex("a"), hg.Regex("b")]}, hg.InvalidConstraint),
    "not enforced": (
        {"response_format": {"type": "array", "contains": {"const": 1}, "uniqueItems": True}},
        hg.UnsupportedConstraint,
    ),
    "no backend": ({"response_format": ["a"], "backend": "none"}, hg.InvalidConstraint),
    "too long": ({"response_format": hg.Regex("[a-z]{50}"), "max_new_tokens": 3}, hg.BudgetTooSmall),
    "no end": ({"response_format": ["a"], "eos_token_id": -1}, hg.StopTokenError),
    "another text": ({"response_format": ["yes"], "prefix": "no"}, hg.InvalidConstraint),
}


def test_what_cannot_be_had_raises_in_the_caller() -> None:
    with guided() as manager:
        for what, (arguments, error) in REFUSED.items():
            with pytest.raises(error):
                manager.add_request(prompt(3), **arguments)
                pytest.fail(what)
        asked = add(manager, prompt(5), ["yes", "no"])
        outputs = results(manager, {asked})
    assert text_of(outputs[asked].generated_tokens) in ("yes", "no")


def test_settings_that_leave_nothing_to_choose_are_refused_where_the_request_is_made() -> None:
    with guided(suppress_tokens=[tokenizer().eos_token_id]) as manager:
        with pytest.raises(hg.EmptyIntersection, match="suppress_tokens"):
            add(manager, prompt(3), ["yes"])


def test_a_slow_constraint_holds_up_its_caller_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    compiling, go_on = threading.Event(), threading.Event()
    slow = hg.Regex("[u-z]{4}")
    compile_ = NetworkBackend.compile

    def gated(self: NetworkBackend, constraint: hg.Constraint) -> Any:
        if constraint == slow:
            compiling.set()
            assert go_on.wait(PATIENCE)
        return compile_(self, constraint)

    monkeypatch.setattr(NetworkBackend, "compile", gated)
    with guided() as manager:
        results(manager, {add(manager, prompt(4), ["yes", "no"])})  # compiled: there may be one thread for that
        caller = threading.Thread(target=lambda: add(manager, prompt(5), slow, request_id="slow"))
        caller.start()
        try:
            assert compiling.wait(PATIENCE)
            others = {add(manager, prompt(4), ["yes", "no"]), add(manager, prompt(8), None)}
            results(manager, others)  # while it compiles
        finally:
            go_on.set()
            caller.join(PATIENCE)
        output = results(manager, {"slow"})["slow"]
    assert re.fullmatch("[u-z]{4}", text_of(output.generated_tokens))


def test_an_engine_that_fails_ends_its_own_request_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = hg.Regex("[k-n]{20}")
    manager = guide().attach(unstarted())
    compiled = guide().compile(failing, "llguidance")
    engine = type(compiled.new_engine())
    fill = engine.fill
    calls = []

    def fails(self: Any, bitmask: torch.Tensor, row: int, *rest: int | None) -> None:
        fill(self, bitmask, row, *rest)
        calls.append(row)
        if len(calls) == 7:
            raise OSError("out of order")

    monkeypatch.setattr(engine, fill.__name__, fails)
    with running(manager):
        broken = add(manager, prompt(5), failing, backend="llguidance")
        free = add(manager, prompt(8), None)
        outputs = results(manager, {broken, free})
        monkeypatch.setattr(engine, fill.__name__, fill)
        good = add(manager, prompt(7), SCHEMA)
        outputs |= results(manager, {good})
    assert "OSError: out of order" in outputs[broken].error
    assert (
        outputs[broken].generated_tokens.index(tokenizer().eos_token_id)
        == 6
        == len(outputs[broken].generated_tokens) - 1
    )
    assert outputs[free].error is None and outputs[free].generated_tokens == alone(prompt(8), None, 40)
    assert outputs[good].generated_tokens == alone(prompt(7), SCHEMA, 40)


def test_a_token_forced_from_outside_ends_the_request_and_is_told() -> None:
    """Where another processor forbids all that the constraint allows, greedy decoding takes token 0."""
    x = guide().vocabulary.encode_bytes(b"x")[0]
    never = [i for i in range(len(tokenizer())) if b"x" in guide().vocabulary.decode_bytes([i])]
    assert x in never
    with guided(suppress_tokens=never) as manager:
        ids = add(manager, prompt(5), hg.Regex("[a-c]{2}x+")), add(manager, prompt(5), hg.Regex(CODE))
        outputs = results(manager, set(ids))
    assert "forbids" in outputs[ids[0]].error
    assert guide().read(hg.Regex("[a-c]{2}x+"), outputs[ids[0]].generated_tokens).finish_reason == "dead_end"
    assert outputs[ids[1]].error is None and is_code(text_of(outputs[ids[1]].generated_tokens))


# -- attaching -----------------------------------------------------------------------------------------------------


def test_a_manager_that_has_begun_is_refused() -> None:
    with running(unstarted()) as manager, pytest.raises(RuntimeError, match="attach it right after"):
        guide().attach(manager)
    warm = unstarted()
    warm.warmup()
    with pytest.raises(RuntimeError, match="warmed up"):
        guide().attach(warm)


def test_a_manager_has_one_guide_of_its_own_width() -> None:
    manager = guide().attach(unstarted())
    assert guide().attach(manager) is manager
    with pytest.raises(ValueError, match="another Guide"):
        hg.Guide(model(), tokenizer()).attach(manager)
    with pytest.raises(hg.VocabularySizeError, match="build the Guide with this model"):
        hg.Guide(model().config.vocab_size + 32, tokenizer()).attach(unstarted())


def test_generate_batch_refuses_what_it_would_drop() -> None:
    guide().attach(unstarted())
    settings = {
        "generation_config": GenerationConfig(do_sample=False, max_new_tokens=5, eos_token_id=-1),
        "continuous_batching_config": ContinuousBatchingConfig(num_blocks=16, page_size=16, max_batch_tokens=24),
    }
    dropped = {
        "response_format": ["yes"],
        "logits_processor": [guide().logits_processor(["yes"])],
        "custom_generate": guide().decoder(["yes"]),
    }
    for name, value in dropped.items():
        with pytest.raises(hg.UnsupportedConstraint, match="continuous_batching=True"):
            model().generate_batch([prompt(3)], **settings, **{name: value})
    free = model().generate_batch([prompt(3)], **settings)
    assert [output.generated_tokens for output in free.values()] == [alone(prompt(3), None, 5)]


# -- hg.generate ---------------------------------------------------------------------------------------------------


def run(constraint: Any, **kwargs: Any) -> list[hg.GuidedResult]:
    texts = ["one ", "two and three ", "four "]
    return hg.generate(
        model(), tokenizer(), texts, constraint, guide=guide(), **{"do_sample": False, "max_new_tokens": 40, **kwargs}
    )


def test_generate_gives_what_it_gives_one_by_one() -> None:
    asked = [SCHEMA, None, hg.Regex(CODE)]
    together = run(asked, continuous_batching=True, batch_size=2)
    plain = run(asked, batch_size=1, jump_forward=False)
    assert [(one.token_ids, one.text, one.finish_reason) for one in together] == [
        (one.token_ids, one.text, one.finish_reason) for one in plain
    ]
    assert is_valid(together[0].text) and is_code(together[2].text)
    assert together[0].stats is not None and together[0].stats.masked_rows > 10


def test_generate_samples_several_for_each_prompt() -> None:
    config = ContinuousBatchingConfig(num_blocks=64, page_size=16, max_batch_tokens=24)
    sampled = run(
        [hg.Regex(CODE), SCHEMA, None],
        continuous_batching=config,
        do_sample=True,
        temperature=3.0,
        num_return_sequences=2,
        prefix=["ab-", None, None],
    )
    assert [result.finish_reason for result in sampled[:4]] == ["stop"] * 4
    assert all(is_code(result.text) and result.text.startswith("ab-") for result in sampled[:2])
    assert all(is_valid(result.text) for result in sampled[2:4])
    assert len(sampled) == 6


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"num_beams": 2}, ValueError, "beams"),
        ({"stop_strings": ["x"]}, ValueError, "stop_strings"),
        ({"logits_processor": [print]}, ValueError, "processors"),
        ({"draft": "prompt_lookup"}, ValueError, "draft"),
        ({"on_violation": "raise"}, ValueError, "on_violation"),
        ({"reasoning": hg.Reasoning()}, ValueError, "reasoning"),
        ({"temprature": 1.0}, TypeError, "temprature"),
        *(
            ({name: value}, ValueError, f"cannot apply {name}=.*for which it would need each row's tokens or time")
            for name, value in {
                "min_new_tokens": 12,
                "min_length": 12,
                "max_time": 60.0,
                "repetition_penalty": 3.0,
                "encoder_repetition_penalty": 2.0,
                "no_repeat_ngram_size": 2,
                "encoder_no_repeat_ngram_size": 2,
                "exponential_decay_length_penalty": (2, 1.5),
                "bad_words_ids": [[65]],
                "begin_suppress_tokens": [97],
                "forced_bos_token_id": 70,
                "guidance_scale": 2.0,
                "watermarking_config": {"bias": 2.0},
                "sequence_bias": {(65, 66): 4.0},
            }.items()
        ),
        ({"sequence_bias": [[[65, 66], 4.0]]}, ValueError, "cannot apply sequence_bias="),
        ({"begin_suppress_tokens": torch.tensor([97, 98])}, ValueError, "cannot apply begin_suppress_tokens="),
        ({"begin_suppress_tokens": np.array([97, 98])}, ValueError, "cannot apply begin_suppress_tokens="),
        ({"logits_processor": []}, hg.InvalidArgument, "takes only arguments of a generation config"),
    ],
)
def test_generate_refuses_what_a_manager_would_drop(arguments: dict[str, Any], error: type, says: str) -> None:
    with pytest.raises(error, match=says):
        run(hg.Regex("[a-zA-Z ]*"), continuous_batching=True, **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"sequence_bias": {(ord("7"),): 3.0}},
        {"sequence_bias": [[[ord("7")], 3.0]]},  # as a checkpoint's generation config has it
        {"suppress_tokens": [ord("a"), ord("1")]},
        {"renormalize_logits": True},
        {"remove_invalid_values": True},
        {"min_new_tokens": 0, "repetition_penalty": 1.0, "no_repeat_ngram_size": 0},
        {"do_sample": True, "min_p": 0.999},
        {"do_sample": True, "epsilon_cutoff": 0.9},
        {"do_sample": True, "top_k": 1},
        {"do_sample": True, "top_p": 1e-6},
    ],
    ids=lambda given: next(name for name in reversed(given)),
)
def test_generate_applies_the_settings_that_it_takes(arguments: dict[str, Any]) -> None:
    """As without a manager: filters that leave one token leave the same one."""
    asked = [SCHEMA, None, hg.Regex(CODE)]
    together = run(asked, continuous_batching=True, **arguments)
    plain = run(asked, batch_size=1, jump_forward=False, **arguments)
    assert [result.token_ids for result in together] == [result.token_ids for result in plain]


def test_logits_that_are_not_numbers_end_a_row() -> None:
    """Also where the token that the model then takes is the padding."""
    broken = models.llama(tokenizer(), layers=1)
    with torch.no_grad():
        broken.lm_head.weight.fill_(float("nan"))
    settings: dict[str, Any] = {"do_sample": False, "max_new_tokens": 8, "pad_token_id": 0}
    guided, _ = hg.generate(broken, tokenizer(), ["a", "b"], [["yes"], None], continuous_batching=True, **settings)
    assert guided.finish_reason == "dead_end" and guided.error


def test_generate_does_not_take_a_manager_with_settings_of_its_own() -> None:
    own = models.llama(tokenizer(), layers=1)
    own._cached_continuous_batching_manager = unstarted()
    with pytest.raises(ValueError, match="keeps a manager"):
        hg.generate(own, tokenizer(), "a", ["yes"], continuous_batching=True)


def test_generate_tells_when_the_manager_fails() -> None:
    """A prompt that is longer than the whole cache."""
    config = ContinuousBatchingConfig(num_blocks=2, page_size=16, max_batch_tokens=24)
    with pytest.raises(hg.GenerationError, match="No requests can be scheduled"):
        hg.generate(model(), tokenizer(), "word " * 100, ["yes"], guide=guide(), continuous_batching=config)


def test_generate_wants_a_decoder() -> None:
    with pytest.raises(hg.UnsupportedModel, match="cannot run T5ForConditionalGeneration: .*encoder-decoder"):
        hg.generate(models.t5(tokenizer()), tokenizer(), "a", ["yes"], continuous_batching=True)
    with pytest.raises(hg.UnsupportedModel, match="cannot run MambaForCausalLM: .*this model has linear_attention"):
        hg.generate(FAMILIES["mamba"](tokenizer()), tokenizer(), "a", ["yes"], continuous_batching=True)


def test_a_guide_takes_a_model_whose_layers_are_not_known() -> None:
    """Only the width of its logits is needed for the processor of a loop of other code."""
    other = model()
    several = copy.deepcopy(other.config)
    several.decoder = several.text_config = other.config
    for config in (SimpleNamespace(vocab_size=other.config.vocab_size), several):
        wrapped = SimpleNamespace(config=config, get_output_embeddings=other.get_output_embeddings)
        assert hg.Guide(wrapped, tokenizer()).vocabulary.padded_size == other.config.vocab_size


def test_generate_asks_the_model_of_the_call() -> None:
    """A guide that was made with another model of the same width and tokenizer serves this one too."""
    of_t5 = hg.Guide(models.t5(tokenizer()), tokenizer())
    [result] = hg.generate(model(), tokenizer(), "a", ["yes", "no"], guide=of_t5, continuous_batching=True)
    assert result.value in ("yes", "no")
