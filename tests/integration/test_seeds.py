"""With seeds a row's samples are its own: neither neighbours nor drafts change them."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest
import torch
from pydantic import BaseModel, Field, field_validator

import hf_guided as hg
from hf_guided.hf.drafts.verify import accept_seeded
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.integration.families import family
from tests.integration.test_decoder import BATCHES, CONSTRAINTS, inputs, run
from tests.pairs import once_each

HOT = {"do_sample": True, "temperature": 1.5, "top_p": 0.95}
SEEDS = [11, -7, 2**63 + 5, 0, 3, 1, 2, 2**40]


def seeded(rows: int, seeds: list[int], **decoder: Any) -> list[list[int]]:
    guide = family("llama")[1]
    constraints = [CONSTRAINTS[i] for i in BATCHES[rows]]
    return run("llama", rows, custom_generate=guide.decoder(constraints, seeds=seeds, **decoder), **HOT)


def test_a_row_draws_what_it_draws_alone() -> None:
    """In a batch of eight, and each alone; torch's own generator has no part in it."""
    model, guide = family("llama")
    together = seeded(8, SEEDS)
    ids = inputs("llama", 8)
    for i, constraint in enumerate(CONSTRAINTS):
        torch.manual_seed(i)
        real = ids["attention_mask"][i] == 1
        one = {name: value[i : i + 1, real] for name, value in ids.items()}
        decoder = guide.decoder(constraint, seeds=[SEEDS[i]])
        output = model.generate(**one, **HOT, max_new_tokens=48, custom_generate=decoder)
        alone = output[0, int(real.sum()) :].tolist()
        assert alone[: len(together[i])] == together[i]
    assert seeded(8, [seed + 1 for seed in SEEDS]) != together


@pytest.mark.parametrize(("rows", "draft"), once_each(BATCHES, ["grammar", "prompt_lookup", "grammar+prompt_lookup"]))
def test_drafts_change_nothing(rows: int, draft: str) -> None:
    assert seeded(rows, SEEDS[:rows], draft=draft.split("+")) == seeded(rows, SEEDS[:rows])


def test_seeds_draw_from_the_distribution() -> None:
    """Twenty thousand rows of one step each: the counts are those of softmax, with and without a draft."""
    probabilities = torch.tensor([0.4, 0.3, 0.2, 0.1, 0.0])
    scores = probabilities.log()
    n = 20_000
    seeds = torch.arange(n) * 7919 - 5
    lines = scores.expand(n, 5)
    drawn = [one.bonus_token for one in accept_seeded(lines, [[]] * n, seeds, torch.zeros(n, dtype=torch.long))]
    expected = {(i,): float(p) for i, p in enumerate(probabilities)}
    assert p_value(Counter((token,) for token in drawn), expected) > NEVER_BY_CHANCE
    # With a draft of token 1, the first token and the one behind it, position by position.
    both = torch.stack([seeds, seeds], 1).flatten()
    places = torch.arange(2).repeat(n)
    taken = accept_seeded(scores.expand(2 * n, 5), [[1]] * n, both, places)
    first = [1 if one.num_drafted else one.bonus_token for one in taken]
    assert first == drawn
    second = Counter((one.bonus_token,) for one in taken if one.num_drafted)
    assert p_value(second, expected) > NEVER_BY_CHANCE


def test_bad_seeds_are_refused() -> None:
    guide = family("llama")[1]
    for seeds in ([1.5], [True], [2**64], ["1"]):
        with pytest.raises(ValueError, match="ints of 64 bits"):
            guide.decoder(None, seeds=seeds)
    with pytest.raises(ValueError, match="one for each of 3 rows, got 2"):
        run("llama", 3, custom_generate=guide.decoder(None, seeds=[1, 2]), **HOT)
    with pytest.raises(ValueError, match="one generator"):
        run("llama", 1, custom_generate=guide.decoder(hg.Regex("a+"), seeds=[1]), num_beams=2, **HOT)


def test_hg_generate_draws_the_same_in_any_batches() -> None:
    model, guide = family("llama")
    prompts = ["a", "bb c", "d", "e f g", "h"]
    asked = {**HOT, "seed": 5, "guide": guide, "max_new_tokens": 40}

    def run_all(**changed: Any) -> list[list[int]]:
        results = hg.generate(model, guide.tokenizer, prompts, hg.Regex("[a-z ]{8,30}"), **{**asked, **changed})
        return [result.token_ids for result in results]

    once = run_all(batch_size=5)
    torch.manual_seed(1)
    for batch_size in (1, 2, 3):
        assert run_all(batch_size=batch_size) == once
    assert run_all(draft="prompt_lookup") == once
    assert run_all(seed=6) != once
    assert len({tuple(one) for one in run_all(num_return_sequences=4)}) == 20  # the copies of a prompt too
    assert run_all(seed=[9] * 5) == run_all(seed=[9] * 5, batch_size=1)
    with pytest.raises(ValueError, match="one for each of 5 prompts"):
        run_all(seed=[1, 2])
    with pytest.raises(ValueError, match="fast loop only"):
        run_all(jump_forward=False)


CHANGED: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.4},
    "cache_implementation": {"cache_implementation": "static"},
    "num_return_sequences": {"num_return_sequences": 2},
    "reasoning": {"reasoning": hg.Reasoning("<a>", "</a>", max_tokens=8)},
    "use_cache": {"use_cache": False},
}


@pytest.mark.parametrize(("name", "changed"), once_each(["llama", "mistral", "t5"], CHANGED))
def test_whatever_runs_a_row_it_draws_the_same(name: str, changed: str) -> None:
    """All rows at once, two at a time, and each alone."""
    model, guide = family(name)
    prompts, seeds = ["a", "bb c", "d e f g"], [7, -7, 2**70]
    asked = {**HOT, "guide": guide, "max_new_tokens": 40, **CHANGED[changed]}
    language = hg.Regex("[a-z ]{8,20}=[0-9]{3}")

    def drawn(places: slice, **how: Any) -> list[list[int]]:
        some = hg.generate(model, guide.tokenizer, prompts[places], language, seed=seeds[places], **asked, **how)
        return [one.token_ids for one in some]

    once = drawn(slice(3))
    assert drawn(slice(3), batch_size=2) == once
    assert [one for i in range(3) for one in drawn(slice(i, i + 1))] == once
    assert len(set(map(tuple, once))) == len(once)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_draws_what_its_scores_give(dtype: torch.dtype) -> None:
    """As many rows as there are, in one order and the other: their scores are the same."""
    model, guide = family("llama")
    half = copy.deepcopy(model).to(dtype)
    asked = {**HOT, "guide": guide, "max_new_tokens": 40, "draft": None}
    seeds = [5, 6, 7]
    there, back = (
        [
            one.token_ids
            for one in hg.generate(half, guide.tokenizer, ["a"] * 3, hg.Regex("[a-z]{20}"), seed=some, **asked)
        ]
        for some in (seeds, seeds[::-1])
    )
    assert there == back[::-1] and len(set(map(tuple, there))) == 3


def test_a_retry_draws_anew() -> None:
    """A value that a validator of the caller refuses half the time: the second try is no repetition of the first."""
    model, guide = family("llama")

    class Even(BaseModel):
        n: int = Field(ge=0, le=9)

        @field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("odd")
            return n

    def run_all(retries: int) -> list[hg.GuidedResult]:
        return hg.generate(model, guide.tokenizer, ["a"] * 12, Even, guide=guide, seed=1, retries=retries, **HOT)

    assert any(result.error for result in run_all(0))
    assert not any(result.error for result in run_all(12))
