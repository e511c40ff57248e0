"""Drafts change how many forward passes a text takes, not the text, and not how samples are distributed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria, StoppingCriteriaList

import hf_guided as hg
from hf_guided.hf.drafts import Draft, DraftRequest
from hf_guided.hf.drafts import verify as acceptance
from hf_guided.hf.drafts.sources import DraftChain
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.effort import repeats
from tests.integration import models
from tests.integration.families import FAMILIES, TAKE_HOLES, family
from tests.integration.test_decoder import BATCHES, CONSTRAINTS, inputs, run
from tests.pairs import once_each


class Oracle:
    """Drafts what the row is known to become, spoilt at every fourth place: some are right, some are wrong."""

    def __init__(self, texts: Sequence[Sequence[int]]):
        self._texts = texts

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        drafts = []
        for one in asked:
            done = len(one.token_ids) - one.prompt_length
            text = self._texts[one.index][done : done + one.limit]
            drafts.append(Draft(one.legal([t if (done + i) % 4 else t + 1 for i, t in enumerate(text)])))
        return drafts

    def reset(self, warp: Any = None) -> None:
        pass


@cache
def assistant(name: str) -> Any:
    """Another random model; the same one for Llama's family, so that its drafts are right."""
    tokenizer = family(name)[1].tokenizer
    return models.llama(tokenizer, seed=0 if name == "llama" else 5, layers=2).double()


@cache
def undrafted(name: str, rows: int, jump_forward: bool) -> list[list[int]]:
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    return run(name, rows, custom_generate=family(name)[1].decoder(constraints, jump_forward=jump_forward))


@pytest.mark.parametrize(
    ("name", "rows", "source"),
    once_each(
        FAMILIES,
        BATCHES,
        ["prompt_lookup", "grammar", "assistant", "oracle", "several"],
        keep=["llama-1-oracle", "llama-3-oracle"],
        cost=lambda cell: int(cell[1]),
        # Other families take no drafts, whatever their source, and each of their rows has its own forward pass.
        only_slow=lambda cell: cell[0] not in TAKE_HOLES and (cell[1] == "8" or cell[2] not in ("oracle", "several")),
    ),
)
def test_greedy_text_is_the_same(name: str, rows: int, source: str) -> None:
    guide = family(name)[1]
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    for jump_forward in (False, True):
        expected = undrafted(name, rows, jump_forward)
        draft = {
            "assistant": lambda: assistant(name),
            "oracle": lambda expected=expected: Oracle(expected),
            "several": lambda expected=expected: ["grammar", "prompt_lookup", DraftChain([Oracle(expected)])],
        }.get(source, lambda: source)()
        decoder = guide.decoder(constraints, jump_forward=jump_forward, draft=draft)
        assert run(name, rows, custom_generate=decoder) == expected
        if name not in TAKE_HOLES:
            assert decoder.stats.drafted_tokens == 0
        elif source == "oracle":
            assert 0 < decoder.stats.accepted_tokens < decoder.stats.drafted_tokens
            sampled = sum(map(len, expected)) - decoder.stats.forced_tokens
            assert decoder.stats.row_forwards <= sampled - decoder.stats.accepted_tokens + 2 * rows
        elif source == "assistant" and name == "llama":
            assert decoder.stats.accepted_tokens > 0


@pytest.mark.parametrize("end", range(1, 30, 3))
def test_what_is_behind_the_end_of_a_row_is_not_counted(end: int) -> None:
    class After(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            return torch.full((len(input_ids),), input_ids.shape[1] >= inputs("llama", 1)["input_ids"].shape[1] + end)

    guide = family("llama")[1]
    whole = run("llama", 1, custom_generate=guide.decoder(CONSTRAINTS[0]))[0]
    decoder = guide.decoder(CONSTRAINTS[0], draft=Oracle([whole]))
    asked = {"stopping_criteria": StoppingCriteriaList([After()])}
    assert run("llama", 1, custom_generate=decoder, **asked) == [whole[:end]]
    stats = decoder.stats
    assert stats.tokens == end
    assert stats.forced_tokens + stats.accepted_tokens <= end


@pytest.mark.parametrize("rows", [1, 8])
def test_a_budget_is_kept_with_drafts(rows: int) -> None:
    guide = family("llama")[1]
    asked = {"max_new_tokens": 32}
    expected = run("llama", rows, custom_generate=guide.decoder(CONSTRAINTS[0], **asked), **asked)
    decoder = guide.decoder(CONSTRAINTS[0], draft=Oracle(expected), **asked)
    assert run("llama", rows, custom_generate=decoder, **asked) == expected
    assert all(row[-1] == guide.tokenizer.eos_token_id for row in expected)
    assert decoder.stats.accepted_tokens > 0


def test_processors_that_look_back_see_drafts_too() -> None:
    guide = family("llama")[1]
    asked = {"repetition_penalty": 1.6, "no_repeat_ngram_size": 5}
    constraint = hg.Regex("[a-z ]{20,60}")
    expected = run("llama", 1, custom_generate=guide.decoder(constraint), **asked)
    decoder = guide.decoder(constraint, draft=Oracle(expected))
    assert run("llama", 1, custom_generate=decoder, **asked) == expected
    assert decoder.stats.accepted_tokens > 0


class Careless:
    """Drafts the same tokens whatever the row takes, and more of them than were asked for."""

    def __init__(self, token_ids: Sequence[int]):
        self._token_ids = token_ids

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(self._token_ids)] * len(asked)

    def reset(self, warp: Any = None) -> None:
        pass


@pytest.mark.parametrize("jump_forward", [False, True])
@pytest.mark.parametrize(
    "token_ids", [[17, 18, 19], [70] * 300, [0, 70, 71]], ids=["refused", "too many", "past a stop"]
)
def test_a_careless_source_changes_nothing(token_ids: list[int], jump_forward: bool) -> None:
    guide = family("llama")[1]
    expected = run("llama", 3, custom_generate=guide.decoder(CONSTRAINTS[:3], jump_forward=jump_forward))
    decoder = guide.decoder(CONSTRAINTS[:3], jump_forward=jump_forward, draft=Careless(token_ids))
    assert run("llama", 3, custom_generate=decoder) == expected


def test_nothing_is_guessed_behind_the_last_position() -> None:
    """The forced text behind a draft would reach over the end of GPT-2's learned positions."""
    model, guide = family("gpt2")
    text = [i for i in range(len(guide.tokenizer)) if guide.vocabulary.is_text(i)]
    prompt = models.prompts(text, 1, models.CONTEXT - 12, seed=3)
    constraint = hg.Regex("[ab]{3}(?:xyzzy plugh [0-9]){0,20}")
    asked = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt), "do_sample": False, "max_new_tokens": 12}
    expected = model.generate(**asked, custom_generate=guide.decoder(constraint))
    oracle = Oracle(expected[:, prompt.shape[1] :].tolist())
    assert torch.equal(model.generate(**asked, custom_generate=guide.decoder(constraint, draft=oracle)), expected)


class Counting(LogitsProcessor):
    """Likes another letter in each call."""

    calls = 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return scores.index_fill(1, torch.tensor(letter_ids()[self.calls % len(LETTERS)]), 50.0)


@pytest.mark.parametrize(
    "asked",
    [lambda: {"guidance_scale": 3.0}, lambda: {"logits_processor": [Counting()]}],
    ids=["guidance_scale", "a caller's own"],
)
def test_processors_that_remember_see_what_the_plain_loop_shows_them(asked: Callable[[], dict[str, Any]]) -> None:
    guide = family("llama")[1]
    constraint = hg.Regex(f"[a-f{LETTERS}]{{30}}")
    theirs = asked()
    processors = [*theirs.pop("logits_processor", []), guide.logits_processor(constraint)]
    plain = run("llama", 1, **theirs, logits_processor=processors)
    assert run("llama", 1, **asked(), custom_generate=guide.decoder(constraint, draft=Oracle(plain))) == plain


# -- samples -----------------------------------------------------------------------------------------------------------

LETTERS = "XQJ"  # no token has two of them
TEMPERATURE = 0.7
SAMPLES = 20_000
ROWS = repeats(1_000, 2_000)


def letter_ids() -> list[int]:
    return family("llama")[1].vocabulary.encode_bytes(LETTERS.encode())


def exact() -> dict[tuple[int, ...], float]:
    """The probability of each text, from the logits of the model run on each prefix."""
    model, _ = family("llama")
    prompt = inputs("llama", 1)["input_ids"]
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer = {}
        for ids, probability in found.items():
            logits = model(torch.cat([prompt, torch.tensor([ids], dtype=torch.long)], dim=1)).logits[0, -1].float()
            step = (logits[letter_ids()] / TEMPERATURE).softmax(-1).tolist()
            longer.update({(*ids, letter): probability * p for letter, p in zip(letter_ids(), step, strict=True)})
        found = longer
    return found


class TwoLetters:
    """Certain of the second letter, and then of the third, whatever came."""

    def propose(self, asked: Sequence[DraftRequest]) -> list[Draft]:
        return [Draft(one.legal(letter_ids()[1:])) for one in asked]

    def reset(self, warp: Any = None) -> None:
        pass


def samples(draft: Any, count: int = SAMPLES) -> tuple[Counter[tuple[int, ...]], hg.SessionStats]:
    model, guide = family("llama")
    decoder = guide.decoder(hg.Regex(f"[{LETTERS}]{{3}}"), draft=draft)
    given = {key: value.expand(ROWS, -1) for key, value in inputs("llama", 1).items()}
    start = given["input_ids"].shape[1]
    seen: Counter[tuple[int, ...]] = Counter()
    torch.manual_seed(11)
    for _ in range(count // ROWS):
        output = model.generate(
            **given, do_sample=True, temperature=TEMPERATURE, top_k=0, max_new_tokens=5, custom_generate=decoder
        )
        seen.update(tuple(row[:3]) for row in output[:, start:].tolist())
    return seen, decoder.stats


SOURCES: dict[str, Any] = {
    "certain": TwoLetters,
    "prompt_lookup": lambda: "prompt_lookup",
    "assistant": lambda: models.llama(family("llama")[1].tokenizer, seed=5, layers=2),
}


def of_two_letters(texts: Mapping[tuple[int, ...], float]) -> Counter[tuple[int, ...]]:
    """Shares or counts of the first two letters: enough for fewer samples than all texts need."""
    pairs: Counter[tuple[int, ...]] = Counter()
    for text, share in texts.items():
        pairs[text[:2]] += share  # type: ignore[assignment]
    return pairs


def test_few_samples_are_distributed_as_without_drafts() -> None:
    seen, stats = samples(TwoLetters(), 2 * ROWS)
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert p_value(of_two_letters(seen), of_two_letters(exact())) > NEVER_BY_CHANCE


@pytest.mark.slow
@pytest.mark.parametrize("source", SOURCES)
def test_samples_are_distributed_as_without_drafts(source: str) -> None:
    seen, stats = samples(SOURCES[source]())
    assert sum(seen.values()) == SAMPLES
    assert 0 < stats.accepted_tokens < stats.drafted_tokens
    assert p_value(seen, exact()) > NEVER_BY_CHANCE


def test_a_wrong_rule_of_acceptance_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second trial is let through."""
    right = acceptance._num_agreed

    def generous(*arguments: Any) -> list[int]:
        once, twice = (right(*arguments) for _ in range(2))
        return [max(pair) for pair in zip(once, twice, strict=True)]

    monkeypatch.setattr(acceptance, "_num_agreed", generous)
    seen, _ = samples(TwoLetters(), 2 * ROWS)
    assert p_value(of_two_letters(seen), of_two_letters(exact())) < NEVER_BY_CHANCE
