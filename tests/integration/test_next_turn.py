"""Caches to continue from: the decoder returns what generate() returns, and takes it for the next turn.

The oracle is a second turn that runs all of its tokens anew, in float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    ByT5Tokenizer,
    DynamicCache,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedModel,
    StaticCache,
)

import hf_guided as hg
from hf_guided.hf.compat import CACHE_NAME
from tests.pairs import once_each

TOKENIZER = ByT5Tokenizer(extra_ids=0)
STOP, PAD = TOKENIZER.eos_token_id, TOKENIZER.pad_token_id
FIRST = [
    hg.Regex('\\{"name": "[a-z]{1,9}", "city": "[a-z]{1,9}"\\}'),
    None,
    hg.Choice(["yes", "no, not at all"]),
    hg.Regex("[a-z]{3} and [a-z]{5}"),
]
SECOND = [hg.Choice(["fine", "bad"]), hg.Regex('\\{"age": [0-9]{1,3}\\}'), None, hg.Regex("x{1,30}")]
SHAPE = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
IDS = {"vocab_size": len(TOKENIZER), "bos_token_id": None, "eos_token_id": STOP, "pad_token_id": PAD}
CONFIGS = {
    "llama": LlamaConfig(**SHAPE, **IDS, num_key_value_heads=2),
    "mistral, window of 16": MistralConfig(**SHAPE, **IDS, num_key_value_heads=2, sliding_window=16),
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, **IDS),
}
FORMS: dict[str, dict[str, Any]] = {
    "default": {},
    "drafts": {"draft": "prompt_lookup"},
    "without jump-forward": {"jump_forward": False},
}


def model(name: str) -> PreTrainedModel:
    return wide_awake(AutoModelForCausalLM.from_config(CONFIGS[name]))


def wide_awake(built: PreTrainedModel) -> PreTrainedModel:
    """The model in float64, with weights that make it write more than one token again and again."""
    torch.manual_seed(0)
    built = built.double().eval()
    for parameter in built.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return built


def padded(texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    width = max(map(len, texts))
    ids = torch.tensor([[PAD] * (width - len(text)) + text for text in texts])
    return ids, torch.tensor([[0] * (width - len(text)) + [1] * len(text) for text in texts])


def first_turn(rows: int) -> dict[str, Tensor]:
    ids, mask = padded([list(text.encode()) for text in ("hello there", "a", "what now, then", "tell me")[:rows]])
    return {"input_ids": ids + 3 * mask, "attention_mask": mask}


def with_next(
    first: dict[str, Tensor], sequences: Tensor, rows: int, stops: Sequence[int] = (STOP,)
) -> dict[str, Tensor]:
    """The second turn: all of the first one, and new text; padding between the turns is masked."""
    prompt = first["input_ids"].shape[1]
    mask = torch.ones_like(sequences)
    mask[:, :prompt] = first["attention_mask"]
    for row, ids in enumerate(sequences[:, prompt:].tolist()):
        end = next((i for i, token_id in enumerate(ids, 1) if token_id in stops), len(ids))
        mask[row, prompt + end :] = 0
    new, new_mask = padded([list(text.encode()) for text in ("and you?", "ok", "why", "more of it")[:rows]])
    return {
        "input_ids": torch.cat([sequences, new + 3 * new_mask], 1),
        "attention_mask": torch.cat([mask, new_mask], 1),
    }


@pytest.mark.parametrize(("name", "form", "rows"), once_each(CONFIGS, FORMS, [1, 4]))
def test_a_second_turn_runs_only_its_new_tokens(name: str, form: str, rows: int) -> None:
    network = model(name)
    guide = hg.Guide(network, TOKENIZER)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60, "return_dict_in_generate": True}
    first = first_turn(rows)
    output = network.generate(**first, **options, custom_generate=guide.decoder(FIRST[:rows], **FORMS[form]))
    reference = network.generate(**first, **options, logits_processor=[guide.logits_processor(FIRST[:rows])])
    assert output.sequences.tolist() == reference.sequences.tolist()
    cache = output[CACHE_NAME]
    assert cache.get_seq_length() == output.sequences.shape[1] - 1

    second = with_next(first, output.sequences, rows)
    plain = guide.logits_processor(SECOND[:rows])
    expected = network.generate(**second, **options, logits_processor=[plain]).sequences
    columns: list[int] = []
    network.register_forward_pre_hook(
        lambda _, __, inputs: columns.append(inputs["input_ids"].shape[1]), with_kwargs=True
    )
    decoder = guide.decoder(SECOND[:rows], **FORMS[form])
    again = network.generate(**second, **options, **{CACHE_NAME: cache}, custom_generate=decoder).sequences
    assert again.tolist() == expected.tolist()
    assert columns[0] == second["input_ids"].shape[1] - (output.sequences.shape[1] - 1)


def test_the_caller_s_own_cache_too() -> None:
    network = model("llama")
    guide = hg.Guide(network, TOKENIZER)
    first, cache = first_turn(4), DynamicCache(config=network.config)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60}
    sequences = network.generate(**first, **options, **{CACHE_NAME: cache}, custom_generate=guide.decoder(FIRST))
    second = with_next(first, sequences, 4)
    expected = network.generate(**second, **options, logits_processor=[guide.logits_processor(SECOND)])
    again = network.generate(**second, **options, **{CACHE_NAME: cache}, custom_generate=guide.decoder(SECOND))
    assert again.tolist() == expected.tolist()


@pytest.mark.parametrize("form", ["default", "without jump-forward"])
def test_a_static_cache_of_the_caller(form: str) -> None:
    network = model("llama")
    guide = hg.Guide(network, TOKENIZER)
    first, cache = first_turn(4), StaticCache(network.config, max_cache_len=200)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60}
    decoder = guide.decoder(FIRST, **FORMS[form])
    sequences = network.generate(**first, **options, **{CACHE_NAME: cache}, custom_generate=decoder)
    assert cache.get_seq_length() == sequences.shape[1] - 1
    second = with_next(first, sequences, 4)
    expected = network.generate(**second, **options, logits_processor=[guide.logits_processor(SECOND)])
    decoder = guide.decoder(SECOND, **FORMS[form])
    again = network.generate(**second, **options, **{CACHE_NAME: cache}, custom_generate=decoder)
    assert again.tolist() == expected.tolist()


def test_rows_may_end_with_different_stop_tokens() -> None:
    network, other = model("llama"), 3 + ord("\n")
    guide = hg.Guide(network, TOKENIZER)
    stops = [STOP, other]
    first = first_turn(4)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60, "eos_token_id": stops}
    for bias in (-20.0, 20.0):  # the model ends rows with the one, or with the other
        options["sequence_bias"] = {(other,): bias}
        decoder = guide.decoder(FIRST, stop_token_ids=stops)
        output = network.generate(**first, **options, return_dict_in_generate=True, custom_generate=decoder)
        ended_with = set(output.sequences[0].tolist()) & set(stops)
        assert ended_with == ({other} if bias > 0 else {STOP})
        second = with_next(first, output.sequences, 4, stops)
        processor = guide.logits_processor(SECOND, stop_token_ids=stops)
        expected = network.generate(**second, **options, logits_processor=[processor])
        decoder = guide.decoder(SECOND, stop_token_ids=stops)
        cache = output[CACHE_NAME]
        again = network.generate(**second, **options, **{CACHE_NAME: cache}, custom_generate=decoder)
        assert again.tolist() == expected.tolist()


def test_a_returned_state_is_that_of_generate() -> None:
    """A state cannot leave out the padding of rows that ended; generate() has run it too."""
    config = MambaConfig(hidden_size=32, num_hidden_layers=2, state_size=4, expand=2, **IDS)
    network = wide_awake(AutoModelForCausalLM.from_config(config))
    guide = hg.Guide(network, TOKENIZER)
    first = first_turn(4)
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60, "return_dict_in_generate": True}
    ours = network.generate(**first, **options, custom_generate=guide.decoder(FIRST))
    theirs = network.generate(**first, **options, logits_processor=[guide.logits_processor(FIRST)])
    assert ours.sequences.tolist() == theirs.sequences.tolist()
    states = [
        [(layer.conv_states, layer.recurrent_states) for layer in one[CACHE_NAME].layers] for one in (ours, theirs)
    ]
    torch.testing.assert_close(*states)


def test_a_cache_after_embedded_prompts() -> None:
    """The returned tokens have no columns for the prompt; the cache has slots for it."""
    network = model("llama")
    guide = hg.Guide(network, TOKENIZER)
    first = first_turn(4)
    embedded = {
        "inputs_embeds": network.get_input_embeddings()(first["input_ids"]),
        "attention_mask": first["attention_mask"],
    }
    options: dict[str, Any] = {"do_sample": False, "max_new_tokens": 60, "return_dict_in_generate": True}
    ours = network.generate(**embedded, **options, custom_generate=guide.decoder(FIRST))
    theirs = network.generate(**embedded, **options, logits_processor=[guide.logits_processor(FIRST)])
    assert ours.sequences.tolist() == theirs.sequences.tolist()
    assert ours[CACHE_NAME].get_seq_length() == theirs[CACHE_NAME].get_seq_length()
    prompt = first["input_ids"].shape[1]
    for row, ids in enumerate(ours.sequences.tolist()):
        end = prompt + (ids.index(STOP) + 1 if STOP in ids else len(ids) - 1)
        start = prompt - int(first["attention_mask"][row].sum())
        for mine, other in zip(ours[CACHE_NAME].layers, theirs[CACHE_NAME].layers, strict=True):
            assert torch.allclose(mine.keys[row, :, start:end], other.keys[row, :, start:end])
            assert torch.allclose(mine.values[row, :, start:end], other.values[row, :, start:end])
