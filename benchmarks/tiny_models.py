"""Tiny random models of every architecture that transformers can generate text with, and their vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto

from benchmarks.tiny_configs import BEGIN, FIRST_BYTE, PAD, STOP, UNKNOWN

MAPPINGS = {
    "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    "seq2seq": modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    "image": modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
}
"""The mappings of transformers: config type -> model class."""


def tokenizer() -> PreTrainedTokenizerFast:
    """A vocabulary of the 256 bytes, so that every text has one split into tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = bytes_to_letters()
    names = {"<stop>": STOP, "<pad>": PAD, "<begin>": BEGIN, "<unknown>": UNKNOWN}
    names |= {letter: FIRST_BYTE + byte for byte, letter in alphabet.items()}
    backend = Tokenizer(models.BPE(vocab=names, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<stop>", "<pad>", "<begin>", "<unknown>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<stop>", pad_token="<pad>", bos_token="<begin>", padding_side="left"
    )


def bytes_to_letters() -> dict[int, str]:
    """GPT-2's letters for the 256 bytes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = iter(range(256, 512))
    return {byte: chr(byte) if byte in printable else chr(next(others)) for byte in range(256)}


def extra_inputs(model: PreTrainedModel, rows: Sequence[int]) -> dict[str, Any]:
    """Inputs of a model besides the text: an image for each row, a box for each token."""
    kind = model.config.model_type
    vision = getattr(model.config, "vision_config", None) or getattr(model.config, "encoder", None)
    size = getattr(vision, "image_size", 32)
    size = size if isinstance(size, int) else size[0]
    generator = torch.Generator().manual_seed(1)
    images = torch.rand(4, 3, size, size, generator=generator, dtype=model.dtype)[list(rows)]
    extra: dict[str, Any] = {}
    if kind in ("blip", "kosmos-2", "vision-encoder-decoder", "pp_formulanet", "blip-2"):
        extra["pixel_values"] = images
    if kind == "instructblip":
        extra |= {"pixel_values": images, "qformer_input_ids": torch.full((len(rows), 3), 5)}
    if kind == "instructblipvideo":
        extra |= {"pixel_values": images[:, None], "qformer_input_ids": torch.full((len(rows), 3), 5)}
    if kind == "idefics":
        extra["pixel_values"] = images[:, None]
    return extra


def tiny_model(config: PreTrainedConfig, class_name: str, seed: int = 0, gain: float = 1.5) -> PreTrainedModel:
    """A model with random weights in float64, so hot that its output depends on its whole input."""
    torch.manual_seed(seed)
    model_class = getattr(transformers, class_name)
    if model_class.config_class is not None and not isinstance(config, model_class.config_class):
        text = config.get_text_config(decoder=True)
        config = text if isinstance(text, model_class.config_class) else config
    config._experts_implementation = "eager"  # the others take no float64
    model = model_class._from_config(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                fan_in = weight[0].numel()
                weight.normal_(std=gain * fan_in**-0.5, generator=generator)
            else:
                weight += 0.1 * torch.randn(weight.shape, generator=generator)
        embedding = model.get_input_embeddings()
        if embedding is not None and embedding.weight.ndim == 2:
            embedding.weight.normal_(std=1.0, generator=generator)
    model.tie_weights()
    model = model.double()
    model.generation_config = GenerationConfig(
        eos_token_id=STOP, pad_token_id=PAD, bos_token_id=BEGIN, decoder_start_token_id=BEGIN
    )
    return model
