"""Sampling with drafts of every source leaves the distribution unchanged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from hf_guided.hf.drafts import Draft, DraftRequest
from hf_guided.hf.drafts.assistant import AssistantDraft
from hf_guided.hf.drafts.grammar import GrammarDraft
from hf_guided.hf.drafts.sources import PromptLookup
from hf_guided.hf.drafts.verify import accept_sampling
from hf_guided.session.row import Row
from tests.chi_square import NEVER_BY_CHANCE, p_value
from tests.toy import ForcingSetEngine, compiled_set, letters

LETTERS = letters("abc", padded_size=16)
A, B, C = 2, 3, 4


@cache
def of_letters() -> LlamaForCausalLM:
    """An assistant with 16 tokens of its own mind."""
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=16, num_hidden_layers=1, num_attention_heads=1)
    return LlamaForCausalLM(config).eval()


class JudgedText:
    """Two tokens of a language of letters, judged by a model that is a table: scores by the token before."""

    language = compiled_set(LETTERS, "aa", "ab", "acc", "ba", "bcc", "c", "caa", "cb")
    prompt = (A, B, A, C, B)

    def __init__(self) -> None:
        self.table = torch.randn(16, 16, generator=torch.Generator().manual_seed(5)) / 2

    @cache  # noqa: B019 - one object, for one test
    def line(self, taken: tuple[int, ...]) -> Tensor:
        """Masked scores behind these tokens of output."""
        matcher = self.language.matcher()
        assert all(map(matcher.accept_token, taken))
        allowed = [matcher.fork().accept_token(token_id) for token_id in range(16)]
        return self.table[(*self.prompt, *taken)[-1]].masked_fill(~torch.tensor(allowed), float("-inf"))

    def joint(self) -> dict[tuple[int, ...], float]:
        """The two tokens' distribution, one after the other."""
        first = self.line(()).softmax(-1).tolist()
        return {
            (a, b): first[a] * share
            for a in range(16)
            if first[a]
            for b, share in enumerate(self.line((a,)).softmax(-1).tolist())
        }

    def two_tokens(self, propose: Callable[[list[DraftRequest]], list[Draft]], rows: int, seed: int) -> Counter[Any]:
        """What so many rows write with drafts, exactly two steps of text each."""
        generator = torch.Generator().manual_seed(seed)
        texts: list[tuple[int, ...]] = [()] * rows
        while unfinished := [i for i, text in enumerate(texts) if len(text) < 2]:
            asked = []
            for i in unfinished:
                row = Row(self.language.matcher())
                assert all(map(row.advance, texts[i]))
                ids = [*self.prompt, *texts[i]]
                asked.append(DraftRequest(i, row, ids, len(self.prompt), 2 - len(texts[i]), LETTERS.stop_token_ids))
            drafts = propose(asked)
            tokens = [draft.tokens for draft in drafts]
            lines = [
                self.line((*texts[i], *drafted[:n]))
                for i, drafted in zip(unfinished, tokens, strict=True)
                for n in range(len(drafted) + 1)
            ]
            given = [draft.probabilities for draft in drafts]
            accepted = accept_sampling(torch.stack(lines), tokens, given, generator)
            for i, drafted, taken in zip(unfinished, tokens, accepted, strict=True):
                texts[i] = (*texts[i], *drafted[: taken.num_drafted], taken.bonus_token)[:2]
        return Counter(texts)


def _sampling_assistant() -> Callable[[list[DraftRequest]], list[Draft]]:
    generator = torch.Generator().manual_seed(2)
    source = AssistantDraft(of_letters(), generator=generator)
    source.reset(lambda ids, scores: scores)
    return source.propose


def _cubed(asked: list[DraftRequest]) -> list[Draft]:
    """An assistant that gives other probabilities than it drew from."""
    drafts = _sampling_assistant()(asked)
    return [Draft(one.tokens, None if one.probabilities is None else one.probabilities**3) for one in drafts]


def _grammar() -> Callable[[list[DraftRequest]], list[Draft]]:
    """With a twin that takes one text of many for the only one."""
    twin = compiled_set(LETTERS, "acc", engine=ForcingSetEngine)
    return GrammarDraft(lambda compiled: twin, lambda ids, data: LETTERS.encode_bytes(data)).propose


SOURCES: dict[str, Callable[[], Callable[[list[DraftRequest]], list[Draft]]]] = {
    "sampling assistant": _sampling_assistant,
    "greedy assistant": lambda: AssistantDraft(of_letters()).propose,
    "grammar": _grammar,
    "prompt lookup": lambda: PromptLookup().propose,
}


@pytest.mark.parametrize("rows", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", SOURCES)
def test_sampling_with_drafts_leaves_the_distribution_unchanged(name: str, rows: int):
    judged = JudgedText()
    propose = SOURCES[name]()
    row = Row(judged.language.matcher())
    (draft,) = propose([DraftRequest(0, row, list(judged.prompt), len(judged.prompt), 2, LETTERS.stop_token_ids)])
    assert draft.tokens, "a source that proposes nothing proves nothing"
    assert p_value(judged.two_tokens(propose, rows, seed=3), judged.joint()) > NEVER_BY_CHANCE


def test_wrong_probabilities_are_seen():
    judged = JudgedText()
    assert p_value(judged.two_tokens(_cubed, 2_000, seed=3), judged.joint()) < NEVER_BY_CHANCE
