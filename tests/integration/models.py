"""Tiny random models: nothing learned, seeded, so hot that every allowed token has about the same chance.

A trained model stays near the beaten path; these go wherever the mask lets them. The logits are wider than the
vocabulary by an odd number, as real models' are padded.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import (
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    T5Config,
    T5ForConditionalGeneration,
)

PADDING = 37  # columns of logits after the last token
CONTEXT = 512


def llama(
    tokenizer: PreTrainedTokenizerBase, *, seed: int = 0, layers: int = 1, hidden: int = 16, padding: int = PADDING
) -> LlamaForCausalLM:
    """A Llama-shaped decoder for the tokenizer.

    Args:
        tokenizer: gives the vocabulary's size and the stop token.
        seed: of the weights.
        layers: transformer blocks.
        hidden: width of the residual stream.
        padding: columns of logits without a token.
    """
    config = LlamaConfig(
        vocab_size=len(tokenizer) + padding,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=CONTEXT,
        initializer_range=1.0,  # large, so that the context counts: otherwise greedy falls into loops
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    # Logits with a spread of about one: at a temperature above 1.5 nearly uniform, and without ties for greedy.
    torch.nn.init.normal_(model.lm_head.weight, std=hidden**-0.5)
    return _generating(model, tokenizer)


def t5(tokenizer: PreTrainedTokenizerBase, *, seed: int = 0) -> T5ForConditionalGeneration:
    """A T5-shaped encoder-decoder for the tokenizer; its decoder starts with the stop token."""
    config = T5Config(
        vocab_size=len(tokenizer) + PADDING,
        d_model=16,
        d_kv=8,
        d_ff=32,
        num_layers=1,
        num_heads=2,
        initializer_factor=4.0,  # as above
        decoder_start_token_id=tokenizer.eos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
        tie_word_embeddings=False,
    )
    torch.manual_seed(seed)
    model = T5ForConditionalGeneration(config).eval()
    torch.nn.init.normal_(model.lm_head.weight, std=0.5)
    return _generating(model, tokenizer)


def llava(tokenizer: PreTrainedTokenizerBase, *, seed: int = 0) -> tuple[LlavaForConditionalGeneration, int]:
    """A Llava-shaped model that sees 16 x 16 pixels as four tokens; also the image token's id."""
    image_token_id = len(tokenizer) + 1
    text = llama(tokenizer, seed=seed, layers=1).config
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8
    )
    torch.manual_seed(seed)
    config = LlavaConfig(
        vision_config=vision,
        text_config=text,
        image_token_index=image_token_id,
        vision_feature_layer=-1,
        image_seq_length=4,
    )
    return _generating(LlavaForConditionalGeneration(config).eval(), tokenizer), image_token_id


def _generating(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.eos_token_id
    return model


def prompts(text_ids: Sequence[int], rows: int, length: int, seed: int) -> torch.Tensor:
    """Random text as prompts: (rows, length) int64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.tensor(text_ids)[torch.randint(len(text_ids), (rows, length), generator=generator)]
