"""The server's engines under load and under attack: cancellations, bad jobs, errors, dead threads, shutting down."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import pairwise
from random import Random
from threading import Timer
from time import monotonic, sleep
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from transformers.generation.continuous_batching.continuous_api import ContinuousBatchProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.errors import GenerationError
from hf_guided.serve.engines import shared_batches
from hf_guided.serve.engines.one_by_one import OneByOne
from hf_guided.serve.engines.sampler import LogitBias, OccurrencePenalties
from hf_guided.serve.engines.shared_batches import SharedBatches
from hf_guided.serve.error_responses import RequestRefused
from tests import vocabularies
from tests.effort import repeats
from tests.integration import models
from tests.jobs import Client, finished, job

KINDS = [OneByOne, SharedBatches]
CONSTRAINT = hg.Regex(r"[a-z]{5,40}\.")


@cache
def hot() -> tuple[PreTrainedModel, hg.Guide]:
    model = models.llama(vocabularies.demo(), layers=2).double()
    return model, hg.Guide(model, vocabularies.demo())


@pytest.fixture(params=KINDS, ids=["one by one", "shared"])
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    engine = request.param(*hot())
    yield engine
    engine.close()


@pytest.fixture
def shared() -> Iterator[SharedBatches]:
    engine = SharedBatches(*hot())
    yield engine
    engine.close()


def ids(prompt: str) -> list[int]:
    return list(hot()[1].tokenizer(prompt)["input_ids"])


MANY = repeats(16, 64)


def some_jobs(number: int) -> list[Any]:
    """Greedy and seeded jobs of many kinds, each with answers that do not depend on its neighbours."""
    guide = hot()[1]
    made = []
    for i in range(number):
        settings: dict[str, Any] = {"max_new_tokens": 15 + i % 20, "name": f"job {i}"}
        if i % 3:
            settings |= {"temperature": 1.0 + i % 5, "seed": i, "num_answers": 1 + i % 2}
        if i % 4 == 0:
            settings |= {"presence_penalty": 0.5, "logit_bias": {i: 2.0}}
        if i % 5 == 0:
            settings |= {"top_logprobs": 1}
        made.append(job(guide, ids(f"{i} invoice"), CONSTRAINT if i % 2 else None, **settings))
    return made


@cache
def answered_alone(number: int) -> list[list[list[int]]]:
    """The answers of ``some_jobs``."""
    alone = OneByOne(*hot())
    try:
        return [finished(alone, made) for made in some_jobs(number)]
    finally:
        alone.close()


def test_many_jobs_from_many_threads(engine: Any) -> None:
    """None is lost, none has tokens of another one."""
    jobs, expected = some_jobs(MANY), answered_alone(MANY)
    with ThreadPoolExecutor(16) as threads:
        assert list(threads.map(lambda made: finished(engine, made), jobs)) == expected


def test_a_cancelled_answer_leaves_the_others_alone(engine: Any) -> None:
    for settings in ({"temperature": 2.0, "seed": 3}, {"temperature": 2.0, "seed": 4, "top_logprobs": 1}):
        made = job(hot()[1], ids("The"), CONSTRAINT, num_answers=4, max_new_tokens=30, **settings)
        whole = finished(engine, made)
        client = Client(engine, made, cancel_after={1: 2, 3: 1})
        tokens = client.finished()
        assert client.cancelled == {1, 3} and client.ends.keys() == {0, 2}
        assert [tokens[0], tokens[2]] == [whole[0], whole[2]]
        assert tokens[1] == whole[1][: len(tokens[1])] and len(tokens[1]) < len(whole[1])
    assert finished(engine, made) == whole


def test_a_cancelled_job_makes_room(engine: Any) -> None:
    """Also one that waits; repeated cancellations do nothing."""
    guide = hot()[1]
    endless = Client(engine, job(guide, ids("The"), max_new_tokens=400, logit_bias=dict.fromkeys(_stops(), -100.0)))
    waiting = Client(engine, job(guide, ids("12"), max_new_tokens=400, num_answers=2, name="waiting"))
    waiting.running.cancel()
    endless.wait_for_tokens(5)
    for _ in range(2):
        endless.running.cancel()
        endless.running.cancel(0)
    assert finished(engine, job(guide, ids("The"), max_new_tokens=5))
    assert not endless.ends and len(endless.tokens[0]) < 400


def _stops() -> tuple[int, ...]:
    return tuple(hot()[1].vocabulary.stop_token_ids)


def test_cancellations_from_other_threads_at_any_time(engine: Any) -> None:
    """Answers that are not cancelled are right, and nothing is kept of those that are."""
    jobs, expected = some_jobs(MANY), answered_alone(MANY)
    random = Random(1)
    whole: list[Client] = []
    references = []
    for _ in range(repeats(1, 5)):
        clients = []
        for i, made in enumerate(jobs):
            client = Client(engine, made)
            if random.random() < 0.5:
                Timer(random.random() * 4, client.cancel).start()
            else:
                whole.append(client)
                clients.append((i, client))
            references.append(weakref.ref(client.running))
        for i, client in clients:
            assert client.finished() == expected[i]
        del client, clients
    assert finished(engine, jobs[0]) == expected[0]
    whole.clear()
    for _ in range(100):
        gc.collect()
        kept = sum(reference() is not None for reference in references)
        if kept == 0:
            break
        sleep(0.1)  # for the last timer
    assert kept == 0


def test_a_client_that_raises_loses_only_its_answer(engine: Any) -> None:
    guide = hot()[1]

    def emit(event: Any) -> None:
        raise RuntimeError("the client has gone")

    engine.submit(job(guide, ids("The"), max_new_tokens=5), emit)
    assert finished(engine, job(guide, ids("The"), max_new_tokens=5))


def test_lengths_are_checked_before_anything_runs(engine: Any) -> None:
    model, guide = hot()
    longest = models.CONTEXT
    for prompt, answer, code in (
        ([], 5, "empty_prompt"),
        ([5] * 100_000, 5, "context_length_exceeded"),
        ([5] * longest, 1, "context_length_exceeded"),
        ([5] * 100, longest - 99, "context_length_exceeded"),
        ([5, 10**9], 5, "unknown_token"),
        ([5, -1], 5, "unknown_token"),
    ):
        made = job(guide, prompt, max_new_tokens=answer)
        with pytest.raises(RequestRefused) as refused:
            engine.submit(made, lambda event: None)
        assert (refused.value.status, refused.value.code) == (400, code)
        if code == "context_length_exceeded":
            assert str(longest) in str(refused.value) and str(len(prompt) + answer) in str(refused.value)
    with pytest.raises(RequestRefused, match="logit_bias"):
        engine.submit(job(guide, [5], logit_bias={10**9: 1.0}), lambda event: None)
    [answer] = finished(engine, job(guide, [5] * (longest - 40), max_new_tokens=40))
    assert 1 <= len(answer) <= 40


def test_answers_that_need_the_whole_cache_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache holds one answer of full length and little more; requests that lose their part of it start again."""
    model, guide = hot()
    monkeypatch.setattr(shared_batches, "_ANSWERS", (1,))
    bias = dict.fromkeys(_stops(), -100.0)
    jobs = [
        job(guide, [5 + i] * 100, max_new_tokens=models.CONTEXT - 100, name=f"long {i}", logit_bias=bias)
        for i in range(2)
    ] + [job(guide, ids(f"{i} invoice"), CONSTRAINT, max_new_tokens=60, temperature=1.0, seed=i) for i in range(8)]
    alone = OneByOne(model, guide)
    expected = [finished(alone, made) for made in jobs]
    alone.close()
    shared = SharedBatches(model, guide)
    try:
        clients = [Client(shared, made) for made in jobs]
        assert [client.finished() for client in clients] == expected
        assert shared.restarts == 0
    finally:
        shared.close()


@pytest.mark.parametrize(
    ("engine", "broken"),
    [
        (OneByOne, LogitBias),
        (SharedBatches, OccurrencePenalties),
        pytest.param(OneByOne, OccurrencePenalties, marks=pytest.mark.slow),
        pytest.param(SharedBatches, LogitBias, marks=pytest.mark.slow),
    ],
    indirect=["engine"],
)
def test_a_processor_that_raises_ends_its_answer_alone(
    engine: Any, broken: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = hot()[1]
    jobs = [made for made in some_jobs(12) if not made.sampling.logit_bias]
    expected = [finished(engine, made) for made in jobs]

    def fail(*_: Any) -> Any:
        raise ZeroDivisionError("a broken processor")

    monkeypatch.setattr(broken, "__call__", fail)
    clients = [Client(engine, made) for made in jobs]
    bad = Client(engine, job(guide, ids("The"), presence_penalty=1.0, logit_bias={3: 1.0}, name="bad"))
    assert isinstance(bad.error(), ZeroDivisionError)
    assert [client.finished() for client in clients] == expected
    assert engine.alive()


@pytest.mark.filterwarnings("ignore:row 0:UserWarning")
def test_logits_that_are_not_numbers_end_their_answer_alone(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, guide = hot()
    forward = model.lm_head.forward
    monkeypatch.setattr(model.lm_head, "forward", lambda hidden: forward(hidden) * float("nan"))
    client = Client(engine, job(guide, ids("The"), CONSTRAINT, max_new_tokens=60)).wait()
    assert isinstance(client.ends[0].error, GenerationError)
    monkeypatch.undo()
    assert finished(engine, job(guide, ids("The"), CONSTRAINT, max_new_tokens=60))
    assert engine.alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("kind", [RuntimeError, SystemExit])
def test_a_dead_thread_is_replaced(
    kind: type[BaseException], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = kind("out of memory")  # its traceback holds the dead thread's cache, so it ends with this test
    model, guide = hot()
    shared = SharedBatches(model, guide)
    try:
        made = job(guide, ids("The"), max_new_tokens=20)
        expected = finished(shared, made)
        step = ContinuousBatchProcessor._generation_step
        for died in range(1, repeats(1, 4) + 1):
            steps = [0]

            def broken(self: Any, model: Any, steps: list[int] = steps) -> None:
                steps[0] += 1
                if steps[0] == 4:
                    end = monotonic() + 60
                    while len(shared._answers) < 3 and monotonic() < end:
                        sleep(0.001)  # one that the dispatcher gave later would meet the next thread
                    monkeypatch.setattr(ContinuousBatchProcessor, "_generation_step", step)
                    raise error
                step(self, model)

            monkeypatch.setattr(ContinuousBatchProcessor, "_generation_step", broken)
            clients = [Client(shared, made) for _ in range(3)]
            for client in clients:
                assert "the generation thread has died" in str(client.error())
            end = monotonic() + 30
            while shared.restarts < died and monotonic() < end:
                sleep(0.01)  # until then a job would meet the dead thread
            assert finished(shared, made) == expected and shared.restarts == died
        assert shared.alive()
        told = [record.exc_info for record in caplog.records if "thread has died" in record.getMessage()]
        assert len(told) == shared.restarts
        assert all((info or (None, None))[1] is (error if kind is RuntimeError else None) for info in told)
        caplog.clear()
    finally:
        shared.close()


def test_a_manager_that_cannot_start_is_tried_again(shared: SharedBatches, monkeypatch: pytest.MonkeyPatch) -> None:
    made = job(hot()[1], ids("The"), max_new_tokens=5)
    expected = finished(shared, made)

    def fail(*_: Any) -> Any:
        raise MemoryError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(ContinuousBatchProcessor, "_generation_step", fail)
        patched.setattr(shared_batches, "BatchManager", fail)
        assert "no room" in str(Client(shared, made).error())
        assert isinstance(Client(shared, made).error(), MemoryError)
        assert not shared.alive()
    assert finished(shared, made) == expected
    assert shared.alive() and shared.restarts == 1


def test_one_by_one_outlives_an_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    model, guide = hot()
    engine = OneByOne(model, guide)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(model.lm_head, "forward", lambda hidden: (_ for _ in ()).throw(SystemExit(1)))
            assert "SystemExit" in str(Client(engine, job(guide, ids("The"))).error())
        assert finished(engine, job(guide, ids("The"), max_new_tokens=3))
    finally:
        engine.close()


def test_a_job_with_inputs_of_its_own_runs_alone(shared: SharedBatches) -> None:
    """While it runs, the loop of the shared batches stands still."""
    model, guide = hot()
    attention = model.config._attn_implementation
    made = job(guide, ids("The"), CONSTRAINT, num_answers=2, temperature=1.0, seed=1)
    expected = finished(shared, made)
    threads: list[int] = []
    hook = model.register_forward_pre_hook(lambda *_: threads.append(threading.get_ident()))
    try:
        others = [Client(shared, other) for other in some_jobs(6)]
        mask = torch.ones(1, len(made.prompt), dtype=torch.long)
        assert finished(shared, replace(made, model_inputs={"attention_mask": mask})) == expected
        for other in others:
            other.finished()
    finally:
        hook.remove()
    changes = sum(one != other for one, other in pairwise(threads))
    assert len(set(threads)) == 2 and changes <= 2, "passes of the two threads took turns"
    assert shared.alone.stats.tokens == sum(map(len, expected)) and model.config._attn_implementation == attention


def test_shared_prompts_are_run_once(shared: SharedBatches) -> None:
    """A prompt that another one begins with is taken from the cache, up to its last full block."""
    model, guide = hot()
    prefix = [5 + i % 50 for i in range(300)]
    widths: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        run = []
        for end in ([60, 61], [62, 63], [64]):
            widths.clear()
            made = job(guide, [*prefix, *end], max_new_tokens=2, logit_bias=dict.fromkeys(_stops(), -100.0))
            tokens = finished(shared, made)
            run.append(sum(widths) - 1)  # the second token of the answer took a pass of its own
            assert tokens == finished(shared, made)
    finally:
        hook.remove()
    assert run[0] == 302 and run[1] <= 302 - 288 and run[2] <= 301 - 288


def test_nothing_is_left_after_closing() -> None:
    model, guide = hot()
    job(guide, ids("The"), CONSTRAINT)  # starts the threads of the compiler
    before = set(threading.enumerate())
    for kind in KINDS:
        engine = kind(model, guide)
        clients = [Client(engine, job(guide, ids("The"), max_new_tokens=400, num_answers=2)) for _ in range(3)]
        clients[0].wait_for_tokens(1)
        engine.end_jobs()
        for client in clients:
            client.wait()
            for end in client.ends.values():
                assert end.error is None or getattr(end.error, "code", "") == "server_shuts_down"
        assert not engine.alive()
        with pytest.raises(RequestRefused) as refused:
            engine.submit(job(guide, ids("The")), lambda event: None)
        assert refused.value.status == 503
        engine.close()
        engine.close()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not {name for name in left if "prefetch" not in name and "tqdm" not in name}, left
    assert model.config._attn_implementation == models.llama(vocabularies.demo()).config._attn_implementation


def test_the_demo_model_in_eager_attention() -> None:
    """The manager switches it to paged attention; jobs that run alone, and the time after it, have its own."""
    model, tokenizer = demo.load()
    model = model.double()
    guide = hg.Guide(model, tokenizer)
    prompt = list(tokenizer(demo.EXAMPLES[0].prompt)["input_ids"])
    plain = OneByOne(model, guide)
    expected = finished(plain, job(guide, prompt))
    plain.close()
    model.set_attn_implementation("eager")
    shared = SharedBatches(model, guide)
    try:
        assert model.config._attn_implementation == "paged|eager"
        seen: list[str] = []
        for inputs in ({}, {"attention_mask": torch.ones(1, len(prompt), dtype=torch.long)}, {}):
            hook = model.register_forward_pre_hook(lambda *_: seen.append(model.config._attn_implementation))
            assert finished(shared, job(guide, prompt, model_inputs=inputs)) == expected
            hook.remove()
            assert set(seen) == {"eager" if inputs else "paged|eager"}
            seen.clear()
    finally:
        shared.close()
    assert model.config._attn_implementation == "eager"
