"""Streamed answers: nothing that is shown is taken back, and in the end they are what is written without streaming."""

from __future__ import annotations

import contextlib
import copy
import gc
import json
import random
import re
import threading
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from types import SimpleNamespace
from typing import Any

import pydantic
import pytest
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided import demo
from hf_guided.constraints.tool_formats import formats
from hf_guided.generation import streaming
from hf_guided.generation.partial import PartialRow
from hf_guided.generation.threads import Cancellation
from tests import vocabularies
from tests.integration import models
from tests.integration.test_decoder import SCHEMA
from tests.integration.test_tool_calls import CALLS, FAMILIES, TOOLS, template
from tests.pairs import one_in
from tests.property.strategies import _ORDER as ORDER
from tests.property.test_partial_json import has_come_to, parts

NESTED = {
    "type": "object",
    "properties": {
        "a/b": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
            "maxItems": 2,
        },
        "é": {
            "type": "object",
            "properties": {"x": {"type": ["number", "null"]}, "~": {"type": "string", "maxLength": 9}},
        },
        "last": {"type": "boolean"},
    },
    "required": ["a/b", "é"],
}
CONSTRAINTS: list[Any] = [
    hg.JsonSchema(SCHEMA, whitespace="compact"),
    hg.JsonSchema(SCHEMA),
    hg.JsonSchema(ORDER),
    hg.JsonSchema(NESTED),
    hg.JsonSchema(NESTED, whitespace="compact"),
    hg.JsonSchema({"type": "number"}),
    hg.JsonSchema({"type": "string", "maxLength": 12}),
    hg.JsonSchema(
        {"anyOf": [{"type": "boolean"}, {"type": "null"}, {"type": "array", "items": {"enum": [1, 12, 123]}}]}
    ),
    hg.JsonSchema({"const": {"fixed": [1, 2, 3]}}),
    hg.JsonObject(),
    hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?"),
    hg.Regex(r"[^a]{1,8}é?"),
    hg.Choice(["red", "green with stripes", "東京"]),
    hg.Grammar('root ::= "<" root ">" | [a-z]+ "b"'),
    None,
]
BEGINNINGS = {0: '{"name": "', 2: '{"id": 1', 4: '{"a/b": [[1', 5: "-1", 10: "id-1"}
PROMPT = demo.EXAMPLES[0].prompt
TOKENIZERS = {"byte-level": vocabularies.tiny_byte_level, "demo": vocabularies.demo}


@cache
def loaded(name: str, seed: int) -> tuple[Any, PreTrainedTokenizerBase, hg.Guide]:
    tokenizer = TOKENIZERS[name]()
    model = models.llama(tokenizer, seed=seed, layers=1)
    return model, tokenizer, hg.Guide(model, tokenizer)


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Any]:
    return demo.load()


def repeats_a_name(text: str) -> bool:
    found: list[bool] = []

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found.append(len(members) > len(dict(members)))
        return dict(members)

    json.loads(text, object_pairs_hook=pairs)
    return any(found)


def follow(partials: Iterable[hg.Partial]) -> dict[int, list[hg.Partial]]:
    """Every answer's Partials, with what never changes checked."""
    rows: dict[int, list[hg.Partial]] = {}
    then: list[tuple[hg.Partial, Any]] = []
    for partial in partials:
        before = rows.setdefault(partial.index, [])
        if before:
            last = before[-1]
            assert last.result is None, "nothing comes behind the result"
            assert partial.text.startswith(last.text)
            assert (partial.thinking is None) == (last.thinking is None)
            assert (partial.thinking or "").startswith(last.thinking or "")
            assert (
                partial.result is not None
                or partial.closed
                or (partial.text, partial.thinking) != (last.text, last.thinking)
            )
        before.append(partial)
        then.append(
            (partial, copy.deepcopy(partial.value) if not isinstance(partial.value, re.Match) else partial.value)
        )
    for partial, value in then:
        assert partial.value == value, "a later step has changed it"
    for some in rows.values():
        result = some[-1].result
        assert result is not None
        assert (some[-1].text, some[-1].thinking) == (result.text, result.thinking)
    return rows


def check_json(some: list[hg.Partial]) -> None:
    """One answer in JSON, against what `json` reads in the end."""
    result = some[-1].result
    assert result is not None
    closed = [(pointer, partial) for partial in some for pointer in partial.closed]
    if result.finish_reason != "stop":
        assert all(has_come_to(one.value, other.value) for one, other in zip(some, some[1:], strict=False))
        return
    whole = json.loads(result.text)
    assert some[-1].value == whole
    if repeats_a_name(result.text):
        return
    known = dict(parts(whole))
    assert sorted(pointer for pointer, _ in closed) == sorted(known)
    for pointer, partial in closed:
        assert dict(parts(partial.value))[pointer] == known[pointer]
    assert all(has_come_to(partial.value, whole) for partial in some)


def same_results(found: dict[int, list[hg.Partial]], expected: list[hg.GuidedResult]) -> None:
    assert sorted(found) == list(range(len(expected)))
    for index, wanted in enumerate(expected):
        result = found[index][-1].result
        assert result is not None
        for name in ("text", "token_ids", "finish_reason", "error", "thinking"):
            assert getattr(result, name) == getattr(wanted, name), name
        if not isinstance(wanted.value, re.Match):
            assert result.value == wanted.value


def one_run(seed: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A call of a random kind; returns how many answers it had."""
    rng = random.Random(seed)
    model, tokenizer, guide = loaded(rng.choice(list(TOKENIZERS)), rng.randrange(3))
    which = [rng.randrange(len(CONSTRAINTS)) for _ in range(rng.choice([1, 1, 2, 3]))]
    arguments: dict[str, Any] = {
        "guide": guide,
        "max_new_tokens": rng.choice([48, 56]),
        "batch_size": rng.choice([1, 2, 8]),
    }
    sampled = rng.random() < 0.6
    arguments |= (
        {"do_sample": True, "temperature": rng.choice([1.0, 2.0]), "top_k": 0} if sampled else {"do_sample": False}
    )
    if sampled and rng.random() < 0.3:
        arguments["num_return_sequences"] = 2
    kind = rng.choice(["jumps", "jumps", "drafts", "stepwise", "criteria", "prompt lookup"])
    if kind == "drafts":
        arguments["draft"] = rng.choice([["grammar", "prompt_lookup"], "grammar", "prompt_lookup"])
    elif kind == "stepwise":
        arguments |= {"jump_forward": False}
    elif kind == "criteria":
        arguments["stop_strings"] = ["zq", "}}}"]
    elif kind == "prompt lookup" and arguments.get("num_return_sequences") is None:
        arguments["prompt_lookup_num_tokens"] = 3
    if rng.random() < 0.2:
        arguments["reasoning"] = hg.Reasoning(max_tokens=rng.choice([0, 5, 12]))
    elif rng.random() < 0.4:
        arguments["prefix"] = [BEGINNINGS.get(i) for i in which]
    monkeypatch.setenv("HF_GUIDED_OVERLAP", rng.choice(["0", "1", "auto"]))
    asked = (
        model,
        tokenizer,
        [f"{'What is it? ' * n}" for n in range(1, len(which) + 1)],
        [CONSTRAINTS[i] for i in which],
    )
    torch.manual_seed(seed)
    expected = hg.generate(*asked, **arguments)
    torch.manual_seed(seed)
    found = follow(hg.generate(*asked, stream=True, **arguments))
    same_results(found, expected)
    copies = arguments.get("num_return_sequences", 1)
    for index, some in found.items():
        constraint = CONSTRAINTS[which[index // copies]]
        if isinstance(constraint, (hg.JsonSchema, hg.JsonObject)):
            check_json(some)
        else:
            assert all(partial.value is None for partial in some[:-1])
    return len(found)


@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(8, 40, 8))])
def test_random_runs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(one_run(seed, monkeypatch) for seed in range(first, first + 8)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("first", range(40, 1000, 60))
def test_a_thousand_random_runs(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sum(one_run(seed, monkeypatch) for seed in range(first, first + 60)) >= 60


# -- tool calls, thinking, types ---------------------------------------------------------------------------------------


class Person(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=18)


@pytest.fixture(scope="module")
def guide(demo: PreTrainedTokenizerBase) -> hg.Guide:
    return hg.Guide(models.llama(demo, layers=1), demo)


@pytest.mark.parametrize("name", one_in(3, formats(), first=2))
def test_calls_come_as_they_close(guide: hg.Guide, name: str) -> None:
    """What a chat template writes, in pieces."""
    message = hg.ToolAnswer("", tuple(CALLS)).message
    text = guide.tokenizer.apply_chat_template([message], chat_template=template(name), tokenize=False)
    token_ids = guide.vocabulary.encode_bytes(text.encode())
    for seed in range(8):
        rng = random.Random(seed)
        row = PartialRow(0, guide.reader(hg.ToolCalls(TOOLS, name)))
        partials, left = [], token_ids
        while left:
            number = rng.choice([1, 1, 1, 2, 4])
            partials.append(row.add_tokens(left[:number]))
            left = left[number:]
        partials.append(row.add_tokens([guide.tokenizer.eos_token_id]))
        [some] = follow(partial for partial in partials if partial is not None).values()
        result = some[-1].result
        assert result is not None and list(result.value.calls) == CALLS and some[-1].value == result.value
        told = [pointer for partial in some for pointer in partial.closed]
        assert told == [*(f"/calls/{number}" for number in range(len(CALLS))), ""]
        for partial in some:
            assert list(partial.value.calls) == CALLS[: len(partial.value.calls)]
            # A call is there with its closing mark, which no argument holds.
            mark = FAMILIES[name].closes
            assert len(partial.value.calls) == partial.text.count(mark) or mark in ("", "}")
        assert [partial for partial in some if len(partial.value.calls) == 1], "long before the last"


@pytest.mark.parametrize("name", ["llama", "qwen_3"])
def test_hot_models_call(guide: hg.Guide, name: str) -> None:
    model, tokenizer = models.llama(guide.tokenizer, seed=len(name), layers=1), guide.tokenizer
    asked = hg.ToolCalls(TOOLS, name, "required")
    arguments: dict[str, Any] = {
        "guide": guide,
        "max_new_tokens": 80,
        "do_sample": True,
        "temperature": 3.0,
        "top_k": 0,
        "sequence_bias": {(tokenizer.eos_token_id,): 20.0},
        "num_return_sequences": 2,
        "show_tools": False,  # as a prompt that names them
    }
    torch.manual_seed(7)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*found no way to the end")
        expected = hg.generate(model, tokenizer, "Go: ", asked, **arguments)
        torch.manual_seed(7)
        found = follow(hg.generate(model, tokenizer, "Go: ", asked, stream=True, **arguments))
    same_results(found, expected)
    assert [result for result in expected if result.finish_reason == "stop"]
    for some in found.values():
        last = some[-1].value
        assert some[-1].result is not None and some[-1].result.value in (None, last)
        for partial in some:
            assert partial.value.calls == last.calls[: len(partial.value.calls)]


def test_thinking_is_apart(pair: tuple[Any, Any]) -> None:
    schema = Person.model_json_schema()
    reasoning = hg.Reasoning(max_tokens=12)
    prompts = [PROMPT, PROMPT + "<think>", PROMPT + "<think></think>"]
    arguments: dict[str, Any] = {"reasoning": reasoning, "do_sample": False, "max_new_tokens": 120}
    found = follow(hg.generate(*pair, prompts, schema, stream=True, **arguments))
    same_results(found, hg.generate(*pair, prompts, schema, **arguments))
    for index, some in found.items():
        result = some[-1].result
        assert result is not None and "think" not in result.text
        if index == 2:
            assert all(partial.thinking is None for partial in some)
            continue
        assert result.thinking
        assert [partial for partial in some if partial.thinking and not partial.text], "it comes first"
        assert all(partial.thinking == result.thinking for partial in some if partial.text)
        check_json(some)


def test_the_result_has_the_type_that_was_asked_for(pair: tuple[Any, Any]) -> None:
    *_, last = hg.generate(*pair, PROMPT, Person, stream=True, do_sample=False)
    assert last.result is not None
    assert isinstance(last.result.value, Person)
    assert last.value == last.result.value


def test_what_is_cut_shows_what_had_closed(pair: tuple[Any, Any]) -> None:
    endless = hg.Grammar("start: /[a-z]{3000}/")  # no search finds the end
    with pytest.warns(UserWarning, match="may be cut"):
        [*_, last] = hg.generate(*pair, "x", endless, stream=True, max_new_tokens=5)
    assert last.result is not None and last.result.finish_reason == "length" and last.value is None
    [*_, cut] = hg.generate(*pair, PROMPT, Person, stream=True, do_sample=False, stop_strings=['"age'])
    assert cut.result is not None and cut.result.finish_reason == "length"
    assert cut.value.model_fields_set == {"name"} and cut.value.name and cut.value.age is None
    assert cut.result.value is None


def test_characters_come_whole(pair: tuple[Any, Any]) -> None:
    """The vocabulary has no token for them but bytes."""
    model, tokenizer, guide = loaded("byte-level", 0)
    partials = list(hg.generate(model, tokenizer, "x", ["😀東é"], guide=guide, stream=True, jump_forward=False))
    assert [partial.text for partial in partials if partial.result is None] == ["😀", "😀東", "😀東é"]


# -- how it ends -------------------------------------------------------------------------------------------------------


class Forwards:
    """Counts the forward passes of a model, and lets something happen in one of them."""

    def __init__(self, model: Any, at: int = -1, happens: BaseException | None = None):
        self.number = 0

        def before(*args: Any) -> None:
            self.number += 1
            if self.number == at and happens is not None:
                raise happens

        self._hook = model.register_forward_pre_hook(before)

    def __enter__(self) -> Forwards:
        return self

    def __exit__(self, *args: object) -> None:
        self._hook.remove()


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "hf-guided-stream"]


ROUTES = [{}, {"jump_forward": False}]


@pytest.mark.parametrize("route", ROUTES, ids=["fast", "transformers"])
@pytest.mark.parametrize("how", ["close", "break", "error"])
def test_leaving_early_ends_the_call_within_a_step(
    pair: tuple[Any, Any], how: str, route: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = pair
    closing = Cancellation()
    monkeypatch.setattr(streaming, "Cancellation", lambda: closing)

    class Waits(LogitsProcessor):
        """Goes no further than the third step before the reader has gone."""

        steps = 0

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            if self.steps == 3:
                assert closing.wait(600)
            return scores

    waits = Waits()
    arguments = {**route, "max_new_tokens": 300, "logits_processor": [waits]}
    with Forwards(model) as forwards:
        partials = hg.generate(model, tokenizer, "x", hg.Regex("[a-z]{200}"), stream=True, **arguments)
        if how == "close":
            assert next(partials).text
            partials.close()
            with pytest.raises(StopIteration):
                next(partials)
        elif how == "break":
            for partial in partials:
                assert partial.text
                break
            del partials
        else:
            with pytest.raises(ZeroDivisionError), contextlib.closing(partials):
                for partial in partials:
                    raise ZeroDivisionError(partial)
    assert waits.steps <= 3 and forwards.number <= 3
    assert not ours()


def test_a_stream_that_is_dropped_leaves_nothing(pair: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_GUIDED_OVERLAP", "0")  # else a busy machine might start the thread that fills masks ahead
    list(hg.generate(*pair, "x", ["yes", "no"], stream=True))  # workers that stay have been started
    before = set(threading.enumerate())
    never_begun = hg.generate(*pair, "x", ["yes", "no"], stream=True)
    assert set(threading.enumerate()) <= before  # threads of earlier tests may end meanwhile
    del never_begun
    begun = hg.generate(*pair, "x", hg.Regex("[a-z]{200}"), stream=True, max_new_tokens=300)
    next(begun)
    assert ours()
    del begun
    gc.collect()
    assert not ours() and set(threading.enumerate()) <= before


@pytest.mark.parametrize("route", ROUTES[:2], ids=["fast", "transformers"])
def test_a_stream_may_be_collected_on_its_own_worker(pair: tuple[Any, Any], route: dict[str, Any]) -> None:
    unreachable, collected = threading.Event(), threading.Event()

    class Collects(LogitsProcessor):
        steps = 0

        def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
            self.steps += 1
            if self.steps == 3:
                assert unreachable.wait(600)
                gc.collect()
                collected.set()
            return scores

    collects = Collects()
    arguments = {**route, "max_new_tokens": 300, "logits_processor": [collects]}
    cycle: list[Any] = [hg.generate(*pair, "x", hg.Regex("[a-z]{200}"), stream=True, **arguments)]
    gc.disable()
    try:
        next(cycle[0])
        [worker] = ours()
        cycle.append(cycle)
        del cycle
        unreachable.set()
        assert collected.wait(600)
        worker.join(600)
    finally:
        gc.enable()
    assert not worker.is_alive() and collects.steps == 3


@pytest.mark.parametrize("kind", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("route", ROUTES, ids=["fast", "transformers"])
def test_what_the_model_raises_is_raised_where_it_is_read(
    pair: tuple[Any, Any], route: dict[str, Any], kind: type[BaseException]
) -> None:
    error = kind("in the model")
    model, tokenizer = pair
    seen = []
    with Forwards(model, 4, error), pytest.raises(type(error)) as told:
        for partial in hg.generate(model, tokenizer, "x", hg.Regex("[a-z]{200}"), stream=True, **route):
            seen.append(partial)
    assert told.value is error
    assert seen and not ours()


def test_a_stop_iteration_in_the_model_does_not_pass_for_the_end(pair: tuple[Any, Any]) -> None:
    model, tokenizer = pair
    with Forwards(model, 3, StopIteration()), pytest.raises(RuntimeError, match="StopIteration"):
        list(hg.generate(model, tokenizer, "x", hg.Regex("[a-z]{200}"), stream=True))


def test_at_the_end_there_is_nothing_more(pair: tuple[Any, Any]) -> None:
    partials = hg.generate(*pair, "x", ["yes", "no"], stream=True)
    assert list(partials)[-1].result is not None
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(partials)
    assert list(hg.generate(*pair, [], None, stream=True)) == []


def test_batches_run_in_order_and_tell_what_they_have_spent(pair: tuple[Any, Any]) -> None:
    spent: list[hg.SessionStats] = []
    here: list[threading.Thread] = []

    def note(stats: hg.SessionStats) -> None:
        spent.append(stats)
        here.append(threading.current_thread())

    asked = [hg.Regex(f"[a-z]{{{n}}}") for n in (3, 9, 3, 9, 3)]
    partials = list(hg.generate(*pair, list("abcde"), asked, stream=True, batch_size=2, stats=note, do_sample=False))
    assert [partial.index // 2 for partial in partials] == sorted(partial.index // 2 for partial in partials)
    ends = [partial for partial in partials if partial.result is not None]
    assert [partial.index for partial in ends] == [0, 1, 2, 3, 4], "a short answer does not wait for a long one"
    assert [partial.index for partial in partials].index(1) < partials.index(ends[0])
    assert len(spent) == 3 and set(here) == {threading.current_thread()}
    for partial in ends:
        assert partial.result is not None and partial.result.stats is spent[partial.index // 2]
    assert sum(one.tokens for one in spent) == sum(len(partial.result.token_ids) for partial in ends if partial.result)


@pytest.mark.parametrize(
    ("inside", "is_inside"),
    [
        (torch.autocast("cpu", dtype=torch.bfloat16), lambda: torch.is_autocast_enabled("cpu")),
        (torch.inference_mode(), torch.is_inference_mode_enabled),
    ],
    ids=["autocast", "inference_mode"],
)
def test_the_model_runs_as_it_would_here(pair: tuple[Any, Any], inside: Any, is_inside: Callable[[], bool]) -> None:
    seen = []
    model, tokenizer = pair
    hook = model.register_forward_pre_hook(lambda *args: seen.append(is_inside()))
    try:
        with inside:
            list(hg.generate(model, tokenizer, "x", ["yes", "no"], stream=True))
        assert seen and all(seen)
    finally:
        hook.remove()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"retries": 1}, "retries"),
        ({"continuous_batching": True}, "request_id_iter"),
        ({"num_beams": 2}, "num_beams"),
        ({"streamer": SimpleNamespace(put=print, end=print)}, "streamer"),
        ({"custom_generate": print}, "custom_generate"),
        ({"token_healing": True}, "token_healing"),
    ],
)
def test_what_cannot_be_streamed_is_refused_at_once(
    pair: tuple[Any, Any], arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=f"stream, {next(iter(arguments))}.*") as told:
        hg.generate(*pair, "x", ["yes", "no"], stream=True, **arguments)
    assert says in str(told.value) and not ours()


def test_a_bad_constraint_raises_at_once(pair: tuple[Any, Any]) -> None:
    with pytest.raises(hg.InvalidConstraint):
        hg.generate(*pair, "x", {"type": "int"}, stream=True)
    with pytest.raises(hg.BudgetTooSmall):
        hg.generate(*pair, "x", SCHEMA, stream=True, max_new_tokens=2)
