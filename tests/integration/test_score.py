"""Scores are the probabilities of a plain enumeration in float64, and the frequencies of what hg.generate samples."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import pytest
import torch

import hf_guided as hg
from hf_guided.generation.prefix_logits import PrefixLogits
from hf_guided.guide import calls_of
from hf_guided.hf.decode.forced_text import ForcedText
from hf_guided.session.row import Row
from hf_guided.session.tensor_parallel import Ranks
from hf_guided.vocabulary.retokenize import Continuation
from tests import vocabularies
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.integration import models
from tests.integration.families import FAMILIES, family, log_p_after, token_ids_of

OPTIONS = ["red", "green with stripes", "green with dots", "a cat", "a cat and two dogs", "a cab"]
FORCED = ["the invoice was paid", "the invoice was", "the invoice will be paid"]
PROMPTS = ["Anna booked two", "The", "invoice 12 was paid", "cafe, and"]
EVEN = ["xyzw", "qrvw", "A: b", "12 was pai"]  # as many tokens each: some families are wrong behind padding
SAMPLING: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
CLOSE = 1e-5


def scored(prompts: Any, choices: Any, *, name: str = "llama", **arguments: Any) -> list[hg.ChoiceScores]:
    model, guide = family(name)
    return hg.score(model, guide.tokenizer, prompts, choices, guide=guide, **arguments)


def enumerated(name: str, prompt: str, options: Sequence[str]) -> dict[str, float]:
    """The probability of each option: every path down to its stop token, with masks by brute force.

    What is forced is what one forward pass a token would append too (test_decoder.py).
    """
    model, guide = family(name)
    ids, stop = token_ids_of(guide.tokenizer, prompt), guide.tokenizer.eos_token_id
    forced = ForcedText(guide.vocabulary, Continuation(guide.vocabulary), [stop], retokenize=False, may_stop=True)
    compiled = guide.compile(hg.Choice(options))
    before = [model.config.decoder_start_token_id] if model.config.is_encoder_decoder else ids
    pieces = [i for i in range(len(guide.tokenizer)) if guide.vocabulary.is_text(i)]
    texts = {i: guide.vocabulary.decode_bytes([i]) for i in pieces}
    found = dict.fromkeys(options, 0.0)

    def follow(output: list[int], mass: float) -> None:
        row = Row(compiled.matcher())
        assert all(map(row.advance, output))
        output = [*output, *forced.advance(row, [*before, *output], None, loose=False).token_ids]
        text = guide.vocabulary.decode_bytes([i for i in output if i != stop])
        if output[-1:] == [stop]:
            found[text.decode()] += mass
            return
        allowed = [i for i, piece in texts.items() if any(o.encode().startswith(text + piece) for o in options)]
        allowed += [stop] * (text in [option.encode() for option in options])
        log_p = log_p_after(model, ids, output)[allowed].log_softmax(-1)
        for token_id, share in zip(allowed, log_p.exp().tolist(), strict=True):
            if token_id == stop:
                found[text.decode()] += mass * share
            elif mass * share > 1e-9:
                follow([*output, token_id], mass * share)

    follow([], 1.0)
    return found


@pytest.mark.parametrize("name", FAMILIES)
def test_probabilities_are_those_of_an_enumeration(name: str) -> None:
    prompts = EVEN if name in ("bloom", "mamba") else PROMPTS
    choices = [OPTIONS, FORCED]
    results = scored(prompts[:2], [hg.Choice(options) for options in choices], name=name)
    for prompt, options, result in zip(prompts, choices, results, strict=False):
        expected = enumerated(name, prompt, options)
        assert result.probabilities == pytest.approx(expected, abs=CLOSE)
        assert result.unresolved == 0.0
        assert list(result.options) == options and result.best == max(expected, key=lambda o: expected[o])
        assert all(s.low == s.probability == s.high for s in result.options.values())


@pytest.mark.parametrize("name", ["llama", "gemma3", "mamba", "t5"])
def test_log_probabilities_are_the_models_own(name: str) -> None:
    """Of the tokens that the tokenizer writes after the prompt, in one plain pass each; no mask, no stop token."""
    model, guide = family(name)
    prompts = EVEN if name == "mamba" else ["two rooms:", "paid;"]
    checked = 0
    for prompt, result in zip(prompts, scored(prompts, OPTIONS, name=name), strict=True):
        ids = guide.tokenizer(prompt)["input_ids"]
        for option in OPTIONS:
            whole = guide.tokenizer(prompt + option)["input_ids"]
            tokens = whole[len(ids) :]
            if model.config.is_encoder_decoder:
                tokens = guide.tokenizer(option)["input_ids"]
            elif whole[: len(ids)] != ids:
                continue  # the tokenizer would join them, so there is no such continuation
            expected = sum(
                float(log_p_after(model, ids, tokens[:place])[token_id]) for place, token_id in enumerate(tokens)
            )
            assert result.logprobs[option] == pytest.approx(expected, abs=1e-4), (prompt, option)
            checked += 1
    assert checked >= 5


def sampled(name: str, prompt: str, options: Sequence[str], samples: int, **arguments: Any) -> Counter[tuple[int, ...]]:
    model, guide = family(name)
    torch.manual_seed(11)
    results = hg.generate(
        model, guide.tokenizer, prompt, options, guide=guide, num_return_sequences=samples, **SAMPLING, **arguments
    )
    return Counter((options.index(result.text),) for result in results)


def likely(result: hg.ChoiceScores, samples: int) -> tuple[dict[tuple[int, ...], float], set[int]]:
    """Shares by option, without options too rare for a test; and those."""
    shares = {(i,): score.probability for i, score in enumerate(result.options.values())}
    rare = {i for (i,), share in shares.items() if share * samples < 5}
    return {place: share for place, share in shares.items() if place[0] not in rare}, rare


def check_samples(name: str, prompt: str, options: Sequence[str], samples: int, **arguments: Any) -> None:
    (result,) = scored(prompt, options, name=name)
    seen = sampled(name, prompt, options, samples, **arguments)
    expected, rare = likely(result, samples)
    left = 1.0 - sum(expected.values())
    assert sum(seen[i,] for i in rare) <= 10 + 3 * left * samples
    total = sum(expected.values())
    common = Counter({place: count for place, count in seen.items() if place in expected})
    assert p_value(common, {place: share / total for place, share in expected.items()}) > NEVER_BY_CHANCE


@pytest.mark.parametrize("options", [OPTIONS, FORCED])
def test_samples_are_as_frequent(options: list[str]) -> None:
    check_samples("llama", PROMPTS[0], options, 400)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [{}, {"draft": "grammar"}, {"seed": 5}], ids=["plain", "drafted", "seeded"])
@pytest.mark.parametrize("name", ["llama", "qwen2", "gemma3", "t5"])
def test_many_samples_are_as_frequent(name: str, arguments: dict[str, Any]) -> None:
    for prompt in PROMPTS[:2]:
        for options in (OPTIONS, FORCED):
            check_samples(name, prompt, options, 3000, **arguments)


@pytest.mark.parametrize("batch_size", [1, 3])
def test_batches_change_nothing(batch_size: int) -> None:
    whole = scored(PROMPTS, OPTIONS)
    for alone, result in zip(scored(PROMPTS, OPTIONS, batch_size=batch_size), whole, strict=True):
        assert alone.probabilities == pytest.approx(result.probabilities, abs=CLOSE)
        assert alone.logprobs == pytest.approx(result.logprobs, abs=1e-4)
        assert alone.num_prefixes == result.num_prefixes


def test_a_shared_cache_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompts run once where their cache can be shared, and again with every prefix where it cannot."""
    model, _ = family("llama")
    tokens: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda _, args, kwargs: tokens.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    prompts = [20 * prompt for prompt in PROMPTS]
    shared, spent = scored(prompts, OPTIONS), sum(tokens)
    tokens.clear()
    monkeypatch.setattr("hf_guided.hf.decode.cache_slots.takes_holes", lambda *_: False)
    again = scored(prompts, OPTIONS)
    hook.remove()
    assert 3 * spent < sum(tokens)
    for one, other in zip(shared, again, strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=CLOSE)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_images_run_once_with_their_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows a prompt with an image is run after the image; where the image would be lost, that is an error."""
    tokenizer = vocabularies.tiny_byte_level()
    model, image = models.llava(tokenizer)
    model = model.double()
    words = tokenizer("what is it")["input_ids"]
    ids = torch.tensor([[*[image] * 4, *words]] * 2)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(3)).double()
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": pixels}
    given = {"max_new_tokens": 9, "do_sample": False}
    blocks = [[80, 90], [70], [80]]
    found = PrefixLogits(model, inputs, 0, given, words)([0, 1, 1], blocks)[:, -1]
    for row, block, line in zip([0, 1, 1], blocks, found, strict=True):
        with torch.no_grad():
            whole = torch.cat([ids[row], torch.tensor(block)])[None]
            expected = model(input_ids=whole, pixel_values=pixels[row : row + 1]).logits[0, -1]
        assert torch.allclose(line.double(), expected, atol=1e-5)
    monkeypatch.setattr("hf_guided.hf.decode.cache_slots.takes_holes", lambda *_: False)
    with pytest.raises(hg.UnsupportedModel, match="pixel_values"):
        PrefixLogits(model, inputs, 0, given, words)


def test_few_prefixes_leave_an_interval() -> None:
    (exact,) = scored(PROMPTS[0], OPTIONS)
    (rough,) = scored(PROMPTS[0], OPTIONS, max_prefixes=1)
    assert exact.num_prefixes > 1 == rough.num_prefixes and rough.unresolved > 0
    for option, score in rough.options.items():
        assert score.low - CLOSE <= exact.options[option].probability <= score.high + CLOSE
    assert math.fsum(rough.probabilities.values()) == pytest.approx(1.0)
    assert rough.options["red"].low == rough.options["red"].high  # decided by its first token


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class TextColour(str, enum.Enum):
    RED = "red"
    GREEN = "green"


@pytest.mark.parametrize("colour", [Colour, TextColour])
def test_scores_of_an_enum_have_its_members(colour: Any) -> None:
    (expected,) = scored("The", ["red", "green"])
    for choices in (colour, [*colour], hg.Choice(colour), [colour], [hg.Choice([*colour])], Literal[tuple(colour)]):
        (result,) = scored("The", choices)
        assert [*result.options] == [*result.probabilities] == [*result.logprobs] == [*colour]
        assert all(type(option) is colour for option in (*result.options, result.best))
        for member, option in zip(colour, expected.options.values(), strict=True):
            assert result.options[member] == option
        assert result.best.value == expected.best


@pytest.mark.parametrize("choices", [Literal["red", "green"], ("red", "green"), {"choice": ["red", "green"]}])
def test_other_forms_of_the_same_options(choices: Any) -> None:
    (expected,) = scored("The", ["red", "green"])
    (result,) = scored("The", choices)
    assert result == expected and list(result.options) == ["red", "green"]


def test_a_model_with_warpers_of_its_own_is_scored_without() -> None:
    (expected,) = scored("The", OPTIONS)
    model, guide = family("llama")
    given = model.generation_config
    model.generation_config = type(given)(**{**given.to_dict(), "temperature": 0.3, "top_k": 5, "num_beams": 2})
    try:
        (result,) = hg.score(model, guide.tokenizer, "The", OPTIONS, guide=guide)
    finally:
        model.generation_config = given
    assert result == expected


def test_chats_are_prompts() -> None:
    tokenizer = vocabularies.tiny_byte_level().__class__(
        tokenizer_object=vocabularies.tiny_byte_level().backend_tokenizer,
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        chat_template="{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% for d in documents or () %}{{ d.text }}{% endfor %}{{ who }}answer: ",
    )
    model, _ = family("llama")
    chat = [{"role": "user", "content": "which?"}]
    given = {"chat_template_kwargs": {"who": "short "}, "documents": [{"text": "cats are red\n"}], "describe": True}
    described = f"system: {hg.describe(hg.Choice(OPTIONS))}\nuser: which?\ncats are red\nshort answer: "
    for arguments, text in (({}, "user: which?\nanswer: "), (given, described)):
        (result,) = hg.score(model, tokenizer, chat, OPTIONS, **arguments)
        (written,) = hg.score(model, tokenizer, text, OPTIONS)
        assert result.probabilities == pytest.approx(written.probabilities)


def test_one_option_is_certain_and_an_empty_one_may_be() -> None:
    (result,) = scored("The", ["only this"])
    assert result.probabilities == {"only this": 1.0} and result.num_prefixes == 0
    (result,) = scored("The", ["", "a"])
    assert result.logprobs[""] == 0.0 and 0 < result.probabilities[""] < 1


@pytest.mark.parametrize(
    ("choices", "arguments", "error", "message"),
    [
        (hg.Regex("a|b"), {}, hg.InvalidConstraint, "expected the options as a list of strings"),
        ({"type": "string"}, {}, hg.InvalidConstraint, "expected the options as a list of strings"),
        ({"enum": ["a", "b"]}, {}, hg.InvalidConstraint, r"pass \['a', 'b'\]"),
        (Literal[1, 2], {}, hg.InvalidConstraint, r"pass \['1', '2'\], or use hg.generate"),
        (enum.Enum("Number", {"one": 1, "two": 2}), {}, hg.InvalidConstraint, r"pass \['1', '2'\]"),
        ([1, 2], {}, hg.InvalidConstraint, r"pass \['1', '2'\]"),
        ([[True, None], ["a", "b"]], {}, hg.InvalidConstraint, r"pass \['true', 'null'\]"),
        ("yes", {}, hg.InvalidConstraint, r"such as \['yes', 'no'\], got .* of type str"),
        (bool, {}, hg.InvalidConstraint, "use hg.generate for other values"),
        ([], {}, hg.InvalidConstraint, "at least one option"),
        (None, {}, hg.InvalidConstraint, "expected the options as a list of strings"),
        (["a", 1], {}, hg.InvalidConstraint, r"pass \['a', '1'\]"),
        ([hg.Choice(["a", "b"])] * 3, {}, hg.BatchSizeError, "one for each of 1"),
        (["a", "b"], {"max_prefixes": 0}, ValueError, "max_prefixes: expected an int of 1 or more, got 0"),
        (["a", "b"], {"batch_size": 0}, ValueError, "batch_size: expected an int of 1 or more, got 0"),
    ],
)
def test_what_cannot_be_scored_is_refused(
    choices: Any, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        scored("The", choices, **arguments)


def test_logits_that_are_no_numbers_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model, guide = family("llama")
    head = model.lm_head.weight.data
    monkeypatch.setattr(model.lm_head.weight, "data", torch.full_like(head, math.nan))
    with pytest.raises(hg.EmptyIntersection, match="NaN"):
        hg.score(model, guide.tokenizer, "The", OPTIONS, guide=guide)


def test_a_model_in_several_processes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = family("llama")
    guide = hg.Guide(model, vocabularies.tiny_byte_level())
    monkeypatch.setattr(calls_of(guide), "ranks", Ranks.__new__(Ranks))
    with pytest.raises(hg.UnsupportedModel, match="score"):
        hg.score(model, guide.tokenizer, "The", OPTIONS, guide=guide)
