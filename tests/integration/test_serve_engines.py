"""The server's engines choose the right tokens: against hg.generate, and against loops of plain forward passes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from transformers import LogitsProcessorList, PreTrainedModel

import hf_guided as hg
from hf_guided import demo
from hf_guided.serve.engines.jobs import Engine
from hf_guided.serve.engines.one_by_one import OneByOne
from hf_guided.serve.engines.sampler import own_processors
from hf_guided.serve.engines.shared_batches import SharedBatches
from hf_guided.serve.job import Job
from tests import vocabularies
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.effort import repeats
from tests.integration import models
from tests.jobs import Client, finished, job
from tests.pairs import once_each

KINDS = [OneByOne, SharedBatches]
SCHEMA = hg.JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 8}, "kind": {"enum": ["alpha", "alphabet", "beta"]}},
        "required": ["name", "kind"],
    },
    whitespace="compact",
)
CONSTRAINTS: dict[str, Any] = {
    "free": None,
    "schema": SCHEMA,
    "choice": hg.Choice(["red", "green with stripes", "green with dots"]),
    "regex": hg.Regex(r"id-[0-9]{3}-(?:north|south)ern(?: part)?"),
}
PROMPTS = ["Anna booked two", "invoice 12 was paid", "The"]
EVERYTHING = {
    "temperature": 1.4,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.001,
    "repetition_penalty": 1.2,
    "presence_penalty": 0.7,
    "frequency_penalty": 0.4,
    "logit_bias": {20: 1.5, 21: -3.0},
}


@cache
def hot() -> tuple[PreTrainedModel, hg.Guide]:
    """A random float64 model, which goes wherever a mask lets it."""
    model = models.llama(vocabularies.demo(), layers=2).double()
    return model, hg.Guide(model, vocabularies.demo())


@cache
def trained() -> tuple[PreTrainedModel, hg.Guide]:
    model, tokenizer = demo.load()
    return model.double(), hg.Guide(model, tokenizer)


MODELS = ["hot", "trained"]
CHOOSING: dict[str, dict[str, Any]] = {"greedy": {}, "sampled": {"temperature": 1.3, "seed": 1}}
SETTINGS: dict[str, dict[str, Any]] = {"hot": {"temperature": 1.2}, "everything": EVERYTHING}


@pytest.fixture(scope="module")
def engines() -> Iterator[Callable[[str], tuple[PreTrainedModel, hg.Guide, list[Engine]]]]:
    """Makes the engines of each kind for a model, once for all tests."""
    made: list[Engine] = []

    @cache
    def engines_of(name: str) -> tuple[PreTrainedModel, hg.Guide, list[Engine]]:
        model, guide = hot() if name == "hot" else trained()
        both: list[Engine] = [kind(model, guide) for kind in KINDS]
        made.extend(both)
        return model, guide, both

    yield engines_of
    for engine in made:
        engine.close()


@pytest.fixture(params=MODELS)
def pair(request: pytest.FixtureRequest, engines: Callable[[str], Any]) -> Any:
    """A model, its guide, and an engine of each kind."""
    return engines(request.param)


def ids(guide: hg.Guide, prompt: str) -> list[int]:
    return list(guide.tokenizer(prompt)["input_ids"])


@pytest.mark.parametrize(("pair", "kind"), once_each(MODELS, CONSTRAINTS), indirect=["pair"])
def test_greedy_answers_are_those_of_generate(pair: Any, kind: str) -> None:
    model, guide, engines = pair
    for prompt in PROMPTS:
        [result] = hg.generate(
            model,
            guide.tokenizer,
            [prompt],
            CONSTRAINTS[kind],
            guide=guide,
            backend="native",
            max_new_tokens=60,
            do_sample=False,
        )
        for engine in engines:
            assert finished(engine, job(guide, ids(guide, prompt), CONSTRAINTS[kind])) == [list(result.token_ids)]


@pytest.mark.parametrize("opening", ["", "<think>", "<think>\nwell</think>\n"])
def test_thinking(pair: Any, opening: str) -> None:
    model, guide, engines = pair
    reasoning = hg.Reasoning(max_tokens=12)
    prompt = "Anna booked two" + opening
    [result] = hg.generate(
        model,
        guide.tokenizer,
        [prompt],
        SCHEMA,
        guide=guide,
        backend="native",
        reasoning=reasoning,
        max_new_tokens=80,
        do_sample=False,
    )
    for engine in engines:
        work = job(guide, ids(guide, prompt), SCHEMA, reasoning=reasoning, max_new_tokens=80)
        assert finished(engine, work) == [list(result.token_ids)]


@pytest.mark.parametrize(("pair", "kind", "settings"), once_each(MODELS, CONSTRAINTS, SETTINGS), indirect=["pair"])
def test_seeds_give_the_same_in_both(pair: Any, kind: str, settings: str) -> None:
    _, guide, engines = pair
    for seed in range(repeats(1, 5)):
        made = job(guide, ids(guide, PROMPTS[0]), CONSTRAINTS[kind], seed=seed, num_answers=3, **SETTINGS[settings])
        first = finished(engines[0], made)
        assert finished(engines[0], made) == first == finished(engines[1], made)
        alone = job(guide, ids(guide, PROMPTS[0]), CONSTRAINTS[kind], seed=seed + 2, **SETTINGS[settings])
        for engine in engines:
            assert finished(engine, alone) == [first[2]]


def test_every_64_bit_seed_is_taken(pair: Any) -> None:
    _, guide, engines = pair
    for seed in (-(2**63), -1, 2**63 - 1, 2**64 - 1):
        made = job(guide, ids(guide, "The"), temperature=1.0, seed=seed, num_answers=2, max_new_tokens=3)
        assert finished(engines[0], made) == finished(engines[1], made)


def test_without_a_seed_answers_differ(pair: Any) -> None:
    _, guide, engines = pair
    for engine in engines:
        made = job(guide, ids(guide, "The"), temperature=5.0, num_answers=4, max_new_tokens=20)
        assert len({tuple(answer) for answer in finished(engine, made)}) == 4


@pytest.mark.parametrize("seed", [None, 7], ids=["torch", "seed"])
def test_samples_have_the_distribution_of_the_filters(pair: Any, seed: int | None) -> None:
    """Temperature, top-k, top-p and min-p in this order, computed here from one plain forward pass."""
    model, guide, engines = pair
    torch.manual_seed(0)
    settings = {"temperature": 1.7, "top_k": 6, "top_p": 0.9, "min_p": 0.05}
    made = job(guide, ids(guide, "The"), max_new_tokens=1, num_answers=repeats(250, 1000), seed=seed, **settings)
    with torch.no_grad():
        scores = model(torch.tensor([made.prompt])).logits[0, -1].double() / 1.7
    best = scores.topk(6)
    shares = best.values.softmax(-1)
    kept = shares.cumsum(-1) - shares < 0.9
    shares = torch.where(kept, shares, 0) / shares[kept].sum()
    shares = torch.where(shares >= 0.05 * shares.max(), shares, 0)
    expected = {
        (token_id,): share
        for token_id, share in zip(best.indices.tolist(), (shares / shares.sum()).tolist(), strict=True)
    }
    for engine in engines:
        seen = Counter(tuple(answer) for answer in finished(engine, made))
        assert p_value(seen, expected) > NEVER_BY_CHANCE
        assert seen.keys() <= expected.keys()


def brute_force(model: PreTrainedModel, made: Job, allowed: Sequence[int] | None = None) -> list[int]:
    """Greedy decoding, one plain forward pass over everything for each token; all sampling in Python numbers.

    Args:
        model: float64.
        made: the job.
        allowed: the only tokens that may be chosen; None: all.
    """
    sampling = made.sampling
    tokens: list[int] = []
    while len(tokens) < made.max_new_tokens and (not tokens or tokens[-1] not in made.stop_token_ids):
        with torch.no_grad():
            scores = model(torch.tensor([[*made.prompt, *tokens]])).logits[0, -1].float().tolist()
        for token_id in {*made.prompt, *tokens}:
            penalty = sampling.repetition_penalty
            scores[token_id] = scores[token_id] * penalty if scores[token_id] < 0 else scores[token_id] / penalty
        for token_id, count in Counter(tokens).items():
            scores[token_id] -= count * sampling.frequency_penalty + sampling.presence_penalty
        for token_id, bias in sampling.logit_bias.items():
            scores[token_id] += bias
        candidates = range(len(scores)) if allowed is None else allowed
        tokens.append(max(candidates, key=lambda token_id: scores[token_id]))
    return tokens


PENALTIES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 1.5},
    "frequency": {"frequency_penalty": 0.5},
    "negative": {"presence_penalty": -0.3, "frequency_penalty": -0.2},
    "bias": {"logit_bias": {30: 100.0, 31: 99.9, 0: -100.0}},
    "all": {
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.8,
        "logit_bias": {17: 2.0, 18: -2.0},
    },
}


@pytest.mark.parametrize(("pair", "name"), once_each(MODELS, PENALTIES), indirect=["pair"])
def test_penalties_against_brute_force(pair: Any, name: str) -> None:
    """The answers of one job have equal tokens: nothing is counted for a neighbour, nor in the prompt."""
    model, guide, engines = pair
    for prompt in ("12 12 12 12", "Anna booked two"):
        made = job(guide, ids(guide, prompt), max_new_tokens=25, num_answers=2, **PENALTIES[name])
        expected = brute_force(model, made)
        for engine in engines:
            assert finished(engine, made) == [expected, expected]


def test_penalties_inside_a_constraint(pair: Any) -> None:
    """Every token of the constraint is one digit, so that brute force knows the mask."""
    model, guide, engines = pair
    digits = [ids(guide, digit)[-1] for digit in "0123456789"]
    assert [guide.vocabulary.decode_bytes([digit]) for digit in digits] == [b"%d" % i for i in range(10)]
    others = {i: -100.0 for i, data in enumerate(guide.vocabulary.token_bytes) if data and len(data) > 1}
    made = job(
        guide, ids(guide, "The"), hg.Regex("[0-9]{40}"), max_new_tokens=30, logit_bias=others, frequency_penalty=0.9
    )
    expected = brute_force(model, made, allowed=digits)
    for engine in engines:
        # The budget is too small for the text, which is therefore cut.
        client = Client(engine, made)
        assert client.finished() == [expected] and client.ends[0].reason == "length"


@pytest.mark.parametrize(("pair", "name"), once_each(MODELS, PENALTIES), indirect=["pair"])
def test_penalties_are_the_same_in_generate(pair: Any, name: str) -> None:
    model, guide, engines = pair
    made = job(guide, ids(guide, "12 12 12"), max_new_tokens=25, **PENALTIES[name])
    output = model.generate(
        torch.tensor([made.prompt]),
        attention_mask=torch.ones(1, len(made.prompt), dtype=torch.long),
        logits_processor=LogitsProcessorList(own_processors(made, len(made.prompt))),
        repetition_penalty=made.sampling.repetition_penalty,
        max_new_tokens=25,
        do_sample=False,
    )
    for engine in engines:
        assert finished(engine, made) == [output[0, len(made.prompt) :].tolist()]


def test_penalties_with_drafts_that_are_confirmed_and_rejected() -> None:
    """The prompt repeats itself, so prompt lookup drafts; the penalties make the model leave the draft."""
    model, guide = trained()
    engine = OneByOne(model, guide)
    try:
        prompt = ids(guide, demo.EXAMPLES[0].prompt)
        for penalty in (0.02, 0.3, 2.0):
            made = job(guide, prompt, frequency_penalty=penalty, max_new_tokens=40)
            assert finished(engine, made) == [brute_force(model, made)]
        assert 0 < engine.stats.accepted_tokens < engine.stats.drafted_tokens
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("pair", "kind", "choosing"), once_each(MODELS, ["free", "schema"], CHOOSING), indirect=["pair"]
)
def test_logprobs_are_those_of_a_plain_pass(pair: Any, kind: str, choosing: str) -> None:
    model, guide, engines = pair
    made = job(guide, ids(guide, PROMPTS[0]), CONSTRAINTS[kind], num_answers=2, top_logprobs=3, **CHOOSING[choosing])
    for engine in engines:
        client = Client(engine, made)
        for answer, tokens in enumerate(client.finished()):
            with torch.no_grad():
                logits = model(torch.tensor([[*made.prompt, *tokens]])).logits[0, len(made.prompt) - 1 : -1]
            expected = logits.float().double().log_softmax(-1)
            for entry, row in zip(client.logprobs[answer], expected, strict=True):
                assert math.isclose(entry.logprob, row[entry.token_id], abs_tol=1e-6)
                values, best = row.topk(3)
                assert [token_id for token_id, _ in entry.top.raw] == best.tolist()
                assert torch.allclose(torch.tensor([p for _, p in entry.top.raw]), values.float(), atol=1e-6)


def test_logprobs_are_the_same_in_both(pair: Any) -> None:
    """Those under the mask and of the sampler too, and which text is forced."""
    _, guide, engines = pair
    for settings in ({}, {"seed": 5, **EVERYTHING}):
        made = job(guide, ids(guide, PROMPTS[1]), SCHEMA, top_logprobs=2, **settings)
        both = [Client(engine, made).wait() for engine in engines]  # one after another: they share the model
        assert both[0].finished() == both[1].finished()
        for one, other in zip(both[0].logprobs[0], both[1].logprobs[0], strict=True):
            assert one.forced == other.forced
            for name in ("logprob", "masked_logprob", "sampled_logprob"):
                assert math.isclose(getattr(one, name), getattr(other, name), abs_tol=1e-6), name


def test_further_stop_tokens(pair: Any) -> None:
    _, guide, engines = pair
    [whole] = finished(engines[0], job(guide, ids(guide, "The")))
    stop = whole[5]
    stops = (*guide.vocabulary.stop_token_ids, stop)
    for engine in engines:
        made = job(guide, ids(guide, "The"), stop_token_ids=stops)
        assert finished(engine, made) == [whole[: whole.index(stop) + 1]]


def test_a_cold_temperature_is_greedy(pair: Any) -> None:
    _, guide, engines = pair
    greedy = finished(engines[0], job(guide, ids(guide, "The"), max_new_tokens=10))
    for engine in engines:
        assert finished(engine, job(guide, ids(guide, "The"), max_new_tokens=10, temperature=1e-38)) == greedy
