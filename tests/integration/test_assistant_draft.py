"""Drafts of an assistant model: what plain masked generation by that model gives, for any rows at any time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import islice
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessorList,
    PreTrainedModel,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

import hf_guided as hg
from hf_guided import demo
from hf_guided.errors import UnsupportedModel
from hf_guided.hf.drafts import DraftRequest
from hf_guided.hf.drafts.assistant import AssistantDraft
from hf_guided.session.row import Row
from hf_guided.vocabulary.bitmask import allocate_bitmask, unpack
from tests import vocabularies
from tests.integration import models
from tests.integration.families import FAMILIES

CONSTRAINTS: tuple[Any, ...] = (
    hg.Regex("[a-z]{2,60}(, [0-9]{1,30})?"),
    None,
    hg.JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"type": "string", "pattern": "^[a-z ]{1,40}$"}},
            "required": ["name"],
        }
    ),
)


def _gpt2() -> PreTrainedModel:
    """With few positions, so that a text can come to their end."""
    tokenizer = vocabularies.demo()
    shape = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 96, "initializer_range": 0.5}
    size = {"vocab_size": len(tokenizer) + models.PADDING, "eos_token_id": tokenizer.eos_token_id, "bos_token_id": None}
    return GPT2LMHeadModel(GPT2Config(**shape, **size))


MODELS: dict[str, Callable[[], PreTrainedModel]] = {
    "llama": lambda: models.llama(vocabularies.demo()),
    "qwen2": lambda: FAMILIES["qwen2"](vocabularies.demo()),
    "gpt2": _gpt2,
    "demo draft": demo.load_draft,
}


@cache
def assistant(name: str) -> PreTrainedModel:
    """In double precision, so that no near tie is decided by rounding."""
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    model.generation_config.pad_token_id = model.generation_config.eos_token_id = vocabularies.demo().eos_token_id
    return model


@cache
def guide(name: str) -> hg.Guide:
    return hg.Guide(assistant(name), vocabularies.demo())


class Conversation:
    """A row as a decode loop would keep it, with what plain generation says comes next."""

    def __init__(self, name: str, index: int, constraint: Any, prompt: Sequence[int]):
        self.name, self.index, self.constraint = name, index, constraint
        self.row = Row(None if constraint is None else guide(name).compile(constraint).matcher())
        self.ids, self.prompt_length = list(prompt), len(prompt)

    def asked(self, limit: int) -> DraftRequest:
        stops = guide(self.name).vocabulary.stop_token_ids
        return DraftRequest(self.index, self.row, self.ids, self.prompt_length, limit, stops)

    def take(self, tokens: Sequence[int]) -> None:
        for token_id in tokens:
            assert self.row.advance(token_id)
        self.ids += tokens

    def plain(self, count: int) -> list[int]:
        """The assistant's own greedy tokens behind the text so far, alone in its batch, by ``model.generate``."""
        output = guide(self.name).vocabulary.decode_bytes(self.ids[self.prompt_length :])
        so_far = None if self.constraint is None else output.decode()
        processor = guide(self.name).logits_processor(self.constraint, prefix=so_far)
        out = assistant(self.name).generate(
            torch.tensor([self.ids]),
            attention_mask=torch.ones(1, len(self.ids), dtype=torch.int64),
            logits_processor=[processor],
            max_new_tokens=count,
            do_sample=False,
        )
        return out[0, len(self.ids) :].tolist()

    def take_another_than(self, token_id: int) -> None:
        """Take some token of text that is not this one, if the row may go on with any."""
        text = filter(guide(self.name).vocabulary.is_text, reversed(range(len(vocabularies.demo()))))
        self.take(list(islice((one for one in text if one != token_id and self.row.takes([one])), 1)))


def conversations(name: str, lengths: Sequence[int]) -> list[Conversation]:
    text_ids = guide(name).vocabulary.encode_bytes(b"the invoice of 12 march is not paid yet, says anna")
    return [
        Conversation(name, i, CONSTRAINTS[i % 3], models.prompts(text_ids, 1, length, seed=i)[0].tolist())
        for i, length in enumerate(lengths)
    ]


@pytest.mark.parametrize("lengths", [[5], [7, 3, 12]], ids=["batch 1", "batch 3"])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_drafts_are_plain_masked_generation(name: str, lengths: list[int]):
    """Through rejections, other tokens than drafted, rows that leave and come back, and limits that differ."""
    rows = conversations(name, lengths)
    source = AssistantDraft(assistant(name))
    drafted = 0
    for round_ in range(6):
        now = [row for row in rows if (round_ + row.index) % 4 or round_ == 0 or len(rows) == 1]
        limits = [6 - (round_ + row.index) % 3 for row in now]
        drafts = source.propose([row.asked(limit) for row, limit in zip(now, limits, strict=True)])
        for row, limit, draft in zip(now, limits, drafts, strict=True):
            assert list(draft.tokens) == row.plain(limit)
            assert draft.probabilities is None
            drafted += len(draft.tokens)
            kept = list(draft.tokens[: (2 * round_ + row.index) % 5])
            if kept and kept[-1] in guide(name).vocabulary.stop_token_ids:
                kept.pop()
            row.take(kept)
            if round_ % 2:  # the model chose another token than was drafted
                row.take_another_than((*draft.tokens, -1)[len(kept)])
                row.take_another_than(-1)  # and more came from elsewhere
    assert drafted > 10 * len(rows)


def test_a_new_call_with_other_texts():
    source = AssistantDraft(assistant("llama"))
    for lengths in ([6, 9], [4], [9, 6, 5]):
        rows = conversations("llama", lengths)
        for row, draft in zip(rows, source.propose([row.asked(4) for row in rows]), strict=True):
            assert list(draft.tokens) == row.plain(4)
        if len(lengths) == 1:
            source.reset()


@pytest.mark.parametrize("guided", [True, False])
def test_demo_assistant_writes_a_whole_record(guided: bool):
    """And stops behind its stop token, whatever was asked for."""
    example = demo.EXAMPLES[0]
    constraint = hg.JsonSchema(example.schema) if guided else None
    row = Conversation("demo draft", 0, constraint, vocabularies.demo()(example.prompt)["input_ids"])
    (draft,) = AssistantDraft(assistant("demo draft")).propose([row.asked(150)])
    assert list(draft.tokens) == row.plain(150)
    assert draft.tokens[-1] == vocabularies.demo().eos_token_id


def test_rows_that_want_nothing_get_nothing():
    rows = conversations("llama", [5, 6, 7, 8])
    row = rows[0].row
    assert row.matcher is not None
    row.advance(-1)  # leaves its grammar
    limits = [5, 0, -1, 3]
    drafts = AssistantDraft(assistant("llama")).propose([one.asked(n) for one, n in zip(rows, limits, strict=True)])
    assert [len(draft.tokens) for draft in drafts] == [0, 0, 0, 3]
    assert AssistantDraft(assistant("llama")).propose([]) == []


def test_no_position_behind_the_models_last():
    """GPT-2 has a table of them: one more would be an error."""
    for length, expected in (92, 5), (95, 2), (96, 1), (97, 0), (120, 0):
        (row,) = conversations("gpt2", [length])
        (draft,) = AssistantDraft(assistant("gpt2")).propose([row.asked(5)])
        assert len(draft.tokens) == expected


# -- sampling --------------------------------------------------------------------------------------------------------


def masked_scores(row: Row, ids: Sequence[int], name: str) -> Tensor:
    """(1, vocab) float32: from a forward pass over the whole text, masked by unpacked bits."""
    with torch.no_grad():
        scores = assistant(name)(torch.tensor([ids])).logits[:, -1].float()
    if row.matcher is None:
        return scores
    bitmask = allocate_bitmask(1, scores.shape[-1])
    row.matcher.fill_next_token_bitmask(bitmask)
    return scores.masked_fill(~unpack(bitmask, scores.shape[-1]), float("-inf"))


@pytest.mark.parametrize("warp", [None, LogitsProcessorList([TemperatureLogitsWarper(2.0), TopKLogitsWarper(9)])])
def test_probabilities_are_the_masked_warped_distribution(warp: LogitsProcessorList | None):
    rows = conversations("llama", [5, 8, 3])
    generator = torch.Generator().manual_seed(0)
    source = AssistantDraft(assistant("llama"), generator=generator)
    source.reset(lambda ids, scores: scores if warp is None else warp(torch.zeros(len(ids), 0), scores))
    for _ in range(3):
        for one, draft in zip(rows, source.propose([row.asked(4) for row in rows]), strict=True):
            assert draft.probabilities is not None and draft.probabilities.dtype == torch.float32
            row, ids = one.row.fork(), list(one.ids)
            for token_id, q in zip(draft.tokens, draft.probabilities, strict=True):
                scores = masked_scores(row, ids, "llama")
                scores = scores if warp is None else warp(torch.tensor([ids]), scores)
                torch.testing.assert_close(q, scores.softmax(-1)[0])
                assert q[token_id] > 0
                assert row.advance(token_id)
                ids.append(token_id)
            one.take(draft.tokens[:2])


@pytest.mark.parametrize("width", [-7, 0, 50])
def test_logits_of_another_width_than_the_judges(width: int):
    """Models of a family pad their logits differently; no token is lost with the padding."""
    narrow = len(vocabularies.demo()) + models.PADDING + width
    (row,) = conversations("llama", [6])
    source = AssistantDraft(assistant("llama"), vocab_size=narrow)
    source.reset(lambda ids, scores: scores)
    (draft,) = source.propose([row.asked(4)])
    assert draft.probabilities is not None and draft.probabilities.shape == (4, narrow)
    torch.testing.assert_close(draft.probabilities.sum(-1), torch.ones(4))


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "reason"),
    [("mistral", "Sliding"), ("gpt_neo", "local"), ("t5", "encoder-decoder"), ("bloom", "position_ids")],
)
def test_models_that_cannot_be_exact_are_refused(family: str, reason: str):
    with pytest.raises(UnsupportedModel, match=reason):
        AssistantDraft(FAMILIES[family](vocabularies.demo()))
