"""A tokenizer with tokens that were added to it alone: the model has neither logits nor embeddings for them.

The oracle is the same model with the tokenizer before they were added.
"""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

import hf_guided as hg
from hf_guided.errors import StopTokenError, VocabularySizeError
from hf_guided.hf.drafts.base import DraftRequest
from hf_guided.hf.drafts.sources import PromptLookup
from hf_guided.session.row import Row
from hf_guided.vocabulary.retokenize import Continuation
from tests import tokenizer_zoo, vocabularies
from tests.integration import models

ADDED = ("[PAD]", "<|im_end|>", "<think>", "</think>")  # special
SCHEMA = {
    "type": "object",
    "properties": {"<tool> name": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["<tool> name"],
}
PROMPTS = ["Anna booked two rooms", "The invoice"]


def plain() -> PreTrainedTokenizerBase:
    return vocabularies.demo()


@cache
def added() -> PreTrainedTokenizerBase:
    tokenizer = copy.deepcopy(plain())
    tokenizer.add_tokens([*(AddedToken(text, special=True) for text in ADDED), AddedToken("<tool>", special=False)])
    tokenizer.pad_token = "[PAD]"
    return tokenizer


@cache
def model() -> Any:
    return models.llama(plain(), layers=1, padding=0)


def ids_of(*tokens: str) -> list[int]:
    return added().convert_tokens_to_ids(list(tokens))


def test_the_model_has_no_column_for_them() -> None:
    assert min(ids_of(*ADDED, "<tool>")) == len(plain()) == model().config.vocab_size


@pytest.mark.parametrize("arguments", [{}, {"jump_forward": False}, {"draft": "grammar"}, {"draft": "prompt_lookup"}])
def test_generates_as_if_they_had_not_been_added(arguments: dict[str, Any]) -> None:
    expected = hg.generate(model(), plain(), PROMPTS, SCHEMA, max_new_tokens=60, **arguments)
    results = hg.generate(model(), added(), PROMPTS, SCHEMA, max_new_tokens=60, **arguments)
    assert [result.finish_reason for result in results] == ["stop", "stop"]
    assert [result.text for result in results] == [result.text for result in expected]
    for result in results:
        assert '"<tool> name"' in result.text and max(result.token_ids) < model().config.vocab_size


def test_padding_that_the_model_cannot_embed() -> None:
    """As a saved generation config has it: rows of different lengths are padded with another token."""
    padded = copy.deepcopy(model())
    padded.generation_config.pad_token_id = added().pad_token_id
    expected = hg.generate(model(), plain(), PROMPTS, ["yes", "a longer answer"], max_new_tokens=20)
    results = hg.generate(padded, added(), PROMPTS, ["yes", "a longer answer"], max_new_tokens=20)
    assert [result.text for result in results] == [result.text for result in expected]


def test_same_masks_and_cache_key() -> None:
    one, two = hg.Guide(model(), plain()), hg.Guide(model(), added())
    assert one.vocabulary.token_bytes == two.vocabulary.token_bytes
    assert one.vocabulary.fingerprint == two.vocabulary.fingerprint
    assert not any(two.vocabulary.is_text(token_id) for token_id in ids_of(*ADDED, "<tool>"))


def test_forced_text_is_written_without_them() -> None:
    vocabulary = hg.Guide(model(), added()).vocabulary
    assert added().encode("a<tool>b", add_special_tokens=False)[1:2] == ids_of("<tool>")
    tokens = Continuation(vocabulary)([], b"a<tool>b</think>")
    assert vocabulary.decode_bytes(tokens) == b"a<tool>b</think>"
    assert max(tokens) < vocabulary.padded_size


def test_reasoning_markers_are_written_as_text() -> None:
    reasoning = hg.Reasoning(start="<think>", end="</think>", max_tokens=8)
    [expected], [result] = (
        hg.generate(model(), tokenizer, PROMPTS[:1], ["yes"], reasoning=reasoning, max_new_tokens=40)
        for tokenizer in (plain(), added())
    )
    assert result.value == "yes" and result.token_ids == expected.token_ids


def test_marks_of_a_structural_tag_are_written_as_text() -> None:
    tag = hg.StructuralTag({"type": "structural_tag", "format": {"type": "const_string", "value": "<|im_end|>x<tool>"}})
    [result] = hg.generate(model(), added(), PROMPTS[:1], tag, max_new_tokens=40)
    assert (result.text, result.finish_reason) == ("<|im_end|>x<tool>", "stop")


@pytest.mark.parametrize("text", ["[PAD]", "<tool>"])
def test_a_prompt_with_one_of_them_is_refused(text: str) -> None:
    with pytest.raises(VocabularySizeError, match=rf"token {ids_of(text)[0]} \({re_escape(text)}\).*resize_token_emb"):
        hg.generate(model(), added(), f"Anna {text} booked", ["yes"])


def re_escape(text: str) -> str:
    return text.replace("[", r"\[").replace("]", r"\]")


def test_prefix_with_one_of_them_after_a_chat_is_written_with_other_tokens() -> None:
    tokenizer = copy.deepcopy(added())
    tokenizer.chat_template = "{{ messages[0]['content'] }}"
    [result] = hg.generate(model(), tokenizer, [[{"role": "user", "content": "Hi"}]], ["a<tool>b"], prefix="a<tool>")
    assert result.value == "a<tool>b"


def test_prompt_lookup_stops_before_them() -> None:
    """In free rows nothing else would: prompts of some models hold ids for images that have no column."""
    width = len(plain())
    request = DraftRequest(0, Row(None), [1, 2, 3, width + 1, 5, 1, 2], 7, 5, [], padded_size=width)
    assert PromptLookup().propose([request])[0].tokens == [3]


# --- stop tokens ---


def with_stops(*stops: int) -> Any:
    stopping = copy.deepcopy(model())
    stopping.generation_config.eos_token_id = list(stops)
    return stopping


def test_a_stop_token_among_them_is_left_out() -> None:
    [im_end], eos = ids_of("<|im_end|>"), plain().eos_token_id
    assert hg.Guide(with_stops(im_end, eos), added()).vocabulary.stop_token_ids == (eos,)
    [expected] = hg.generate(model(), plain(), PROMPTS[:1], SCHEMA, max_new_tokens=60)
    [result] = hg.generate(with_stops(im_end, eos), added(), PROMPTS[:1], SCHEMA, max_new_tokens=60)
    assert (result.text, result.finish_reason) == (expected.text, "stop")
    guide = hg.Guide(with_stops(im_end, eos), added())
    processor = guide.logits_processor(SCHEMA, stop_token_ids=[im_end, eos])
    assert processor.stop_token_ids == (eos,)
    assert guide.compile(SCHEMA).matcher([im_end, eos]).stop_token_ids == (eos,)


def test_no_other_stop_token() -> None:
    [im_end] = ids_of("<|im_end|>")
    tokenizer = copy.deepcopy(added())
    tokenizer.eos_token = "<|im_end|>"
    message = f"stop token {im_end} is outside the model's logits, which have {len(plain())} columns"
    with pytest.raises(StopTokenError, match=message):
        hg.Guide(len(plain()), tokenizer)
    with pytest.raises(StopTokenError, match=message):
        hg.Guide(model(), added()).logits_processor(SCHEMA, stop_token_ids=[im_end])
    with pytest.raises(StopTokenError, match=message):
        hg.generate(with_stops(im_end), added(), PROMPTS[:1], SCHEMA)


# --- other tokenizers ---


@pytest.mark.parametrize("name", ["llama2", "t5", "slow bpe", "byt5", "characters"])
def test_every_kind_of_tokenizer(name: str) -> None:
    """As gemma-3-1b-it's: one special token more than columns."""
    before = tokenizer_zoo.ZOO[name]()
    width = max(before.get_vocab().values()) + 1
    tokenizer = copy.deepcopy(before)
    tokenizer.add_tokens([AddedToken("<image_soft_token>", special=True)])
    assert tokenizer.convert_tokens_to_ids("<image_soft_token>") == width
    one, two = hg.Guide(width, before).vocabulary, hg.Guide(width, tokenizer).vocabulary
    assert one.token_bytes == two.token_bytes and two.padded_size == width


def test_text_tokens_of_its_own_belong_to_another_model() -> None:
    tokenizer = tokenizer_zoo.gpt2()
    with pytest.raises(
        VocabularySizeError, match=r"420 tokens.*400 columns.*none for 20 text tokens, such as '.*pass the"
    ):
        hg.Guide(400, tokenizer)
