"""What a token limit did to an answer, against one plain forward pass and masks from every token of the vocabulary.

The oracle knows no mask of ours: a token is allowed by the format if a matcher takes it, and by the limit too if the
text can be finished after it in the tokens that are left then.
"""

from __future__ import annotations

import csv
import json
import math
import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pydantic
import pytest
import torch
import transformers
from transformers import LogitsProcessor

import hf_guided as hg
from hf_guided import demo
from hf_guided.backends.matcher import Matcher
from hf_guided.backends.network import FrameEngine
from hf_guided.cli import commands as cli
from hf_guided.generation.row_answers import RowSettings
from hf_guided.guide import calls_of
from hf_guided.integrations.answer_columns import AnswerColumns
from hf_guided.session import mass_record
from hf_guided.session.reasoning import Opening
from hf_guided.session.reasoning_gate import gate_constraint
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies
from tests.integration import models
from tests.integration.families import family
from tests.integration.test_budget import SCHEMA
from tests.pairs import once_each

ASKED: dict[str, Any] = {
    "flexible": hg.JsonSchema(SCHEMA),
    "compact": hg.JsonSchema(SCHEMA, whitespace="compact"),
    "regex": hg.Regex(r"(name: [a-z]+, ){2}[0-9]{2,}"),
    "choice": ["yes", "not in this life", "not in this long life"],
    "lark": hg.Grammar('start: "(" start ")" | "[" /[a-z]+/ "]"'),
}
HOT = {"do_sample": True, "temperature": 2.0, "top_k": 0}
GREEDY: dict[str, Any] = {"do_sample": False}
MODES: dict[str, dict[str, Any]] = {
    "greedy": GREEDY,
    "greedy without drafts": {**GREEDY, "draft": None},
    "grammar drafts": {**GREEDY, "draft": ["grammar", "prompt_lookup"]},
    "sampling": {**HOT, "seed": 3},
    "sampling with drafts": {**HOT, "draft": "prompt_lookup"},
    "several": {**HOT, "num_return_sequences": 3},
    "processor": {**GREEDY, "jump_forward": False},
    "processor, sampling": {**HOT, "jump_forward": False},
    "assisted": {**GREEDY, "prompt_lookup_num_tokens": 3},
    "log probabilities": {**GREEDY, "logprobs": True},
    "traced": {**GREEDY, "trace": True},
    "continuous": {**GREEDY, "continuous_batching": True},
}
PROMPTS = ["a", "bb bb bb", "the name and the name"]


class Loves(LogitsProcessor):
    """A model that wants nothing but some tokens."""

    def __init__(self, token_ids: Sequence[int]):
        self.token_ids = list(token_ids)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self.token_ids] += 6.0
        return scores


class Found(NamedTuple):
    """What the oracle found along an answer."""

    log_mass: float
    overruled: list[int]  # the tokens that the model would have chosen where the limit forbade them
    narrowed: int  # steps


@cache
def stage(name: str = "demo") -> tuple[Any, Any, hg.Guide]:
    tokenizer = getattr(vocabularies, name)()
    model = models.llama(tokenizer).double()
    return model, tokenizer, hg.Guide(model, tokenizer)


def brute_force(matcher: Matcher, left: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(vocab,) bool each: the tokens that the format allows, and those among them that the limit allows too."""
    by_format, by_both = torch.zeros(width, dtype=torch.bool), torch.zeros(width, dtype=torch.bool)
    needed = matcher.min_tokens_to_finish()
    for token_id in range(width):
        twin = matcher.fork()
        if twin.accept_token(token_id):
            by_format[token_id] = True
            rest = twin.min_tokens_to_finish()
            by_both[token_id] = rest is not None and rest <= left - 1
    return by_format, by_format if needed is None or needed > left else by_both


def by_masks(matcher: Matcher, left: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same, where the engine allows fewer tokens near the limit than those after which it could be kept."""
    bitmask = allocate_bitmask(2, width)
    matcher.fill_next_token_bitmask(bitmask, 0)
    matcher.fill_next_token_bitmask(bitmask, 1, tokens_left=left)
    first, second = unpack(bitmask, width)
    return first, second


def oracle(
    matcher: Matcher,
    prompt: Sequence[int],
    token_ids: Sequence[int],
    limit: int,
    masks: Any = brute_force,
    name: str = "demo",
    processor: Any = None,
) -> Found:
    """See the module."""
    model = stage(name)[0]
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *token_ids]])).logits[0, len(prompt) - 1 : -1].double()
    if processor is not None:
        logits = processor(None, logits)
    return along(logits, matcher, token_ids, limit, masks)


def along(
    logits: torch.Tensor, matcher: Matcher, token_ids: Sequence[int], limit: int, masks: Any = brute_force
) -> Found:
    """The oracle for the logits (tokens, vocab) before each token of an answer."""
    found = Found(0.0, [], 0)
    for index, token_id in enumerate(token_ids):
        by_format, by_both = masks(matcher, limit - index, logits.shape[-1])
        if (by_format != by_both).any():
            p = logits[index].softmax(-1)
            kept, preferred = p[by_both].sum() / p[by_format].sum(), int(p.where(by_format, -1.0).argmax())
            lost = [] if by_both[preferred] else [preferred]
            found = Found(found.log_mass + math.log(kept), found.overruled + lost, found.narrowed + 1)
        assert matcher.accept_token(token_id)
    return found


def answers(asked: Any, limit: int, name: str = "demo", **kwargs: Any) -> list[Any]:
    model, tokenizer, guide = stage(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return hg.generate(
            model, tokenizer, PROMPTS, asked, guide=guide, max_new_tokens=limit, progress=False, **kwargs
        )


def check(result: Any, found: Found, *, sampled: bool, exact: float = 1e-5, shortened_by: float | None = None) -> None:
    """The result against the oracle; generate() makes float32 of the logits."""
    assert result.limit_log_mass == pytest.approx(found.log_mass, abs=exact)
    lost = found.log_mass if shortened_by is None else shortened_by
    assert result.shortened == (math.exp(lost) < 0.5 if sampled else bool(found.overruled))


@pytest.mark.parametrize(("mode", "asked", "spare"), once_each(MODES, list(ASKED), [0, 1, 3, 6]))
def test_the_sum_and_the_flag_are_those_of_plain_forward_passes(mode: str, asked: str, spare: int) -> None:
    tokenizer, guide = stage()[1:]
    kwargs, constraint = MODES[mode], ASKED[asked]
    compiled = guide.compile(constraint)
    fewest = compiled.matcher().min_tokens_to_finish()
    assert fewest is not None
    limit = fewest + spare
    torch.manual_seed(spare)
    if asked == "lark" and kwargs.get("jump_forward", True):
        pytest.skip("the path to the end that is kept for a Lark grammar depends on where it was searched for")
    results = answers(constraint, limit, **kwargs)
    copies = kwargs.get("num_return_sequences", 1)
    narrowed = 0
    for i, result in enumerate(results):
        prompt = tokenizer(PROMPTS[i // copies])["input_ids"]
        masks = by_masks if asked == "lark" else brute_force
        found = oracle(compiled.matcher(), prompt, result.token_ids, limit, masks)
        check(result, found, sampled=kwargs["do_sample"], exact=1e-4 if "continuous_batching" in kwargs else 1e-5)
        narrowed += found.narrowed
        if result.trace is not None:
            chosen = [token.look.limit for token in result.trace.tokens if token.look is not None]
            assert result.trace.narrowed == sum(limit is not None for limit in chosen) <= found.narrowed
    assert narrowed, "the limit was to be felt"


THINK = hg.Reasoning(max_tokens=12)


@pytest.mark.parametrize("mode", ["greedy", "sampling", "processor", "processor, sampling"])
@pytest.mark.parametrize("spare", [0, 2, 8])
def test_thinking_that_the_limit_ends_counts_but_does_not_shorten(mode: str, spare: int) -> None:
    """Only the steps of the answer can, as by the masks after the thinking."""
    tokenizer, guide = stage()[1:]
    kwargs, constraint = MODES[mode], ASKED["compact"]
    gate = calls_of(guide).gate(THINK)
    assert gate is not None
    compiled = gate_constraint(guide.compile(constraint), gate, Opening.NOTHING)
    fewest = compiled.matcher().min_tokens_to_finish()
    assert fewest is not None
    torch.manual_seed(spare)
    results = answers(constraint, fewest + spare, reasoning=THINK, **kwargs)

    def of_answer(matcher: Matcher, left: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        by_format, by_both = by_masks(matcher, left, width)
        ended = b"</think>" in guide.vocabulary.decode_bytes(taken[: fewest + spare - left])
        return by_format, by_both if ended else by_format

    def of_thinking_too(matcher: Matcher, left: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
        free = unlimited.matcher()
        assert all(map(free.accept_token, taken[: fewest + spare - left]))
        return by_masks(free, 10**6, width)[0], by_masks(matcher, left, width)[1]

    unlimited = gate_constraint(guide.compile(constraint), calls_of(guide).gate(hg.Reasoning()), Opening.NOTHING)
    narrowed = 0
    for prompt, result in zip(PROMPTS, results, strict=True):
        taken = result.token_ids
        ids = tokenizer(prompt)["input_ids"]
        one = oracle(compiled.matcher(), ids, taken, fewest + spare, of_answer)
        whole = oracle(compiled.matcher(), ids, taken, fewest + spare, of_thinking_too)
        check(result, one._replace(log_mass=whole.log_mass), sampled=kwargs["do_sample"], shortened_by=one.log_mass)
        assert result.thinking_cut
        narrowed += one.narrowed
    assert narrowed


class Forbids(LogitsProcessor):
    """Other code that forbids some tokens."""

    def __init__(self, token_ids: Sequence[int]):
        self.token_ids = list(token_ids)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, self.token_ids] = -math.inf
        return scores


def containing(guide: hg.Guide, byte: bytes) -> list[int]:
    return [i for i, data in enumerate(guide.vocabulary.token_bytes) if data is not None and byte in data]


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "continuous"])
def test_a_dead_end_that_the_limit_caused_is_shortened(mode: str) -> None:
    """The text could go on for ever, but within the limit it could only end, which other code forbids."""
    guide = stage()[2]
    never, kwargs = Forbids(containing(guide, b"!")), MODES[mode]
    results = answers(hg.Regex("[a-z]+!"), 12, logits_processor=[never], **kwargs)
    for result in results:
        assert (result.finish_reason, result.shortened, result.limit_log_mass) == ("dead_end", True, -math.inf)
        assert result.text.isalpha(), "the format alone allowed more"
    results = answers(hg.Regex("[a-z]{3}!"), 40, logits_processor=[never], **kwargs)
    for result in results:
        assert (result.finish_reason, result.shortened, result.limit_log_mass) == ("dead_end", False, 0.0)


def test_a_processor_forgets_how_its_last_call_ended() -> None:
    """Also if both calls have the same prompt, whose rows it then uses again."""
    model, tokenizer, guide = stage()
    processor, never = guide.logits_processor(hg.Regex("[a-z]{3}!")), Forbids(containing(guide, b"!"))
    inputs = tokenizer(PROMPT, return_tensors="pt")
    with pytest.warns(UserWarning, match="none has a finite score"):
        model.generate(**inputs, **GREEDY, max_new_tokens=12, logits_processor=[never, processor])
    assert processor.dead_ends.keys() == {0}
    model.generate(**inputs, **GREEDY, max_new_tokens=12, logits_processor=[processor])
    assert not processor.dead_ends


def test_a_dead_end_that_the_limit_caused_in_continuous_batching() -> None:
    guide = stage()[2]
    kwargs: dict[str, Any] = {**MODES["continuous"], "suppress_tokens": containing(guide, b"!")}
    for result in answers(hg.Regex("[a-z]+!"), 12, **kwargs):
        assert (result.finish_reason, result.shortened, result.limit_log_mass) == ("dead_end", True, -math.inf)
    for result in answers(hg.Regex("[a-z]{3}!"), 40, **kwargs):
        assert (result.finish_reason, result.shortened, result.limit_log_mass) == ("dead_end", False, 0.0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("more", [{}, {"jump_forward": False}], ids=str)
def test_a_stream_says_it_of_dead_ends(more: dict[str, Any]) -> None:
    guide = stage()[2]
    never = Forbids(containing(guide, b"!"))
    given: dict[str, Any] = {"logits_processor": [never], **GREEDY, **more}
    whole = answers(hg.Regex("[a-z]+!"), 12, **given)
    streamed = {
        part.index: part.result
        for part in answers(hg.Regex("[a-z]+!"), 12, **given, stream=True)
        if part.result is not None
    }
    assert [streamed[i] for i in range(len(whole))] == whole and all(result.shortened for result in whole)


def test_an_answer_that_is_only_cut_is_not_shortened() -> None:
    """A free row, and a constraint whose engine keeps no limit: the finish reason says that they are cut."""
    for asked, kwargs in ((None, {}), (hg.Regex("[a-z]{50}"), {"backend": "xgrammar"})):
        for result in answers(asked, 12, **GREEDY, **kwargs):
            assert result.finish_reason != "length" or (result.shortened, result.limit_log_mass) == (False, 0.0)


def test_scores_are_those_that_the_processor_receives() -> None:
    model, tokenizer, guide = stage()
    constraint = ASKED["compact"]
    compiled = guide.compile(constraint)
    quotes = [i for i, text in enumerate(guide.vocabulary.token_bytes) if text is not None and b"q" in text]
    loves, limit = Loves(quotes), (compiled.matcher().min_tokens_to_finish() or 0) + 3
    for jump_forward in (True, False):
        results = answers(constraint, limit, logits_processor=[loves], jump_forward=jump_forward, **GREEDY)
        for prompt, result in zip(PROMPTS, results, strict=True):
            ids = tokenizer(prompt)["input_ids"]
            check(result, oracle(compiled.matcher(), ids, result.token_ids, limit, processor=loves), sampled=False)
            assert result.shortened, "the string could not go on for ever"


def test_an_answer_with_room_is_not_shortened() -> None:
    for kwargs in (GREEDY, {**HOT, "seed": 1}, {**GREEDY, "jump_forward": False}):
        for asked in (["yes", "no"], None, hg.Regex("[0-9]{3}")):
            model, tokenizer, guide = stage()
            results = hg.generate(model, tokenizer, PROMPTS, asked, guide=guide, max_new_tokens=40, **kwargs)
            assert [(result.shortened, result.limit_log_mass) for result in results] == [(False, 0.0)] * len(PROMPTS)


def test_beams_and_tokens_alone_say_nothing() -> None:
    model, tokenizer, guide = stage()
    results = answers(ASKED["flexible"], 25, num_beams=2, do_sample=False)
    assert {(result.shortened, result.limit_log_mass) for result in results} == {(None, None)}
    read = guide.read(ASKED["flexible"], results[0].token_ids)
    assert (read.shortened, read.limit_log_mass) == (None, None)


@pytest.mark.parametrize("more", [{}, {"logprobs": True}, {"trace": True}, {"jump_forward": False}], ids=str)
def test_a_stream_says_the_same(more: dict[str, Any]) -> None:
    limit = (stage()[2].compile(ASKED["compact"]).matcher().min_tokens_to_finish() or 0) + 2
    whole = answers(ASKED["compact"], limit, **GREEDY, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = answers(ASKED["compact"], limit, **GREEDY, **more, stream=True)
        streamed = {part.index: part.result for part in parts if part.result is not None}
    assert [streamed[i].token_ids for i in range(len(whole))] == [result.token_ids for result in whole]
    for i, result in enumerate(whole):
        assert streamed[i].shortened == result.shortened
        assert streamed[i].limit_log_mass == pytest.approx(result.limit_log_mass, abs=1e-5)


class Person(pydantic.BaseModel):
    name: str
    email: str
    age: int = pydantic.Field(ge=18, le=99)


PROMPT = demo.make_prompt("person", "Our gardener Daria Pinto is 50 years old, reachable at daria@laurel.example.")


def test_a_call_warns_once_and_names_the_number_and_the_limit() -> None:
    model, tokenizer = demo.load()
    with pytest.warns(UserWarning, match=r"max_new_tokens=20 shortened 1 of 2 answers") as caught:
        squeezed, free = hg.generate(
            model, tokenizer, [PROMPT, PROMPT], [Person, ["yes", "no"]], do_sample=False, max_new_tokens=20
        )
    assert len(caught) == 1 and caught[0].filename == __file__
    assert (squeezed.shortened, squeezed.finish_reason, free.shortened) == (True, "stop", False)
    with pytest.warns(UserWarning, match=r"max_new_tokens=20 shortened 1 of 1 answers") as caught:
        parts = list(hg.generate(model, tokenizer, PROMPT, Person, do_sample=False, max_new_tokens=20, stream=True))
    assert len(caught) == 1 and parts[-1].result == squeezed
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        [result] = hg.generate(model, tokenizer, PROMPT, Person, do_sample=False, max_new_tokens=100)
    assert (result.shortened, result.limit_log_mass) == (False, 0.0) and "shortened" not in result._repr_html_()
    assert "shortened" in squeezed._repr_html_()


def test_a_trace_shows_the_steps_that_the_limit_narrowed() -> None:
    model, tokenizer = demo.load()
    with pytest.warns(UserWarning, match="shortened"):
        [result] = hg.generate(model, tokenizer, PROMPT, Person, do_sample=False, max_new_tokens=20, trace=True)
    looks = [token.look for token in result.trace.tokens if token.look is not None and token.look.limit is not None]
    assert result.trace.narrowed == len(looks) > 0
    assert any(
        look.limit.overruled and not any(one.token_id == look.limit.preferred and one.allowed for one in look.best)
        for look in looks
    )
    page = json.loads(result.trace.html().partition('id="data">')[2].partition("</script>")[0])
    shown = [token["limit"] for token in page["tokens"] if "limit" in token]
    assert [one["overruled"] for one in shown] == [look.limit.overruled for look in looks]


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_batch_has_a_column(ending: str, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": PROMPT}))
    (tmp_path / "person.json").write_text(json.dumps(Person.model_json_schema()))
    out = tmp_path / f"out.{ending}"
    given = [
        "batch",
        "--model",
        "demo",
        "--input",
        str(tmp_path / "rows.jsonl"),
        "--output",
        str(out),
        "--device",
        "cpu",
    ]
    given += ["--schema", str(tmp_path / "person.json"), "--temperature", "0"]
    for limit, shortened in ((20, True), (100, False)):
        assert cli.main([*given, "--max-new-tokens", str(limit), "--overwrite"]) == 0
        if ending == "parquet":
            [value] = pq.read_table(out)["shortened"].to_pylist()
        elif ending == "csv":
            [value] = [json.loads(row["shortened"]) for row in csv.DictReader(out.read_text().splitlines())]
        else:
            value = json.loads(out.read_text())["shortened"]
        assert value is shortened


def test_columns_of_answers_say_it() -> None:
    answering = AnswerColumns(*demo.load(), Person, RowSettings(max_new_tokens=20, temperature=0), prompt_column="in")
    columns = answering({"in": [PROMPT, ""]})
    assert columns["shortened"] == [True, None] and columns["finish_reason"] == ["stop", None]


def test_the_pipeline_says_it() -> None:
    hg.register()
    model, tokenizer = demo.load()
    pipe = transformers.pipeline("guided-generation", model=model, tokenizer=tokenizer)
    for limit, shortened in ((20, True), (100, None)):
        [record] = pipe(PROMPT, response_format=Person, do_sample=False, max_new_tokens=limit)
        assert record.get("shortened") is shortened


def test_the_steps_of_a_call_of_ones_own() -> None:
    model, tokenizer, guide = stage()
    constraint = ASKED["compact"]
    limit = (guide.compile(constraint).matcher().min_tokens_to_finish() or 0) + 2
    inputs = tokenizer(PROMPTS[0], return_tensors="pt")
    start = inputs["input_ids"].shape[1]
    processor = guide.logits_processor(constraint, max_new_tokens=limit, overlap=True)
    for criteria in ([], [processor.companion]):  # the second call forgets the first
        output = model.generate(
            **inputs, do_sample=False, max_new_tokens=limit, logits_processor=[processor], stopping_criteria=criteria
        )
        steps = processor.limit_steps(0)
        found = oracle(
            guide.compile(constraint).matcher(), inputs["input_ids"][0].tolist(), output[0, start:].tolist(), limit
        )
        assert sum(step.log_mass for step in steps.values()) == pytest.approx(found.log_mass, abs=1e-5)
        assert [step.preferred for step in steps.values() if step.overruled] == found.overruled
        assert len(steps) == found.narrowed
    decoder = guide.decoder(constraint)
    output = model.generate(**inputs, do_sample=False, max_new_tokens=limit, custom_generate=decoder)
    found = oracle(
        guide.compile(constraint).matcher(), inputs["input_ids"][0].tolist(), output[0, start:].tolist(), limit
    )
    assert len(decoder.limit_steps(0)) == found.narrowed


def test_an_assistant_model() -> None:
    model, tokenizer, guide = stage()
    constraint = ASKED["compact"]
    compiled = guide.compile(constraint)
    limit = (compiled.matcher().min_tokens_to_finish() or 0) + 4
    assistant = models.llama(tokenizer, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = hg.generate(
            model.float(),
            tokenizer,
            PROMPTS,
            constraint,
            guide=guide,
            max_new_tokens=limit,
            do_sample=False,
            assistant_model=assistant,
        )
    model.double()
    for prompt, result in zip(PROMPTS, results, strict=True):
        ids = tokenizer(prompt)["input_ids"]
        check(result, oracle(compiled.matcher(), ids, result.token_ids, limit), sampled=False, exact=1e-3)


@pytest.mark.parametrize("jump_forward", [True, False])
def test_an_encoder_decoder(jump_forward: bool) -> None:
    tokenizer = vocabularies.demo()
    model = models.t5(tokenizer)
    guide = hg.Guide(model, tokenizer)
    compiled = guide.compile(ASKED["compact"])
    limit = (compiled.matcher().min_tokens_to_finish() or 0) + 2
    results = hg.generate(
        model,
        tokenizer,
        PROMPTS[0],
        ASKED["compact"],
        guide=guide,
        max_new_tokens=limit,
        do_sample=False,
        jump_forward=jump_forward,
    )
    start = model.generation_config.decoder_start_token_id or model.config.decoder_start_token_id
    ids = torch.tensor([tokenizer(PROMPTS[0])["input_ids"]])
    with torch.no_grad():
        answer = torch.tensor([[start, *results[0].token_ids]])
        logits = model(input_ids=ids, decoder_input_ids=answer).logits[0, :-1].double()
    check(results[0], along(logits, compiled.matcher(), results[0].token_ids, limit), sampled=False, exact=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "gemma3", "mistral"])
def test_models_that_run_tokens_in_other_ways(name: str) -> None:
    """Such as one token of each row in a pass, because of sliding windows."""
    model, guide = family(name)
    constraint = ASKED["regex"]
    compiled = guide.compile(constraint)
    limit = (compiled.matcher().min_tokens_to_finish() or 0) + 2
    results = hg.generate(
        model, guide.tokenizer, ["a", "b b b"], constraint, guide=guide, max_new_tokens=limit, do_sample=False
    )
    for prompt, result in zip(["a", "b b b"], results, strict=True):
        ids = guide.tokenizer(prompt)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([[*ids, *result.token_ids]])).logits[0, len(ids) - 1 : -1].double()
        check(result, along(logits, compiled.matcher(), result.token_ids, limit), sampled=False, exact=1e-3)


def test_steps_with_room_weigh_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    near: list[bool] = []
    asked = FrameEngine.is_near_limit

    def noted(engine: FrameEngine, tokens_left: int) -> bool:
        near.append(asked(engine, tokens_left))
        return near[-1]

    def unexpected(*arguments: Any) -> Any:
        raise AssertionError("a step with room was weighed")

    monkeypatch.setattr(FrameEngine, "is_near_limit", noted)
    monkeypatch.setattr(mass_record, "weighed", unexpected)
    model, tokenizer = demo.load()
    for kwargs in (GREEDY, {**GREEDY, "jump_forward": False}):
        hg.generate(model, tokenizer, PROMPT, Person, max_new_tokens=200, **kwargs)
    assert not any(near)


def test_a_row_that_ends_because_counting_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Near the limit the engine counts the tokens to the end of the text, and its work is limited."""
    write_mask = FrameEngine.write_mask

    def limited(engine: FrameEngine, words: Any, tokens_left: int | None = None) -> bool:
        if tokens_left is not None and tokens_left < 8:
            raise hg.CompileLimitExceeded("too much to count")
        return write_mask(engine, words, tokens_left)

    monkeypatch.setattr(FrameEngine, "write_mask", limited)
    monkeypatch.setattr(FrameEngine, "mask_key", lambda engine, tokens_left=None: None)
    for kwargs in (GREEDY, {**GREEDY, "jump_forward": False}):
        for result in answers(hg.Regex("[a-z]{3,60}!"), 12, **kwargs):
            assert (result.finish_reason, result.shortened) == ("dead_end", True)
            assert result.error is not None and "too much to count" in result.error and len(result.token_ids) < 12
