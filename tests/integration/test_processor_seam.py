"""The plain seam piece by piece, and ``hg.generate`` on top of it."""

from __future__ import annotations

import copy
import dataclasses
import io
import re
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr
from typing import Any

import pydantic
import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList
from transformers.generation.candidate_generator import AssistedCandidateGeneratorDifferentTokenizers

import hf_guided as hg
from hf_guided.backends.base import CompiledConstraint
from hf_guided.backends.network import NetworkBackend
from hf_guided.constraints.values import Constraint
from hf_guided.errors import BatchSizeError, InvalidConstraint
from tests import vocabularies
from tests.integration import models
from tests.integration.shared import guide, model

PATIENCE = 120.0  # seconds until a test that hangs fails instead
WORD = hg.Regex("[a-z]{2,5}")


def ids_of(*texts: str) -> Tensor:
    return torch.tensor([guide().vocabulary.encode_bytes(text.encode()) for text in texts])


def scores(rows: int = 1, width: int | None = None) -> Tensor:
    return torch.zeros(rows, width or model().config.vocab_size)


def alive(masked: Tensor) -> set[int]:
    return set(torch.nonzero(masked > float("-inf")).flatten().tolist())


def ask(*prompts: str, constraint: Any = WORD, own: Any = None, **kwargs: Any) -> list[hg.GuidedResult]:
    torch.manual_seed(0)
    asked = {"guide": guide(), "max_new_tokens": 30, **kwargs}
    return hg.generate(own or model(), vocabularies.demo(), list(prompts), constraint, **asked)


def token_ids(results: list[hg.GuidedResult]) -> list[list[int]]:
    return [result.token_ids for result in results]


# -- the processor ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_violation", ["close", "raise"])
def test_scores_of_another_width_are_refused(on_violation: Any) -> None:
    processor = guide().logits_processor(WORD, on_violation=on_violation)
    for _ in range(2):
        with pytest.raises(
            hg.VocabularySizeError, match="100 columns, and the guide was built for 2085; build it with"
        ):
            processor(ids_of("a"), scores(width=100))
    assert processor.stats.calls == 0


def test_refused_scores_in_between_disturb_nothing() -> None:
    processor = guide().logits_processor(hg.Choice(["yes"]))
    prompt = ids_of("a")
    processor(prompt, scores())
    with pytest.raises(hg.VocabularySizeError):
        processor(torch.tensor([[1, 2, 3, 4]]), scores(width=100))
    begun = torch.cat([prompt, ids_of("y")], dim=1)
    allowed = alive(processor(begun, scores())[0])
    assert allowed == {i for i, data in enumerate(guide().vocabulary.token_bytes) if data and b"es".startswith(data)}


def resized(width: int) -> Any:
    """The model of ``guide()``, whose embeddings got another width after the guide was made."""
    own = copy.deepcopy(model())
    own.resize_token_embeddings(width, mean_resizing=False)
    return own


@pytest.mark.parametrize("on_violation", ["close", "raise"])
@pytest.mark.parametrize("width", [2000, 2085 + 64])
@pytest.mark.parametrize(
    "mode",
    [
        {"do_sample": False},
        {"do_sample": True},
        {"num_beams": 3},
        {"num_return_sequences": 2, "do_sample": True},
        {"prompt_lookup_num_tokens": 3},
        {"max_new_tokens": 1},
    ],
    ids="-".join,
)
def test_a_guide_from_before_a_resize_writes_no_token(mode: dict[str, Any], width: int, on_violation: Any) -> None:
    """A guide of another model is the same case."""
    rows = 1 if "prompt_lookup_num_tokens" in mode else 2
    steps: list[int] = []
    own = resized(width)
    own.register_forward_hook(lambda *_: steps.append(1))
    processor = guide().logits_processor(WORD, on_violation=on_violation)
    asked = {"attention_mask": torch.ones(rows, 3, dtype=torch.long), "max_new_tokens": 9, **mode}
    for more in ({}, {"stopping_criteria": [processor.companion]}):
        steps.clear()
        with pytest.raises(hg.VocabularySizeError, match=f"{width} columns.*built for 2085; build it with this model"):
            own.generate(ids_of(*["abc"] * rows), **asked, **more, logits_processor=[processor])
        assert len(steps) == 1


def test_a_guide_from_before_a_resize_and_the_other_calls() -> None:
    own = resized(2085 + 64)
    given = {"attention_mask": torch.ones(1, 3, dtype=torch.long), "max_new_tokens": 9}
    with pytest.raises(hg.VocabularySizeError):
        own.generate(ids_of("abc"), **given, custom_generate=guide().decoder(WORD))
    with pytest.raises(hg.VocabularySizeError):
        ask("abc", own=own)


def test_the_cached_guide_follows_a_resize() -> None:
    own = copy.deepcopy(model())
    for width in (own.config.vocab_size, 2085 + 64, own.config.vocab_size):
        own.resize_token_embeddings(width, mean_resizing=False)
        (result,) = ask("abc", own=own, guide=None)
        assert result.finish_reason == "stop" and re.fullmatch("[a-z]{2,5}", result.text)


class OwnAssistant(AssistedCandidateGeneratorDifferentTokenizers):
    """A caller's subclass, which calls the assistant by itself."""

    def get_candidates(self, input_ids: Tensor, **kwargs: Any) -> tuple[Tensor, None]:
        more = {"max_new_tokens": 2, "do_sample": False, "attention_mask": torch.ones_like(input_ids)}
        found = self.assistant_model.generate(input_ids, **more, logits_processor=self.logits_processor)
        return found.clamp(max=model().config.vocab_size - 1), None


@pytest.mark.parametrize("subclass", [False, True], ids=["transformers' own", "a subclass"])
def test_an_assistant_of_another_width_changes_nothing(subclass: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same tokenizer with other padding, as small and large models of one family have."""
    if subclass:
        monkeypatch.setattr("transformers.generation.utils.AssistedCandidateGeneratorDifferentTokenizers", OwnAssistant)
    asked: dict[str, Any] = {"attention_mask": torch.ones(1, 3, dtype=torch.long), "max_new_tokens": 20}
    asked["do_sample"] = False
    expected = model().generate(ids_of("abc"), **asked, logits_processor=[guide().logits_processor(WORD)])
    assistant = resized(2085 + 64)
    drafts: list[int] = []
    assistant.register_forward_hook(lambda *_: drafts.append(1))
    processor = guide().logits_processor(WORD)
    asked |= dict.fromkeys(("tokenizer", "assistant_tokenizer"), vocabularies.demo())
    found = model().generate(ids_of("abc"), **asked, assistant_model=assistant, logits_processor=[processor])
    assert drafts and torch.equal(found, expected)


@pytest.mark.parametrize("assistant_width", [2085, 2100])
def test_a_guide_that_does_not_fit_the_main_model_is_refused(assistant_width: int) -> None:
    tokenizers = {"tokenizer": vocabularies.demo(), "assistant_tokenizer": vocabularies.demo()}
    asked = {"attention_mask": torch.ones(1, 3, dtype=torch.long), "max_new_tokens": 20, "do_sample": False}
    assistant = resized(assistant_width)
    with pytest.raises(hg.VocabularySizeError, match="2149 columns"):
        resized(2149).generate(
            ids_of("abc"),
            **asked,
            **tokenizers,
            assistant_model=assistant,
            logits_processor=[guide().logits_processor(WORD)],
        )


def test_assistant_with_the_same_width_and_other_tokens() -> None:
    """Its stream does not push out the main model's: both go on where they were."""
    processor = guide().logits_processor(hg.Choice(["yes", "no"]))
    prompt, foreign = ids_of("a"), ids_of("bcd")
    first = processor(prompt, scores())
    processor(foreign, scores())
    begun = torch.cat([prompt, ids_of("n")], dim=1)
    assert alive(processor(begun, scores())[0]) != alive(first[0])
    processor(torch.cat([foreign, ids_of("y")], dim=1), scores())
    ended = torch.cat([begun, ids_of("o")], dim=1)
    assert alive(processor(ended, scores())[0]) == {vocabularies.demo().eos_token_id}


def test_reset_begins_anew_whatever_the_tokens_are() -> None:
    processor = guide().logits_processor(hg.Choice(["yes", "no"]))
    prompt = ids_of("a")
    start = alive(processor(prompt, scores())[0])
    longer = torch.cat([prompt, ids_of("y")], dim=1)
    assert alive(processor(longer, scores())[0]) != start, "one token longer continues"
    processor.reset()
    assert alive(processor(longer, scores())[0]) == start, "after a reset it is a prompt"


def test_padding_columns_and_special_tokens_are_never_allowed() -> None:
    tokenizer = vocabularies.demo()
    allowed = alive(guide().logits_processor(hg.Regex("(?s).*"))(ids_of("a"), scores())[0])
    assert max(allowed) < len(tokenizer)
    assert allowed & set(tokenizer.all_special_ids) == {tokenizer.eos_token_id}


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_input_ids_of_other_integer_types(dtype: torch.dtype) -> None:
    processor = guide().logits_processor(hg.Choice(["yes"]))
    processor(ids_of("a").to(dtype), scores())
    ended = torch.cat([ids_of("a"), ids_of("yes")], dim=1).to(dtype)
    assert alive(processor(ended, scores())[0]) == {vocabularies.demo().eos_token_id}


def test_scores_that_need_gradients() -> None:
    """Somebody calls the processor outside generate()'s no_grad."""
    wanted = scores().requires_grad_()
    assert alive(guide().logits_processor(WORD)(ids_of("a"), wanted)[0])


def test_stats_count() -> None:
    processor = guide().logits_processor([WORD, None, WORD])
    ids = torch.full((3, 2), 9)
    before = processor.stats.calls, processor.stats.masked_rows
    processor(ids, scores(3))
    assert (before, processor.stats.calls, processor.stats.masked_rows) == ((0, 0), 1, 2)
    waited = processor.stats.wait_ns
    processor(torch.cat([ids, ids[:, :1]], dim=1), scores(3))
    assert (processor.stats.calls, processor.stats.masked_rows) == (2, 4)
    assert processor.stats.wait_ns == waited, "compiling is waited for once"
    assert min(processor.stats.track_ns, processor.stats.fill_ns, processor.stats.apply_ns) > 0


def test_free_rows_alone_pass_through() -> None:
    given = torch.randn(2, model().config.vocab_size)
    processor = guide().logits_processor(None)
    assert torch.equal(processor(torch.full((2, 2), 9), given), given)
    assert processor.stats.masked_rows == 0


def test_one_processor_of_two_prompt_batches_of_the_same_shape() -> None:
    processor = guide().logits_processor([hg.Regex("[a-f]{2,5}"), hg.Regex("[0-9]{2,5}")])
    for text in ("ab", "cd"):
        ids = torch.cat([ids_of(text), ids_of(text)])
        output = model().generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=12, do_sample=False, logits_processor=[processor]
        )
        letters, digits = (guide().vocabulary.decode_bytes(row[2:]).decode() for row in output.tolist())
        assert re.fullmatch("[a-f]{2,5}", letters) and re.fullmatch("[0-9]{2,5}", digits)


# -- compiling in the background -------------------------------------------------------------------------------------


class Gate:
    """Holds the native engine's compile until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.come, self.open = threading.Event(), threading.Event()
        compile_now = NetworkBackend.compile

        def compile_later(backend: NetworkBackend, constraint: Constraint) -> CompiledConstraint:
            self.come.set()
            assert self.open.wait(PATIENCE)
            return compile_now(backend, constraint)

        monkeypatch.setattr(NetworkBackend, "compile", compile_later)


def test_processor_is_there_before_its_grammar(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    fresh = hg.Guide(model(), vocabularies.demo())
    processor = fresh.logits_processor(hg.Choice(["yes"]))
    assert gate.come.wait(PATIENCE), "compiling has begun, and this thread goes on"
    with ThreadPoolExecutor(1) as pool:
        masked = pool.submit(processor, ids_of("a"), scores())
        assert not masked.done()
        gate.open.set()
        allowed = alive(masked.result(PATIENCE)[0])
    assert {guide().vocabulary.token_bytes[i] for i in allowed} <= {b"y", b"ye", b"yes"}
    assert processor.stats.wait_ns > 0


def test_a_free_prompt_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(monkeypatch)
    fresh = hg.Guide(model(), vocabularies.demo())
    future = fresh.submit(hg.Choice(["yes"]))
    fresh.logits_processor(None)(ids_of("a"), scores())
    assert not future.done()
    gate.open.set()
    future.result(PATIENCE)


def test_two_processors_share_one_compilation() -> None:
    # Without the second engine, which replaces the first at a time of its own.
    fresh = hg.Guide(model(), vocabularies.demo())
    assert fresh.compile(["yes", "no"]) is fresh.compile(hg.Choice(["yes", "no"]))


# -- hg.generate -----------------------------------------------------------------------------------------------------


class Pet(pydantic.BaseModel):
    """A model to get instances of."""

    kind: str = pydantic.Field(pattern="^(cat|dog)$")
    legs: int = pydantic.Field(ge=0, le=9)


@dataclasses.dataclass
class Point:
    """A dataclass to get instances of."""

    x: bool
    y: bool


def test_values_of_every_kind() -> None:
    asked = [
        Pet,
        Point,
        {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False},
        re.compile("(a|b)([0-9])"),
        hg.Choice(["yes", "no"]),
        hg.Grammar('root ::= "x" [0-9]'),
        None,
    ]
    results = ask(*"abcdefg", constraint=asked, batch_size=3, do_sample=True, max_new_tokens=60)
    pet, point, record, match, choice, grammar, free = results
    assert [result.finish_reason for result in results[:6]] == ["stop"] * 6
    assert isinstance(pet.value, Pet) and pet.value.kind in ("cat", "dog")
    assert isinstance(point.value, Point) and isinstance(point.value.x, bool)
    assert record.value in ({"n": 1}, {"n": 2})
    assert match.value.group(1) in "ab" and match.value.group(2) in "0123456789"
    assert choice.value in ("yes", "no")
    assert re.fullmatch("x[0-9]", grammar.value)
    assert free.value == free.text


def test_one_prompt_and_a_list_of_one() -> None:
    torch.manual_seed(0)
    (one,) = hg.generate(model(), vocabularies.demo(), "a", WORD, guide=guide())
    (same,) = ask("a")
    assert one.token_ids == same.token_ids and one.value.group() == one.text


def test_prompts_of_different_lengths_are_padded_left() -> None:
    prompts = ["a", "a longer prompt than that", "b"]
    assert token_ids(ask(*prompts)) == [ask(prompt)[0].token_ids for prompt in prompts]


def test_num_return_sequences_are_neighbours() -> None:
    asked = [hg.Regex("[a-f]{3}"), hg.Regex("[0-9]{3}")]
    results = ask("a", "b", constraint=asked, num_return_sequences=3, do_sample=True)
    assert len(results) == 6
    assert all(re.fullmatch("[a-f]{3}", result.text) for result in results[:3])
    assert all(re.fullmatch("[0-9]{3}", result.text) for result in results[3:])


def test_prefix_stands_in_front_of_the_text() -> None:
    results = ask("a", "b", constraint=Pet, prefix=['{"kind": "cat", "le', None], max_new_tokens=60)
    assert results[0].text.startswith('{"kind": "cat", "le')
    assert results[0].value.kind == "cat"
    assert results[1].finish_reason == "stop"


def test_prefix_is_put_behind_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []
    real = model().generate
    monkeypatch.setattr(model(), "generate", lambda **kwargs: (seen.append(kwargs["input_ids"]), real(**kwargs))[1])
    ask("Pet: ", constraint=Pet, prefix='{"kind')
    assert guide().vocabulary.decode_bytes(seen[0][0].tolist()) == b'Pet: {"kind'


@pytest.mark.parametrize(
    "mode",
    [
        {"assistant_model": models.llama(vocabularies.demo(), layers=1, seed=1)},
        {"prompt_lookup_num_tokens": 3},
    ],
    ids=["assistant", "prompt_lookup"],
)
def test_modes_for_one_prompt_take_lists(mode: dict[str, Any]) -> None:
    prompts = ["abcabc", "defdef", "gh"]
    assert token_ids(ask(*prompts, **mode)) == token_ids(ask(*prompts))


@pytest.mark.parametrize("mode", [{"num_beams": 3}, {"cache_implementation": "static"}, {"do_sample": True}], ids=str)
def test_other_modes(mode: dict[str, Any]) -> None:
    for result in ask("a", "bc", **mode):
        assert result.finish_reason == "stop" and re.fullmatch("[a-z]{2,5}", result.text)


def test_answers_longer_than_twenty_tokens_by_default() -> None:
    """Twenty tokens are transformers' default."""
    torch.manual_seed(0)
    (result,) = hg.generate(model(), vocabularies.demo(), "a", hg.Regex("([0-9]-){30}"), guide=guide())
    assert result.finish_reason == "stop"


def test_a_length_in_the_generation_config_is_kept() -> None:
    config = GenerationConfig(max_new_tokens=3, eos_token_id=vocabularies.demo().eos_token_id)
    torch.manual_seed(0)
    (result,) = hg.generate(model(), vocabularies.demo(), "a", None, guide=guide(), generation_config=config)
    assert (result.finish_reason, len(result.token_ids)) == ("length", 3)
    assert config.pad_token_id is None, "the caller's generation config is theirs"


def test_stop_tokens_of_the_call() -> None:
    stop = guide().vocabulary.padded_size - 1
    (result,) = ask("a", eos_token_id=stop)
    assert (result.finish_reason, result.token_ids[-1]) == ("stop", stop)
    assert re.fullmatch("[a-z]{2,5}", result.text)


def test_dict_outputs_of_generate() -> None:
    (result,) = ask("a", return_dict_in_generate=True, output_scores=True)
    assert result.finish_reason == "stop"


def test_other_logits_processors_are_kept() -> None:
    class Never(LogitsProcessor):
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            scores = scores.clone()
            scores[:, [i for i, data in enumerate(guide().vocabulary.token_bytes) if data and b"e" in data]] = -1e9
            return scores

    for theirs in ([Never()], LogitsProcessorList([Never()])):
        results = ask(*"abcdefgh", logits_processor=theirs)
        assert not any("e" in result.text for result in results)


def test_model_that_encodes_and_decodes() -> None:
    t5 = models.t5(vocabularies.demo())
    results = ask("a", "a longer prompt", own=t5, guide=hg.Guide(t5, vocabularies.demo()))
    assert all(result.finish_reason == "stop" and re.fullmatch("[a-z]{2,5}", result.text) for result in results)
    with pytest.raises(InvalidConstraint, match="decoder_input_ids"):
        ask("a", own=t5, guide=hg.Guide(t5, vocabularies.demo()), prefix="ab")


def test_chats_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = copy.deepcopy(vocabularies.demo())
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    own = hg.Guide(model(), tokenizer)
    seen: list[str] = []
    real = model().generate

    def generate(**kwargs: Any) -> Any:
        for row, mask in zip(kwargs["input_ids"], kwargs["attention_mask"], strict=True):
            seen.append(own.vocabulary.decode_bytes(row[mask == 1].tolist()).decode())
        return real(**kwargs)

    monkeypatch.setattr(model(), "generate", generate)
    for prompts, expected in [
        (chat, ["system: s\nuser: u\nassistant: "]),
        ([chat, "plain"], ["system: s\nuser: u\nassistant: ", "plain"]),
        ([chat, chat[1:]], ["system: s\nuser: u\nassistant: ", "user: u\nassistant: "]),
    ]:
        seen.clear()
        results = hg.generate(model(), tokenizer, prompts, WORD, guide=own, max_new_tokens=30)
        assert seen == expected and len(results) == len(expected)
    seen.clear()
    (result,) = hg.generate(model(), tokenizer, chat, WORD, guide=own, prefix="ab", max_new_tokens=30)
    assert seen == ["system: s\nuser: u\nassistant: ab"] and result.text.startswith("ab")


def test_progress_bar_only_when_asked_or_on_a_terminal() -> None:
    for progress, expected in [(True, True), (False, False), (None, False)]:
        told = io.StringIO()
        with redirect_stderr(told):
            ask("a", "b", batch_size=1, progress=progress)
        assert ("2/2" in told.getvalue()) is expected


def test_guides_are_kept_per_tokenizer_and_width() -> None:
    tokenizer = copy.deepcopy(vocabularies.demo())
    wider = models.llama(tokenizer, layers=1, padding=99)
    from hf_guided.generation.guided_call import guide_for

    assert guide_for(model(), tokenizer) is guide_for(model(), tokenizer)
    assert guide_for(wider, tokenizer) is not guide_for(model(), tokenizer)


def test_no_prompts_no_results() -> None:
    assert hg.generate(model(), vocabularies.demo(), [], WORD, guide=guide()) == []
    with pytest.raises(BatchSizeError):
        hg.generate(model(), vocabularies.demo(), ["a"], [WORD, None], guide=guide())


def test_stats_are_in_the_result() -> None:
    first, second = ask("a", "b")
    assert first.stats is second.stats and first.stats is not None and first.stats.masked_rows > 0


def test_quiet() -> None:
    """No warning, whatever the mode says about padding or lengths."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ask("a", "bcd", do_sample=True, temperature=2.0, num_return_sequences=2)


def test_torch_s_default_device_is_not_where_masks_are_made() -> None:
    """With ``torch.set_default_device("cuda")``, host tensors must still be on the host."""
    processor = guide().logits_processor(hg.JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}}))
    expected = guide().logits_processor(hg.JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}}))
    ids, row = ids_of("Say it: "), scores()
    for text in "{", '"':
        with torch.device("meta"):
            masked = processor(ids, row)
        assert torch.equal(masked, expected(ids, row))
        ids = torch.cat([ids, ids_of(text)], 1)


def test_the_fast_loop_does_not_use_torch_s_default_device() -> None:
    given: dict[str, Any] = {"input_ids": ids_of("Say it: "), "max_new_tokens": 20, "do_sample": False}
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    expected = model().generate(**given, custom_generate=guide().decoder(WORD))
    with torch.device("meta"):
        assert torch.equal(model().generate(**given, custom_generate=guide().decoder(WORD)), expected)
