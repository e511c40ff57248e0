"""Whatever generate() may be asked for, the fast loop serves it as the plain loop does, or hands it over."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema
import pytest
import torch
from transformers import (
    LogitsProcessor,
    StoppingCriteria,
    StoppingCriteriaList,
    TemperatureLogitsWarper,
    TextIteratorStreamer,
)
from transformers.generation.streamers import BaseStreamer

import hf_guided as hg
from hf_guided.backends.matcher import Matcher
from hf_guided.hf.compat import CACHE_NAME
from hf_guided.hf.decode.cache_slots import CacheSlots
from hf_guided.hf.drafts import Draft, DraftRequest
from tests import vocabularies
from tests.integration import models
from tests.integration.families import family
from tests.integration.test_decoder import CONSTRAINTS, MAX_NEW_TOKENS, SCHEMA, inputs, run, texts

RECORD = CONSTRAINTS[0]


def limited(guide: hg.Guide, constraints: Any, max_new_tokens: int = MAX_NEW_TOKENS, **options: Any) -> Any:
    """A logits processor with the limit that a decoder reads from the call."""
    return guide.logits_processor(constraints, max_new_tokens=max_new_tokens, **options)


@pytest.mark.parametrize(
    "arguments",
    [
        {"repetition_penalty": 1.7},
        {"min_new_tokens": 6},
        {"no_repeat_ngram_size": 4},
        {"max_new_tokens": 9},
        {"max_length": 20, "max_new_tokens": None},
        {"use_cache": False},
        {"prefill_chunk_size": 3},
        {"cache_implementation": "static"},
        {"num_return_sequences": 2, "do_sample": True, "top_k": 1},
        {"stop_strings": ["e", "q"]},
    ],
    ids=lambda arguments: "-".join(arguments),
)
@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_the_plain_loop_s_tokens(rows: int, arguments: dict[str, Any]) -> None:
    guide = family("llama")[1]
    constraints = [hg.Regex("[a-z0-9 ]{9,60}"), None, hg.Regex("(?:alphabet|[a-z ]{1,9}[.]){3,60}")][:rows]
    ours: dict[str, Any] = {}
    plain = dict(arguments)
    if "stop_strings" in arguments:  # arguments of the decoder, beside those of generate()
        plain["tokenizer"] = guide.tokenizer
        arguments = dict(arguments)
        ours["stop_strings"] = arguments.pop("stop_strings")
    limit = (
        plain.get("max_new_tokens", MAX_NEW_TOKENS) or plain["max_length"] - inputs("llama", rows)["input_ids"].shape[1]
    )
    expected = run("llama", rows, logits_processor=[limited(guide, constraints, limit)], **plain)
    for jump_forward in (False, True):  # nothing is forced in these
        decoder = guide.decoder(constraints, jump_forward=jump_forward, **ours)
        assert run("llama", rows, custom_generate=decoder, **arguments) == expected


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    "given",
    [
        lambda asked: {"position_ids": torch.arange(10, 17).expand_as(asked)},
        lambda asked: {"attention_mask": asked.float()},
    ],
    ids=["position_ids", "float mask"],
)
def test_positions_go_on_where_the_prompts_end(rows: int, given: Callable[[torch.Tensor], dict[str, Any]]) -> None:
    guide = family("gpt2")[1]
    constraints = CONSTRAINTS[:rows]
    arguments = given(inputs("gpt2", rows)["attention_mask"])
    plain = run("gpt2", rows, logits_processor=[limited(guide, constraints)], **arguments)
    assert run("gpt2", rows, custom_generate=guide.decoder(constraints, jump_forward=False), **arguments) == plain


@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
def test_a_dictionary_with_scores_and_all_the_rest(name: str) -> None:
    model, guide = family(name)
    asked = {"return_dict_in_generate": True, "output_scores": True, "output_logits": True, "max_new_tokens": 40}
    plain = model.generate(
        **inputs(name, 3), **asked, do_sample=False, logits_processor=[limited(guide, CONSTRAINTS[:3], 40)]
    )
    ours = model.generate(**inputs(name, 3), **asked, do_sample=False, custom_generate=guide.decoder(CONSTRAINTS[:3]))
    assert type(ours) is type(plain) and torch.equal(ours.sequences, plain.sequences)
    assert all(map(torch.equal, ours.scores, plain.scores)) and all(map(torch.equal, ours.logits, plain.logits))


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_a_dictionary_alone_is_the_fast_loop_s(name: str) -> None:
    model, guide = family(name)
    decoder = guide.decoder(RECORD)
    output = model.generate(
        **inputs(name, 1), do_sample=False, max_new_tokens=48, return_dict_in_generate=True, custom_generate=decoder
    )
    assert decoder.stats.forced_tokens > 0
    assert texts(name, 1, output.sequences) == run(name, 1, custom_generate=guide.decoder(RECORD))
    assert output[CACHE_NAME].get_seq_length() > 0


def test_a_lone_stop_string_is_one_text() -> None:
    guide = family("llama")[1]
    constraint = hg.Regex("[a-z ]{40}")
    plain = run(
        "llama",
        3,
        logits_processor=[limited(guide, constraint)],
        stop_strings="ea",
        tokenizer=guide.tokenizer,
    )
    assert run("llama", 3, custom_generate=guide.decoder(constraint, stop_strings="ea")) == plain


def test_beams_are_transformers_own() -> None:
    guide = family("llama")[1]
    asked = {"num_beams": 3, "early_stopping": True}
    plain = run("llama", 3, logits_processor=[limited(guide, CONSTRAINTS[:3])], **asked)
    assert run("llama", 3, custom_generate=guide.decoder(CONSTRAINTS[:3]), **asked) == plain


class Recorder(BaseStreamer):
    def __init__(self) -> None:
        self.puts: list[list[int]] = []
        self.ended = 0

    def put(self, value: torch.Tensor) -> None:
        self.puts.append(value.flatten().tolist())

    def end(self) -> None:
        self.ended += 1


@pytest.mark.parametrize("asked", [{}, {"return_dict_in_generate": True, "output_scores": True}])
@pytest.mark.parametrize("retokenize", [False, True])
@pytest.mark.parametrize("constraint", [RECORD, CONSTRAINTS[5]], ids=["begins with forced text", "does not"])
def test_a_streamer_gets_every_token_once(constraint: Any, retokenize: bool, asked: dict[str, Any]) -> None:
    model, guide = family("llama")
    streamer = Recorder()
    output = model.generate(
        **inputs("llama", 1),
        **asked,
        do_sample=False,
        max_new_tokens=48,
        custom_generate=guide.decoder(constraint, streamer=streamer, retokenize=retokenize),
    )
    sequences = output if torch.is_tensor(output) else output.sequences
    assert all(streamer.puts)  # generate() never puts nothing
    assert streamer.puts[0] == inputs("llama", 1)["input_ids"][0].tolist()
    assert sum(streamer.puts, []) == sequences[0].tolist()
    assert streamer.ended == 1


def test_an_iterator_over_a_streamer_ends_even_with_an_error() -> None:
    model, guide = family("llama")

    class Broken(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            if input_ids.shape[1] > 25:
                raise RuntimeError("broken on purpose")
            return torch.zeros(len(input_ids), dtype=torch.bool)

    streamer = TextIteratorStreamer(guide.tokenizer, skip_prompt=True, timeout=600)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            model.generate(
                **inputs("llama", 1),
                max_new_tokens=48,
                custom_generate=guide.decoder(RECORD, streamer=streamer),
                stopping_criteria=StoppingCriteriaList([Broken()]),
            )
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    text = "".join(streamer)
    thread.join()
    assert text.startswith('{"name"') and [str(error) for error in caught] == ["broken on purpose"]


def test_an_iterator_over_a_streamer_that_refuses_a_batch_ends() -> None:
    guide = family("llama")[1]
    streamer = TextIteratorStreamer(guide.tokenizer, timeout=600)
    with pytest.raises(ValueError, match="one row, got 3"):
        run("llama", 3, custom_generate=guide.decoder(RECORD, streamer=streamer))
    assert "".join(streamer) == ""


def test_a_criterion_may_answer_with_a_plain_bool() -> None:
    class Long(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> bool:
            return input_ids.shape[1] > 15

    guide = family("llama")[1]
    asked = {"stopping_criteria": StoppingCriteriaList([Long()])}
    plain = run("llama", 1, logits_processor=[limited(guide, RECORD)], **asked)
    assert run("llama", 1, custom_generate=guide.decoder(RECORD, jump_forward=False), **asked) == plain


def test_a_caller_s_criterion_sees_each_row_after_each_token() -> None:
    model, guide = family("llama")
    seen: set[tuple[int, ...]] = set()

    class Seen(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> torch.Tensor:
            seen.update(map(tuple, input_ids.tolist()))
            return torch.zeros(len(input_ids), dtype=torch.bool)

    given = inputs("llama", 3)
    output = model.generate(
        **given,
        do_sample=False,
        max_new_tokens=48,
        custom_generate=guide.decoder(CONSTRAINTS[:3]),
        stopping_criteria=StoppingCriteriaList([Seen()]),
    )
    prompts = given["input_ids"].tolist()
    expected = {
        (*prompt, *row[:end])
        for prompt, row in zip(prompts, texts("llama", 3, output), strict=True)
        for end in range(1, len(row) + 1)
    }
    assert expected <= seen


@pytest.mark.parametrize("name", ["llama", "mistral", "t5"])
@pytest.mark.parametrize("max_new_tokens", [30, 33, 40])
def test_a_budget_is_kept_though_text_is_forced(name: str, max_new_tokens: int) -> None:
    model, guide = family(name)
    decoder = guide.decoder(RECORD, max_new_tokens=max_new_tokens)
    torch.manual_seed(1)
    output = model.generate(
        **inputs(name, 8), do_sample=True, temperature=2.0, max_new_tokens=max_new_tokens, custom_generate=decoder
    )
    for row in texts(name, 8, output):
        assert row[-1] == guide.tokenizer.eos_token_id and len(row) <= max_new_tokens
        jsonschema.validate(json.loads(guide.vocabulary.decode_bytes(row)), SCHEMA)


@pytest.mark.parametrize("spare", [0, 1, 4])
def test_what_was_generated_is_taken_from_the_budget_of_forced_text(spare: int) -> None:
    """The tokenizer writes what is forced here in more tokens than there need to be."""
    tokenizer = vocabularies.demo()
    model = models.llama(tokenizer)
    guide = hg.Guide(model, tokenizer)
    pattern = "[ab]{9}(?:email){3}[0-9]"
    minimum = guide.compile(hg.Regex(pattern), "native").matcher().min_tokens_to_finish()
    assert minimum is not None
    budget = minimum + spare
    decoder = guide.decoder(hg.Regex(pattern), backend="native", max_new_tokens=budget)
    prompt = torch.tensor([guide.vocabulary.encode_bytes(b"one two")] * 4)
    asked = {"attention_mask": torch.ones_like(prompt), "do_sample": True, "max_new_tokens": budget}
    torch.manual_seed(1)
    for row in model.generate(prompt, **asked, custom_generate=decoder)[:, prompt.shape[1] :].tolist():
        assert tokenizer.eos_token_id in row
        written = guide.vocabulary.decode_bytes(row[: row.index(tokenizer.eos_token_id)]).decode()
        assert re.fullmatch(pattern, written)


def test_retokenized_text_is_what_the_tokenizer_writes() -> None:
    """A chosen token that is the beginning of another one gives way to it."""
    model, guide = family("llama")
    options = ["alphabet 42", "names of", "kind of 7"]
    prompt = torch.tensor([guide.vocabulary.encode_bytes(b"one:\n")] * 8)
    asked = {"attention_mask": torch.ones_like(prompt), "do_sample": True, "top_k": 0, "temperature": 3.0}
    counted = {}
    for retokenize in (False, True):
        decoder = guide.decoder(hg.Choice(options), retokenize=retokenize)
        torch.manual_seed(2)
        output = model.generate(prompt, **asked, max_new_tokens=20, custom_generate=decoder)
        stop = guide.tokenizer.eos_token_id
        rows = [row[: row.index(stop) + 1] for row in output[:, prompt.shape[1] :].tolist()]
        assert decoder.stats.tokens == sum(map(len, rows))
        usual = {option: guide.tokenizer(option, add_special_tokens=False)["input_ids"] for option in options}
        written = [guide.vocabulary.decode_bytes(row).decode() for row in rows]
        counted[retokenize] = sum(row == [*usual[text], stop] for text, row in zip(written, rows, strict=True))
    assert counted[False] < counted[True] == 8


def test_one_decoder_serves_many_calls() -> None:
    guide = family("llama")[1]
    decoder = guide.decoder(CONSTRAINTS[:3])
    first = run("llama", 3, custom_generate=decoder)
    assert run("llama", 3, custom_generate=decoder) == first
    shorter = run("llama", 3, custom_generate=guide.decoder(CONSTRAINTS[:3]), max_new_tokens=28)
    assert run("llama", 3, custom_generate=decoder, max_new_tokens=28) == shorter != first
    with pytest.raises(hg.BudgetTooSmall, match="max_new_tokens=5 is too small"):
        run("llama", 3, custom_generate=decoder, max_new_tokens=5)
    assert run("llama", 3, custom_generate=decoder) == first


def test_one_decoder_refuses_a_second_call_at_the_same_time() -> None:
    guide = family("llama")[1]
    decoder = guide.decoder(RECORD)
    expected = run("llama", 1, custom_generate=decoder)
    refused: list[str] = []

    class Meanwhile(StoppingCriteria):
        def __call__(self, input_ids: torch.Tensor, scores: Any, **kwargs: Any) -> bool:
            def work() -> None:
                with pytest.raises(hg.GenerationError) as raised:
                    run("llama", 1, custom_generate=decoder)
                refused.append(str(raised.value))

            if not refused:
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
            return False

    found = run("llama", 1, custom_generate=decoder, stopping_criteria=StoppingCriteriaList([Meanwhile()]))
    assert found == expected
    assert len(refused) == 1 and "one for each thread" in refused[0]
    assert run("llama", 1, custom_generate=decoder) == expected


def test_after_an_error_in_the_middle_the_next_call_works(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = family("llama")[1]
    decoder = guide.decoder(CONSTRAINTS[:3])
    expected = run("llama", 3, custom_generate=decoder)
    forwards = CacheSlots.run
    calls = []

    def interrupted(self: CacheSlots, *arguments: Any, **more: Any) -> torch.Tensor:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return forwards(self, *arguments, **more)

    monkeypatch.setattr(CacheSlots, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("llama", 3, custom_generate=decoder)
    assert run("llama", 3, custom_generate=decoder) == expected


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("kind", [RuntimeError, hg.CompileLimitExceeded])
def test_an_engine_that_raises_in_the_middle(
    kind: type[Exception], overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What breaks ends the call with that error; what gives up ends its row alone. Either way the next call works."""
    guide = family("llama")[1]
    constraints = [CONSTRAINTS[5], None, CONSTRAINTS[2]]
    decoder = guide.decoder(constraints, overlap=overlap)
    expected = run("llama", 3, custom_generate=decoder)
    fill = Matcher.fill_row
    calls: list[int] = []

    def broken(self: Matcher, *arguments: Any, **more: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise kind("an engine broke")
        return fill(self, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Matcher, "fill_row", broken)
        if kind is hg.CompileLimitExceeded:
            with pytest.warns(UserWarning, match="an engine broke"):
                found = run("llama", 3, custom_generate=decoder)
            assert sum(map(list.__ne__, found, expected)) == 1
        else:
            with pytest.raises(RuntimeError, match="an engine broke"):
                run("llama", 3, custom_generate=decoder)
    assert run("llama", 3, custom_generate=decoder) == expected


class Forcing(LogitsProcessor):
    """A caller's own, behind the masks: one token must come at one place."""

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if input_ids.shape[1] != 12:
            return scores
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([200]), 0.0)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_token_forced_from_outside(rows: int) -> None:
    """Where the plain loop closes the row, so does this one; where that raises, this does with the same words."""
    guide = family("llama")[1]
    constraints = [hg.Regex("[a-c]{8,12}"), None, hg.Regex("[0-9]{9}")][:rows]
    behind = [TemperatureLogitsWarper(1.5), Forcing()]
    plain = run("llama", rows, logits_processor=[limited(guide, constraints), *behind])
    assert run("llama", rows, logits_processor=behind, custom_generate=guide.decoder(constraints)) == plain
    processor = limited(guide, constraints, on_violation="raise")
    with pytest.raises(hg.TokenRejected) as raised:
        run("llama", rows, logits_processor=[processor, *behind])
    decoder = guide.decoder(constraints, on_violation="raise")
    with pytest.raises(hg.TokenRejected) as ours:
        run("llama", rows, logits_processor=behind, custom_generate=decoder)
    assert str(ours.value) == str(raised.value)
    assert (ours.value.row, ours.value.position) == (raised.value.row, raised.value.position)


def test_modes_that_no_loop_of_ours_serves_are_refused() -> None:
    guide = family("llama")[1]
    with pytest.raises(hg.UnsupportedConstraint, match="logits_processor"):
        run("llama", 1, custom_generate=guide.decoder(RECORD), penalty_alpha=0.6, top_k=4)


def test_what_the_decoder_cannot_keep_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    guide = family("llama")[1]
    with pytest.raises(ValueError, match="expected one of the two"):
        guide.decoder(RECORD, retokenize=True, draft="prompt_lookup")
    streamer = Recorder()
    with pytest.raises(ValueError, match="one row, got 3"):
        run("llama", 3, custom_generate=guide.decoder(CONSTRAINTS[:3], streamer=streamer))
    assert streamer.ended == 1
    monkeypatch.setattr("hf_guided.hf.decoder.in_step_with_others", lambda model: True)
    with pytest.raises(hg.UnsupportedConstraint, match="FSDP"):
        run("llama", 1, custom_generate=guide.decoder(RECORD))


def test_drafts_from_another_vocabulary_are_refused() -> None:
    guide = family("llama")[1]

    class Foreign:
        def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
            return [Draft([guide.vocabulary.padded_size]) for _ in asked]

        def reset(self, warp: Any = None) -> None:
            pass

    with pytest.raises(ValueError, match="of a DraftSource"):
        run("llama", 1, custom_generate=guide.decoder(None, draft=Foreign()))


def test_too_few_tokens_are_too_few_the_second_time_too() -> None:
    guide = family("llama")[1]
    decoder = guide.decoder(RECORD, max_new_tokens=3)
    for _ in range(2):
        with pytest.raises(hg.BudgetTooSmall):
            run("llama", 1, custom_generate=decoder, max_new_tokens=3)
