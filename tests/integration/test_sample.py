"""hg.sample with real models: an enumeration of all token sequences in float64 has the same weights.

The oracle runs each text alone, in one pass and without a cache. What the sampler itself does is tested with a toy
model in tests/unit/test_sample.py.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import hf_guided as hg
from hf_guided.generation.sample import Particles
from hf_guided.guide import calls_of
from hf_guided.session.tensor_parallel import Ranks
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES, family, log_p_after

ROWS_MOVE = ["llama", "qwen2", "mistral", "gpt2", "t5", "mamba"]
OPTIONS = ["red", "reds", "the", "a", "12"]
PROMPT = "Anna booked two"


def sampled(prompts: Any, constraint: Any, *, name: str = "llama", **arguments: Any) -> list[hg.Samples]:
    model, guide = family(name)
    return hg.sample(model, guide.tokenizer, prompts, constraint, guide=guide, **arguments)


def enumerated(name: str, prompt: str, texts: Sequence[str]) -> dict[str, float]:
    """The probability of each text: the sum over all token sequences that join to it, and a stop token."""
    model, guide = family(name)
    ids, stop = guide.tokenizer(prompt)["input_ids"], guide.tokenizer.eos_token_id
    pieces = {i: guide.vocabulary.decode_bytes([i]) for i in range(len(guide.tokenizer)) if guide.vocabulary.is_text(i)}
    found = dict.fromkeys(texts, 0.0)

    def follow(output: list[int], text: bytes, mass: float) -> None:
        shares = log_p_after(model, ids, output).exp()
        if text.decode() in found:
            found[text.decode()] += mass * float(shares[stop])
        for i, piece in pieces.items():
            if any(option.encode().startswith(text + piece) for option in texts):
                follow([*output, i], text + piece, mass * float(shares[i]))

    follow([], b"", 1.0)
    return found


@pytest.mark.parametrize("name", ROWS_MOVE)
def test_enough_particles_give_the_enumeration(name: str) -> None:
    truth = enumerated(name, PROMPT, OPTIONS)
    [samples] = sampled(PROMPT, OPTIONS, name=name, particles=500)
    total = math.fsum(truth.values())
    assert math.exp(samples.log_evidence) == pytest.approx(total, rel=1e-9)
    assert dict(zip(samples.texts, samples.weights, strict=True)) == pytest.approx(
        {text: p / total for text, p in truth.items()}, abs=1e-9
    )
    assert samples.best() == max(truth, key=lambda text: truth[text]) and samples.unfinished == 0.0


@pytest.mark.parametrize(("name", "method"), [*((name, "expand") for name in ROWS_MOVE), ("llama", "importance")])
def test_moved_rows_have_the_logits_of_their_texts_alone(
    name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beyond the sliding window of Mistral."""
    model, guide = family(name)
    ids = guide.tokenizer(PROMPT)["input_ids"]
    sequences: list[list[int]] = [[]]
    moved: list[bool] = []
    step = Particles.step

    def checked(self: Particles, logits: Tensor) -> tuple[list[int], list[int]]:
        assert logits.dtype == torch.float64 and len(logits) == len(sequences)
        for sequence, line in zip(sequences, logits, strict=True):
            assert torch.allclose(line.log_softmax(-1), log_p_after(model, ids, sequence), atol=1e-9)
        parents, tokens = step(self, logits)
        moved.append(parents != list(range(len(sequences))))
        sequences[:] = [[*sequences[i], token] for i, token in zip(parents, tokens, strict=True)]
        return parents, tokens

    monkeypatch.setattr(Particles, "step", checked)
    sampled(PROMPT, hg.Regex("[a-z ]{12,16}"), name=name, particles=5, method=method, seed=4)
    assert len(moved) > 6 and sum(moved) > 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["expand", "importance"])
def test_few_particles_are_unbiased(method: str) -> None:
    """For the texts that come often enough for a mean; the toy model's tests are stricter."""
    truth, runs = enumerated("llama", PROMPT, OPTIONS), 2000
    found = [sampled(PROMPT, OPTIONS, particles=3, seed=seed, method=method)[0] for seed in range(runs)]
    for text, p in {**truth, "all": math.fsum(truth.values())}.items():
        weights = [dict(zip(one.texts, one.weights, strict=True)) | {"all": 1.0} for one in found]
        values = [math.exp(one.log_evidence) * each.get(text, 0.0) for one, each in zip(found, weights, strict=True)]
        mean = math.fsum(values) / runs
        error = math.sqrt(math.fsum((value - mean) ** 2 for value in values)) / runs
        if sum(value > 0 for value in values) >= 200:
            assert abs(mean - p) <= 4.5 * error + 1e-12, text


def test_temperature_divides_the_logits_of_each_step() -> None:
    model, guide = family("llama")
    ids = guide.tokenizer(PROMPT)["input_ids"]
    [samples] = sampled(PROMPT, ["a"], temperature=2.0)
    log_p = 0.0
    for output, token in ([], guide.tokenizer("a")["input_ids"][0]), (guide.tokenizer("a")["input_ids"], 0):
        token = guide.tokenizer.eos_token_id if output else token
        log_p += float((log_p_after(model, ids, output) / 2).log_softmax(-1)[token])
    assert samples.log_evidence == pytest.approx(log_p, abs=1e-9)


def test_seeds_decide_the_draws() -> None:
    form = hg.Regex("[a-z]{3,6}")

    def drawn(prompts: Any, **arguments: Any) -> list[dict[str, float]]:
        return [
            dict(zip(one.texts, one.weights, strict=True)) for one in sampled(prompts, form, particles=5, **arguments)
        ]

    first, again, other = (drawn([PROMPT, "The"], seed=seed) for seed in (1, 1, 2))
    assert first == again != other and first[0] != first[1]
    assert drawn("The", seed=[9]) == drawn(["The"], seed=[9])
    torch.manual_seed(3)
    one = drawn("The")
    torch.manual_seed(3)
    assert drawn("The") == one
    assert sampled("The", form, particles=5, method="importance", seed=1)[0].texts


def test_the_limit_ends_every_text() -> None:
    """Also where the format has no longest text; an engine without a way to the end leaves texts unfinished."""
    [samples] = sampled("The", hg.Regex("(ab)*c"), particles=8, max_new_tokens=7, seed=0)
    assert samples.unfinished == 0.0 and all(text.endswith("c") for text in samples.texts)
    with pytest.raises(hg.BudgetTooSmall):
        sampled("The", hg.Regex("[a-z]{40}"), max_new_tokens=3)
    with pytest.warns(UserWarning, match="keeps no token limit"):
        [cut] = sampled("The", hg.Regex("(ab)*c"), particles=8, max_new_tokens=7, seed=0, backend="llguidance")
    assert 0.0 < cut.unfinished < 1.0 and sum(cut.weights) == pytest.approx(1)


def test_prompts_have_constraints_and_values_of_their_own() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}
    first, second = sampled([PROMPT, "The"], [schema, hg.Choice(["x", "y"])], particles=8, seed=0)
    assert first.best() in ({"a": True}, {"a": False}) and second.best() in ("x", "y")
    assert {json_value["a"] for json_value, _ in first.answers} <= {True, False} and len(first.answers) <= 2
    assert set(second.values) == {"x", "y"} and second.answers[0] == (second.values[0], second.weights[0])


def test_warpers_of_the_generation_config_are_named_and_not_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = sampled(PROMPT, OPTIONS)
    given = model.generation_config
    changed = {"temperature": 0.3, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3, "num_beams": 2}
    monkeypatch.setattr(model, "generation_config", type(given)(**{**given.to_dict(), **changed}))
    with pytest.warns(UserWarning, match=r"top_p=0.9, repetition_penalty=1.3, top_k=5 .*not applied") as caught:
        assert sampled(PROMPT, OPTIONS) == expected
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"top_p": 0.9}, hg.UnknownArgument, "would change the distribution"),
        ({"repetition_penalty": 1.2}, hg.UnknownArgument, "would change the distribution"),
        ({"logits_processor": []}, hg.UnknownArgument, "would change the distribution"),
        ({"particle": 3}, hg.UnknownArgument, "did you mean particles"),
        ({"particles": 0}, hg.InvalidArgument, "particles: expected an int from 1 to 16777216"),
        ({"particles": 10**20}, hg.InvalidArgument, "particles: expected an int from 1 to 16777216"),
        ({"temperature": 1e-320}, hg.InvalidArgument, "temperature: 1e-320 is too small"),
        ({"temperature": 0}, hg.InvalidArgument, "temperature: expected a number above 0"),
        ({"temperature": math.inf}, hg.InvalidArgument, "temperature: expected a number above 0"),
        ({"method": "beam"}, hg.InvalidArgument, 'method: expected "expand" or "importance"'),
        ({"max_new_tokens": 0}, hg.InvalidArgument, "max_new_tokens: expected an int of 1 or more"),
        ({"seed": "x"}, hg.InvalidArgument, "seed: expected one int"),
        ({"describe": 3}, hg.InvalidArgument, "describe: expected True or False"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        sampled(PROMPT, OPTIONS, **arguments)


@pytest.mark.parametrize("given", [{"stop_strings": ["re"]}, {"token_healing": True}], ids=str)
def test_settings_that_need_a_tokenizer_are_refused(given: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Because generate() does not hand it on to a loop of one's own."""
    model, guide = family("llama")
    changed = {**model.generation_config.to_dict(), **given}
    monkeypatch.setattr(model, "generation_config", type(model.generation_config)(**changed))
    with pytest.raises(hg.UnsupportedModel, match=r"set model\.generation_config\.\w+ = None"):
        sampled(PROMPT, OPTIONS)
    with pytest.raises(hg.UnsupportedModel, match=r"set model\.generation_config\.\w+ = None"):
        hg.score(model, guide.tokenizer, PROMPT, OPTIONS, guide=guide)


def test_free_text_is_no_format() -> None:
    for constraint in (None, [None]):
        with pytest.raises(hg.InvalidConstraint, match="expected a format, got None"):
            sampled(PROMPT, constraint)


def never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the model ran")


@pytest.mark.parametrize("kind", ["static", "offloaded"])
def test_caches_that_cannot_be_reordered_are_refused_by_name(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    given = model.generation_config
    changed = type(given)(**{**given.to_dict(), "cache_implementation": kind})
    monkeypatch.setattr(model, "generation_config", changed)
    monkeypatch.setattr(model.model, "forward", never)
    with pytest.raises(hg.UnsupportedModel, match="StaticCache|DynamicCache that is offloaded"):
        sampled(PROMPT, OPTIONS)


def test_a_state_of_the_models_own_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    monkeypatch.setattr(type(model), "_supports_default_dynamic_cache", classmethod(lambda cls: False))
    monkeypatch.setattr(model.model, "forward", never)
    with pytest.raises(hg.UnsupportedModel, match="LlamaForCausalLM keeps a state of its own"):
        sampled(PROMPT, OPTIONS)


def test_a_model_in_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    guide = hg.Guide(model, vocabularies.tiny_byte_level())
    monkeypatch.setattr(calls_of(guide), "ranks", Ranks.__new__(Ranks))
    with pytest.raises(hg.UnsupportedModel, match="sample"):
        hg.sample(model, guide.tokenizer, "The", OPTIONS, guide=guide)


def test_logits_that_are_no_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    head = model.lm_head.weight.data
    monkeypatch.setattr(model.lm_head.weight, "data", torch.full_like(head, math.nan))
    with pytest.raises(hg.EmptyIntersection, match="NaN"):
        sampled(PROMPT, OPTIONS)


def test_single_precision_is_close() -> None:
    tokenizer = vocabularies.tiny_byte_level()
    [exact] = sampled(PROMPT, OPTIONS, particles=500)
    [single] = hg.sample(FAMILIES["llama"](tokenizer), tokenizer, PROMPT, OPTIONS, particles=500)
    assert single.log_evidence == pytest.approx(exact.log_evidence, abs=1e-4) and single.texts == exact.texts


def test_an_image_is_seen_by_every_row() -> None:
    tokenizer = vocabularies.tiny_byte_level()
    model, image = models.llava(tokenizer)
    model = model.double()
    words = tokenizer("what is it")["input_ids"]
    ids = torch.tensor([[*[image] * 4, *words]])
    pixels = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(3)).double()
    from hf_guided.hf.decode.cache_slots import CacheSlots
    from hf_guided.hf.decode.call import GenerateCall

    def loop(model: Any, input_ids: Tensor, **given: Any) -> Tensor:
        names = ("logits_processor", "stopping_criteria", "generation_config")
        slots = CacheSlots(GenerateCall(model, input_ids, *(given.pop(name) for name in names), given), blocks=False)
        slots.prefill()
        slots.reorder([0, 0, 0])
        slots.run([[70], [80], [90]])
        slots.reorder([1, 2, 2, 0])
        slots.run([[60], [61], [62], [63]])
        found = slots.last(1, torch.float64)[:, 0]
        for tokens, line in zip(([80, 60], [90, 61], [90, 62], [70, 63]), found, strict=True):
            whole = torch.cat([ids[0], torch.tensor(tokens)])[None]
            expected = model(input_ids=whole, pixel_values=pixels).logits[0, -1]
            assert torch.allclose(line, expected, atol=1e-9)
        return input_ids

    model.generate(
        ids, pixel_values=pixels, attention_mask=torch.ones_like(ids), custom_generate=loop, max_new_tokens=9
    )
