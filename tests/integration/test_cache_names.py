"""The cache under both of its names: "cache" since transformers 5.24, "past_key_values" before and in models' own code.

Warnings are errors in tests, so that these also check that no call of ours uses a name that is deprecated.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
import torch
from transformers import DynamicCache, LlamaForCausalLM

import hf_guided as hg
from tests import vocabularies
from tests.integration import models

TOKENIZER = vocabularies.tiny_byte_level()
NAMES = ("cache", "past_key_values")
OWN = next(name for name in NAMES if name in inspect.signature(LlamaForCausalLM.forward).parameters)
PATTERN = re.compile("[a-f]{3,9}=[0-9]{1,3}")
PROMPT = "one two three"
OPTIONS: dict[str, Any] = {"do_sample": False, "max_new_tokens": 30}


class OldName(LlamaForCausalLM):
    """A model with code of its own, whose forward() has the old name."""

    def forward(  # type: ignore[override]
        self,
        input_ids: Any = None,
        attention_mask: Any = None,
        position_ids: Any = None,
        past_key_values: Any = None,
        **kwargs: Any,
    ) -> Any:
        given = {OWN: past_key_values if past_key_values is not None else kwargs.pop(OWN, None)}
        return super().forward(
            input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, **given, **kwargs
        )


class AnyName(LlamaForCausalLM):
    """A model whose forward() names nothing."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return super().forward(*args, **kwargs)


KINDS = {"llama": LlamaForCausalLM, "the old name": OldName, "no names": AnyName}


def llama(kind: str = "llama", hidden: int = 16) -> Any:
    model = models.llama(TOKENIZER, hidden=hidden, layers=2)
    model.__class__ = KINDS[kind]
    return model


def filled(model: Any) -> tuple[Any, torch.Tensor]:
    """A cache of all but the last token of a first turn, and its tokens."""
    ids = TOKENIZER(PROMPT, return_tensors="pt")["input_ids"]
    output = model.generate(ids, max_new_tokens=8, do_sample=False, return_dict_in_generate=True)
    return next(output[name] for name in NAMES if name in output), output.sequences


@pytest.mark.parametrize("jump_forward", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_hg_generate_takes_both_names(name: str, jump_forward: bool) -> None:
    model = llama()
    expected = hg.generate(model, TOKENIZER, PROMPT, PATTERN, jump_forward=jump_forward, **OPTIONS)
    cache = DynamicCache(config=model.config)
    given = hg.generate(model, TOKENIZER, PROMPT, PATTERN, jump_forward=jump_forward, **OPTIONS, **{name: cache})
    assert [result.token_ids for result in given] == [result.token_ids for result in expected]
    assert cache.get_seq_length() > 0


def test_two_names_at_once_are_refused() -> None:
    model = llama()
    caches = {name: DynamicCache(config=model.config) for name in NAMES}
    with pytest.raises(hg.InvalidArgument, match="cache, past_key_values|past_key_values, cache"):
        hg.generate(model, TOKENIZER, PROMPT, PATTERN, **OPTIONS, **caches)


@pytest.mark.parametrize("form", [{}, {"jump_forward": False}, {"draft": "prompt_lookup"}])
def test_a_filled_cache_is_seen_by_the_decoder(form: dict[str, Any]) -> None:
    model = llama()
    guide = hg.Guide(model, TOKENIZER)
    constraint = hg.Regex(PATTERN.pattern)
    cache, ids = filled(model)
    before = cache.get_seq_length()
    assert before == ids.shape[1] - 1
    decoder = guide.decoder(constraint, max_new_tokens=30, **form)
    written = model.generate(ids, custom_generate=decoder, **OPTIONS, **{OWN: cache})
    processor = guide.logits_processor(constraint, max_new_tokens=30)
    expected = model.generate(ids, logits_processor=[processor], **OPTIONS)
    assert written.tolist() == expected.tolist()
    assert cache.get_seq_length() > before


@pytest.mark.parametrize("kind", KINDS)
def test_models_with_code_of_their_own(kind: str) -> None:
    model = llama(kind)
    guide = hg.Guide(model, TOKENIZER)
    constraint = hg.Regex(PATTERN.pattern)
    ids = TOKENIZER(PROMPT, return_tensors="pt")["input_ids"]
    processor = guide.logits_processor(constraint, max_new_tokens=30)
    expected = model.generate(ids, logits_processor=[processor], **OPTIONS)
    output = model.generate(
        ids,
        custom_generate=guide.decoder(constraint, max_new_tokens=30),
        return_dict_in_generate=True,
        **OPTIONS,
    )
    assert output.sequences.tolist() == expected.tolist()
    assert output[OWN].get_seq_length() == output.sequences.shape[1] - 1


@pytest.mark.parametrize("kind", ["llama", "the old name"])
def test_assistants_of_every_kind(kind: str) -> None:
    model, assistant = llama(), llama(kind, hidden=8)
    expected = hg.generate(model, TOKENIZER, PROMPT, PATTERN, **OPTIONS)
    drafted = hg.generate(model, TOKENIZER, PROMPT, PATTERN, draft=assistant, **OPTIONS)
    assert [result.token_ids for result in drafted] == [result.token_ids for result in expected]
