"""Encoder-decoders whose decoder has a prompt of its own: where the answer begins is what generate() began with.

The oracle is ``model.generate`` with a logits processor, its output cut by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    DonutSwinConfig,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBartConfig,
    MBartForConditionalGeneration,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
)

import hf_guided as hg
from tests import vocabularies

TOKENIZER = vocabularies.tiny_byte_level()
STOP = TOKENIZER.eos_token_id
WIDTH = len(TOKENIZER) + 5
PATTERN = "[a-f]{3,9}=[0-9]{1,3}"
START, LANGUAGE = 7, 9  # any tokens of text
IDS = {"vocab_size": WIDTH, "eos_token_id": STOP, "pad_token_id": STOP, "decoder_start_token_id": START}
SMALL = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
HEADS = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 128}


def _vision() -> PreTrainedModel:
    encoder = DonutSwinConfig(image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2], window_size=4)
    decoder = MBartConfig(**IDS, **SMALL, **HEADS, is_decoder=True, add_cross_attention=True)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = START, STOP, STOP
    return VisionEncoderDecoderModel(config)


MODELS = {
    "t5": lambda: T5ForConditionalGeneration(T5Config(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, **IDS)),
    "mbart": lambda: MBartForConditionalGeneration(MBartConfig(**IDS, **SMALL, **HEADS)),
    "nllb": lambda: M2M100ForConditionalGeneration(M2M100Config(**IDS, **SMALL, **HEADS)),
}


def built(make: Callable[[], PreTrainedModel]) -> Any:
    torch.manual_seed(0)
    model = make().eval()
    model.generation_config.eos_token_id = model.generation_config.pad_token_id = STOP
    model.generation_config.decoder_start_token_id = START
    model.generation_config.bos_token_id = model.generation_config.forced_eos_token_id = None
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.4)
    return model


PROMPTS = ["one two three", "a"]
DECODER = {
    "a language code": [[START, LANGUAGE]] * 2,
    "without the start": [[LANGUAGE, 11, 12]] * 2,
    "one for each row": [[START, LANGUAGE, 21, 22], [START, 10, 31, 32]],
}
FORMS: dict[str, dict[str, Any]] = {
    "fast loop": {},
    "one row at a time": {"batch_size": 1},
    "plain loop": {"jump_forward": False},
    "beams": {"num_beams": 3},
    "samples": {"do_sample": True, "num_return_sequences": 2},
    "max_length": {"max_new_tokens": None, "max_length": 40},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", DECODER)
@pytest.mark.parametrize("name", MODELS)
def test_the_answer_follows_the_decoders_prompt(name: str, given: str, form: str) -> None:
    model = built(MODELS[name])
    ids = torch.tensor(DECODER[given])
    options = {"max_new_tokens": 30, "do_sample": False, **FORMS[form]}
    options = {key: value for key, value in options.items() if value is not None}
    torch.manual_seed(0)
    results = hg.generate(model, TOKENIZER, PROMPTS, re.compile(PATTERN), decoder_input_ids=ids, **options)
    for result in results:
        assert result.finish_reason == "stop", result
        assert re.fullmatch(PATTERN, result.text)
    if options["do_sample"] or form == "one row at a time":
        return
    guide = hg.Guide(model, TOKENIZER)
    inputs = TOKENIZER(PROMPTS, padding=True, padding_side="right", return_tensors="pt", return_token_type_ids=False)
    limits = {key: value for key, value in options.items() if key in ("max_new_tokens", "max_length", "num_beams")}
    expected = model.generate(
        **inputs,
        decoder_input_ids=ids,
        do_sample=False,
        logits_processor=[guide.logits_processor(hg.Regex(PATTERN), max_new_tokens=limits.get("max_new_tokens"))],
        **limits,
    )
    start = ids.shape[1] + (given == "without the start")
    texts = [TOKENIZER.decode(row, skip_special_tokens=True) for row in expected[:, start:]]
    assert [result.text for result in results] == texts


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_free_rows_and_streams(name: str, stream: bool) -> None:
    model = built(MODELS[name])
    ids = torch.tensor(DECODER["a language code"])
    options: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False, "decoder_input_ids": ids}
    expected = hg.generate(model, TOKENIZER, PROMPTS, [None, hg.Regex("[a-f]{3,4}")], **options)
    inputs = TOKENIZER(PROMPTS[:1], return_tensors="pt", return_token_type_ids=False)
    free = model.generate(**inputs, max_new_tokens=12, do_sample=False, decoder_input_ids=ids[:1])[0, 2:].tolist()
    free = free[: free.index(STOP) + 1] if STOP in free else free
    results = expected
    if stream:
        parts = hg.generate(model, TOKENIZER, PROMPTS, [None, hg.Regex("[a-f]{3,4}")], stream=True, **options)
        results = sorted((part for part in parts if part.result is not None), key=lambda part: part.index)
        results = [part.result for part in results]
    assert results[0].token_ids == free
    assert re.fullmatch("[a-f]{3,4}", results[1].text)
    assert [result.text for result in results] == [result.text for result in expected]


def test_an_image_and_a_task_prompt() -> None:
    model = built(_vision)
    guide = hg.Guide(model, TOKENIZER)
    ids = TOKENIZER(["task"], return_tensors="pt")["input_ids"]
    pixels = torch.rand(1, 3, 32, 32)
    task = {"decoder_input_ids": torch.cat([ids, ids], 1)}
    for arguments in ({}, task, {**task, "num_beams": 2}):
        [result] = hg.generate(
            model,
            TOKENIZER,
            "task",
            re.compile(PATTERN),
            pixel_values=pixels,
            max_new_tokens=30,
            do_sample=False,
            guide=guide,
            **arguments,
        )
        assert result.finish_reason == "stop", result
        assert re.fullmatch(PATTERN, result.text)
