"""``hg.agenerate``: the same answers without blocking the event loop, and calls that end when their task does."""

from __future__ import annotations

import asyncio
import contextvars
import copy
import re
import threading
import time
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
import torch
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.errors import users_line
from hf_guided.generation import api
from hf_guided.generation.threads import THREAD_NAME, Cancellation, running, turns_of

LONG = hg.Regex("[a-z]{300}")
PROMPTS = [example.prompt for example in demo.examples(3, seed=5)]
ROUTES: dict[str, dict[str, Any]] = {
    "fast": {},
    "transformers": {"jump_forward": False},
    "beams": {"num_beams": 2, "do_sample": False},
    "assisted": {"prompt_lookup_num_tokens": 2},
    "traced": {"trace": True},
}


class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=18, le=99)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 300))


def ours() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name in (THREAD_NAME, "hf-guided-stream")]


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Any:
    yield
    for thread in ours():
        thread.join(60)
    assert not ours()


class Steps(LogitsProcessor):
    """Counts the steps of a call, and holds the third until it may go on."""

    def __init__(self, held: bool = True):
        self.number = 0
        self.reached, self.release = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.held = held

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.number += 1
        self.thread = threading.current_thread()
        if self.number == 3 and self.held:
            self.reached.set()
            assert self.release.wait(120)
        return scores


async def until(condition: Callable[[], bool]) -> None:
    """Wait on the loop, which must be free for that."""
    while not condition():
        await asyncio.sleep(0.005)


# -- the same as hg.generate -------------------------------------------------------------------------------------------


def test_results_are_those_of_generate(pair: tuple[Any, Any]) -> None:
    asked = (PROMPTS, [Person, re.compile("a{3,5}"), ["yes", "no"]])
    expected = hg.generate(*pair, *asked, do_sample=False, batch_size=2)
    found = run(hg.agenerate(*pair, *asked, do_sample=False, batch_size=2))
    assert [one.token_ids for one in found] == [one.token_ids for one in expected]
    assert isinstance(found[0].value, Person) and found[0].value == expected[0].value


@pytest.mark.parametrize("route", [route for route in ROUTES if route != "beams"])
def test_partials_are_those_of_generate(pair: tuple[Any, Any], route: str) -> None:
    async def main() -> list[hg.Partial]:
        return [partial async for partial in hg.agenerate(*pair, PROMPTS[0], Person, stream=True, **arguments)]

    arguments = {"do_sample": False, **ROUTES[route]}
    expected = list(hg.generate(*pair, PROMPTS[0], Person, stream=True, **arguments))
    found = run(main())
    assert [(one.text, one.closed) for one in found] == [(one.text, one.closed) for one in expected]
    assert found[-1].result is not None and isinstance(found[-1].result.value, Person)


@pytest.mark.parametrize("route", ["beams", "traced"])
def test_other_ways_of_generating(pair: tuple[Any, Any], route: str) -> None:
    arguments = {"do_sample": False, **ROUTES[route]}
    [expected] = hg.generate(*pair, PROMPTS[0], Person, **arguments)
    [found] = run(hg.agenerate(*pair, PROMPTS[0], Person, **arguments))
    assert found.token_ids == expected.token_ids and (found.trace is None) == (route != "traced")


def test_retries_and_continuous_batching(pair: tuple[Any, Any]) -> None:
    found = run(hg.agenerate(*pair, ["a", "b"], ["yes", "no"], do_sample=True, retries=1))
    assert {one.value for one in found} <= {"yes", "no"}
    found = run(hg.agenerate(*pair, ["a", "b"], ["yes", "no"], do_sample=False, continuous_batching=True))
    expected = hg.generate(*pair, ["a", "b"], ["yes", "no"], do_sample=False)
    assert [one.value for one in found] == [one.value for one in expected]


def test_errors_come_where_it_is_awaited(pair: tuple[Any, Any]) -> None:
    async def streamed(**arguments: Any) -> None:
        async for _ in hg.agenerate(*pair, "x", Person, stream=True, **arguments):
            pass

    with pytest.raises(hg.UnknownArgument, match="batch_size"):
        run(hg.agenerate(*pair, "x", Person, bach_size=3))
    with pytest.raises(hg.BudgetTooSmall):
        run(hg.agenerate(*pair, "x", Person, max_new_tokens=2))
    with pytest.raises(hg.UnknownArgument, match="batch_size"):
        run(streamed(bach_size=3))
    with pytest.raises(ValueError, match="stream, retries"):
        run(streamed(retries=1, do_sample=True))
    with pytest.raises(Exception, match="(?i)model|tokenizer|none"):  # what is no model at all
        run(hg.agenerate(None, pair[1], "x", Person))


class Raises(LogitsProcessor):
    def __init__(self, error: BaseException, at: int = 3):
        self.error, self.at = error, at

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.at -= 1
        if self.at == 0:
            raise self.error
        return scores


@pytest.mark.parametrize("raised", [ZeroDivisionError, StopIteration])
def test_what_the_model_raises_is_raised(pair: tuple[Any, Any], raised: type[Exception]) -> None:
    async def streamed() -> None:
        seen = []
        with pytest.raises(told):
            async for partial in hg.agenerate(*pair, "x", LONG, stream=True, logits_processor=[Raises(raised())]):
                seen.append(partial)
        assert seen, "what came before the error"

    told = RuntimeError if raised is StopIteration else raised
    with pytest.raises(told):
        run(hg.agenerate(*pair, "x", LONG, logits_processor=[Raises(raised())]))
    run(streamed())


# -- the event loop stays free -----------------------------------------------------------------------------------------


def test_the_loop_runs_while_the_model_does(pair: tuple[Any, Any]) -> None:
    """The model cannot go on before the loop has let it."""

    async def main() -> None:
        steps = Steps()
        task = asyncio.create_task(hg.agenerate(*pair, "x", LONG, logits_processor=[steps], max_new_tokens=400))
        await until(steps.reached.is_set)
        assert not task.done()
        steps.release.set()
        [result] = await task
        assert result.finish_reason == "stop" and steps.thread is not threading.current_thread()

    run(main())


def test_context_variables_of_the_task_are_seen(pair: tuple[Any, Any]) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class Looks(LogitsProcessor):
        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            seen.append(variable.get())
            return scores

    async def main() -> None:
        variable.set("here")
        await hg.agenerate(*pair, "x", ["yes"], logits_processor=[Looks()], stats=lambda _: seen.append(variable.get()))
        async for _ in hg.agenerate(*pair, "x", ["yes"], stream=True, logits_processor=[Looks()]):
            pass

    run(main())
    assert len(seen) >= 3 and set(seen) == {"here"}


@pytest.mark.parametrize("stream", [False, True])
def test_the_model_runs_as_it_would_here(pair: tuple[Any, Any], stream: bool) -> None:
    seen = []
    hook = pair[0].register_forward_pre_hook(
        lambda *_: seen.append((torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")))
    )

    async def main() -> None:
        with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
            if stream:
                async for _ in hg.agenerate(*pair, "x", ["yes"], stream=True):
                    pass
            else:
                await hg.agenerate(*pair, "x", ["yes"])

    try:
        run(main())
    finally:
        hook.remove()
    assert seen and set(seen) == {(True, True)}


# -- cancelling --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ROUTES)
def test_a_cancelled_task_ends_its_generation_at_the_next_token(pair: tuple[Any, Any], route: str) -> None:
    async def main() -> None:
        steps = Steps()
        arguments = {**ROUTES[route], "logits_processor": [steps], "max_new_tokens": 400}
        task = asyncio.create_task(hg.agenerate(*pair, "x", LONG, **arguments))
        await until(steps.reached.is_set)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done(), "it waits for the model"
        task.cancel()  # again, which changes nothing
        await asyncio.sleep(0)
        steps.release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        number = steps.number
        await asyncio.sleep(0.05)
        assert steps.number == number <= 4, "the generation is over"

    run(main())


@pytest.mark.parametrize("route", ["fast", "transformers", "assisted"])
@pytest.mark.parametrize("how", ["cancel", "aclose", "break", "error"])
def test_a_stream_that_is_left_ends_at_the_next_token(pair: tuple[Any, Any], how: str, route: str) -> None:
    async def main() -> None:
        steps = Steps()
        arguments = {**ROUTES[route], "logits_processor": [steps], "max_new_tokens": 400}
        begun = asyncio.Event()

        async def reads() -> None:
            async for _ in hg.agenerate(*pair, "x", LONG, stream=True, **arguments):
                begun.set()
                if how == "break":
                    break
                if how == "error":
                    raise ZeroDivisionError

        if how == "aclose":
            partials = hg.agenerate(*pair, "x", LONG, stream=True, **arguments)
            assert (await partials.__anext__()).text
            await until(steps.reached.is_set)
            closing = asyncio.create_task(partials.aclose())
            await asyncio.sleep(0.02)
            assert not closing.done(), "it waits for the model"
            steps.release.set()
            await closing
            with pytest.raises(StopAsyncIteration):
                await partials.__anext__()
        else:
            task = asyncio.create_task(reads())
            await begun.wait()
            if how == "cancel":
                await until(steps.reached.is_set)
                task.cancel()
                await asyncio.sleep(0.02)
            else:
                await asyncio.sleep(0.02)
                assert task.done()
            steps.release.set()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled() == (how == "cancel")
            assert how != "error" or isinstance(task.exception(), ZeroDivisionError)
        await until(lambda: not ours())
        assert steps.number <= 4

    run(main())


def test_cancelling_ends_continuous_batching(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = pair[0]
    forwards = []
    began, cancelled = threading.Event(), threading.Event()
    release_when_cancelled(monkeypatch, cancelled)

    def held(*_: Any) -> None:
        forwards.append(1)
        began.set()
        if len(forwards) == 3:
            assert cancelled.wait(120)
        if len(forwards) > 3:  # so that the flag is seen long before the answer is complete
            time.sleep(0.01)

    hook = model.register_forward_pre_hook(held)

    async def main() -> None:
        task = asyncio.create_task(
            hg.agenerate(*pair, "x", LONG, continuous_batching=True, do_sample=False, max_new_tokens=400)
        )
        await until(began.is_set)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        number = len(forwards)
        await asyncio.sleep(0.1)
        assert len(forwards) == number < 300

    try:
        run(main())
    finally:
        hook.remove()


def test_a_coroutine_that_is_never_awaited_begins_nothing(pair: tuple[Any, Any]) -> None:
    async def main() -> None:
        hg.agenerate(*pair, "x", LONG).close()
        await hg.agenerate(*pair, "x", LONG, stream=True).aclose()
        assert not ours()

    run(main())


def release_when_cancelled(monkeypatch: pytest.MonkeyPatch, event: threading.Event) -> None:
    """Set an event as soon as a call has been told to end."""
    original = Cancellation.set

    def told(self: Cancellation) -> None:
        original(self)
        event.set()

    monkeypatch.setattr(Cancellation, "set", told)


def test_the_end_of_the_program_ends_the_generation(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """``asyncio.run`` cancels what still runs, and returns when that has ended."""
    steps = Steps()
    release_when_cancelled(monkeypatch, steps.release)

    async def main() -> None:
        arguments: dict[str, Any] = {"logits_processor": [steps], "max_new_tokens": 400}
        task = asyncio.create_task(hg.agenerate(*pair, "x", LONG, **arguments))
        await until(steps.reached.is_set)
        assert not task.done()

    asyncio.run(main())
    assert steps.number <= 4


# -- several calls on one model ----------------------------------------------------------------------------------------


def test_calls_on_one_model_run_one_after_another(pair: tuple[Any, Any]) -> None:
    inside, most, order = 0, 0, []

    class Counts(LogitsProcessor):
        """Of one call; the first of its steps counts it in, its statistics count it out."""

        def __init__(self, name: int):
            self.name = name

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            nonlocal inside, most
            if self.name not in order:
                order.append(self.name)
                inside += 1
                most = max(most, inside)
            return scores

    def out(_: hg.SessionStats) -> None:
        nonlocal inside
        inside -= 1

    async def one(name: int) -> Any:
        arguments: dict[str, Any] = {"logits_processor": [Counts(name)], "stats": out, "do_sample": False}
        if name % 2:
            return [
                partial async for partial in hg.agenerate(*pair, PROMPTS[name % 3], Person, stream=True, **arguments)
            ]
        return await hg.agenerate(*pair, PROMPTS[name % 3], Person, **arguments)

    async def main() -> list[Any]:
        return await asyncio.gather(*map(one, range(6)))

    found = run(main())
    assert most == 1 and order == list(range(6))
    for name, answers in enumerate(found):
        [expected] = hg.generate(*pair, PROMPTS[name % 3], Person, do_sample=False)
        result = answers[-1].result if name % 2 else answers[0]
        assert result.token_ids == expected.token_ids


def test_a_cancelled_call_does_not_disturb_those_that_wait(
    pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = []
    answers = api._answers

    def noted(*arguments: Any, **options: Any) -> Any:
        begun.append(arguments[2])
        return answers(*arguments, **options)

    monkeypatch.setattr(api, "_answers", noted)

    async def main() -> None:
        first, waiting = Steps(), Steps(held=False)
        running = asyncio.create_task(
            hg.agenerate(*pair, "x", LONG, logits_processor=[first], max_new_tokens=400, do_sample=False)
        )
        await until(first.reached.is_set)
        dropped = asyncio.create_task(hg.agenerate(*pair, "dropped", LONG, logits_processor=[waiting]))
        last = asyncio.create_task(hg.agenerate(*pair, PROMPTS[0], Person, do_sample=False))
        await until(lambda: len(turns_of(pair[0])._waiting) == 2)
        dropped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dropped  # at once, though the first still runs
        assert waiting.number == 0 and not running.done()
        running.cancel()
        await asyncio.sleep(0)
        first.release.set()
        [result] = await last
        assert running.cancelled() and waiting.number == 0 and begun == ["x", PROMPTS[0]]
        assert result.token_ids == hg.generate(*pair, PROMPTS[0], Person, do_sample=False)[0].token_ids

    run(main())


def test_a_call_inside_of_a_stream_does_not_wait_for_its_reader(pair: tuple[Any, Any]) -> None:
    async def main() -> list[str]:
        found = []
        async for partial in hg.agenerate(*pair, "x", re.compile("[a-z]{5}"), stream=True):
            [result] = await hg.agenerate(*pair, "x", ["yes", "no"])
            found.append(result.value or "")
            assert partial.text
        return found

    assert set(run(main())) <= {"yes", "no"}


def test_two_event_loops_share_a_model(pair: tuple[Any, Any]) -> None:
    expected = [hg.generate(*pair, prompt, Person, do_sample=False)[0].token_ids for prompt in PROMPTS]
    found: dict[int, Any] = {}

    def thread(number: int) -> None:
        found[number] = run(hg.agenerate(*pair, PROMPTS[number], Person, do_sample=False))[0].token_ids

    threads = [threading.Thread(target=thread, args=(number,)) for number in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(120)
    assert [found[number] for number in range(3)] == expected


def test_a_callback_may_call_too(pair: tuple[Any, Any]) -> None:
    """The call that it makes is not the one that the task cancels, and ends nothing when it closes."""
    inner: list[str] = []

    def note(_: hg.SessionStats) -> None:
        partials = hg.generate(*pair, "x", ["yes", "no"], stream=True)
        next(partials)
        partials.close()
        inner.append("closed")

    found = run(hg.agenerate(*pair, ["a", "b"], ["yes", "no"], batch_size=1, stats=note))
    assert len(found) == 2 and inner == ["closed"] * 2


def test_a_cancellation_that_comes_while_a_job_ends_is_not_lost() -> None:
    release, reached = threading.Event(), threading.Event()

    def job(_: Cancellation) -> None:
        reached.set()
        assert release.wait(120)

    async def one(futures: list[Any]) -> None:
        async with running(object(), job, users_line()) as ended:
            futures.append(ended)
            await until(reached.is_set)

    async def main() -> None:
        futures: list[Any] = []
        task = asyncio.create_task(one(futures))
        await until(reached.is_set)
        await asyncio.sleep(0.1)  # the task waits for the end
        task.cancel()
        await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert futures[0].done()

    run(main())


def test_wrappers_of_a_model_share_its_turns(pair: tuple[Any, Any]) -> None:
    model = pair[0]
    assert turns_of(SimpleNamespace(_orig_mod=model)) is turns_of(model)  # as torch.compile wraps one
    assert turns_of(copy.copy(model)) is not turns_of(model)
