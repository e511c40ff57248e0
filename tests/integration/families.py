"""Tiny random models of other families than Llama: how they count positions decides what a decode loop may do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    GPT2LMHeadModel,
    GPTNeoConfig,
    GPTNeoForCausalLM,
    MambaConfig,
    MambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen2ForCausalLM,
)

import hf_guided as hg
from tests import vocabularies
from tests.integration import models

WINDOW = 8  # shorter than nearly every output


def _decoder(config_class: type, model_class: type, **arguments: Any) -> Callable[[PreTrainedTokenizerBase], Any]:
    def build(tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        config = config_class(
            vocab_size=len(tokenizer) + models.PADDING,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.eos_token_id,
            tie_word_embeddings=False,
            **arguments,
        )
        torch.manual_seed(0)
        model = model_class(config).eval()
        torch.nn.init.normal_(model.lm_head.weight, std=0.3)
        model.generation_config.eos_token_id = model.generation_config.pad_token_id = tokenizer.eos_token_id
        return model

    return build


_ROTARY: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": models.CONTEXT,
    "initializer_range": 1.0,
}

FAMILIES: dict[str, Callable[[PreTrainedTokenizerBase], Any]] = {
    "llama": partial(models.llama, layers=2),
    "qwen2": _decoder(Qwen2Config, Qwen2ForCausalLM, **_ROTARY),
    "gpt2": _decoder(
        GPT2Config, GPT2LMHeadModel, n_embd=16, n_layer=2, n_head=2, n_positions=models.CONTEXT, initializer_range=0.5
    ),
    "mistral": _decoder(MistralConfig, MistralForCausalLM, sliding_window=WINDOW, head_dim=8, **_ROTARY),
    "gemma3": _decoder(
        Gemma3TextConfig,
        Gemma3ForCausalLM,
        sliding_window=WINDOW,
        head_dim=8,
        layer_types=["sliding_attention", "full_attention"],
        **_ROTARY,
    ),
    "gpt_neo": _decoder(
        GPTNeoConfig,
        GPTNeoForCausalLM,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        window_size=WINDOW,
        max_position_embeddings=models.CONTEXT,
        initializer_range=0.5,
    ),
    "mamba": _decoder(
        MambaConfig, MambaForCausalLM, hidden_size=16, state_size=4, num_hidden_layers=2, initializer_range=0.5
    ),
    "bloom": _decoder(BloomConfig, BloomForCausalLM, hidden_size=16, n_layer=2, n_head=2, initializer_range=0.5),
    "t5": models.t5,
}
"""Each takes a tokenizer and gives a model in float32."""

TAKE_HOLES = frozenset({"llama", "qwen2", "gpt2"})
"""Those in which rows of different lengths can share a forward pass."""

KEEP_A_STATE = frozenset({"mamba"})
"""Those in which even a lone row takes its tokens one by one."""


@cache
def family(name: str) -> tuple[Any, hg.Guide]:
    """A float64 model and its guide."""
    tokenizer = vocabularies.tiny_byte_level()
    model = FAMILIES[name](tokenizer).double()
    return model, hg.Guide(model, tokenizer)


def token_ids_of(tokenizer: Any, text: str) -> list[int]:
    """A text as a prompt; an empty one is the BOS token."""
    return list(tokenizer(text)["input_ids"]) or [tokenizer.bos_token_id]


@torch.no_grad()
def raw_logits(model: Any, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """(tokens, vocab) float64 before each token of the output: one forward pass over everything."""
    if model.config.is_encoder_decoder:
        given = torch.tensor([prompt])
        start = [model.config.decoder_start_token_id, *output[:-1]]
        logits = model(input_ids=given, decoder_input_ids=torch.tensor([start])).logits[0]
    else:
        logits = model(torch.tensor([[*prompt, *output[:-1]]])).logits[0, len(prompt) - 1 :]
    assert logits.dtype == torch.float64 or model.config.model_type == "mamba"  # which rounds them itself
    return logits.double()


def log_p_after(model: Any, prompt: Sequence[int], output: Sequence[int]) -> Tensor:
    """(vocab,) float64 log probabilities after prompt and output."""
    return raw_logits(model, prompt, [*output, 0])[-1].log_softmax(-1)
