"""Tiny random models that see images or hear audio, each with a processor of transformers."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import (
    CLIPImageProcessorPil,
    GenerationConfig,
    LlavaProcessor,
    PreTrainedTokenizerBase,
    ProcessorMixin,
    Qwen2AudioConfig,
    Qwen2AudioForConditionalGeneration,
    Qwen2AudioProcessor,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen2VLProcessor,
    WhisperConfig,
    WhisperFeatureExtractor,
    WhisperForConditionalGeneration,
)

from tests import vocabularies
from tests.integration import models

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for c in m['content'] %}{% if c['type'] == 'text' %}{{ c['text'] }}{% else %}MARK{% endif %}{% endfor %}"
    "{% endif %}\n{% endfor %}{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def _tokenizer(*added: str) -> PreTrainedTokenizerBase:
    tokenizer = copy.deepcopy(vocabularies.tiny_byte_level())
    tokenizer.add_tokens(list(added), special_tokens=True)
    return tokenizer


def _text_config(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    config = models.llama(tokenizer).config.to_dict()
    return {name: value for name, value in config.items() if name not in ("architectures", "dtype")}


def llava() -> tuple[Any, Any]:
    """A Llava in float64 that sees each image as four tokens, and its processor."""
    tokenizer = _tokenizer()
    # `models.llava` takes this id for its images.
    tokenizer.add_tokens(["<unused>", "<image>"], special_tokens=True)
    image_processor = CLIPImageProcessorPil(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    model, image_token_id = models.llava(_but(tokenizer, 2))
    assert image_token_id == tokenizer.convert_tokens_to_ids("<image>")
    model.config.vision_feature_select_strategy = "default"  # without the vision model's first, of five
    template = TEMPLATE.replace("MARK", "<image>")
    processor = LlavaProcessor(
        image_processor, tokenizer, patch_size=8, vision_feature_select_strategy="full", chat_template=template
    )
    return model.double(), processor


class _But:
    """A tokenizer with fewer tokens, as far as models are concerned."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, fewer: int):
        self._length, self.eos_token_id = len(tokenizer) - fewer, tokenizer.eos_token_id

    def __len__(self) -> int:
        return self._length


def _but(tokenizer: PreTrainedTokenizerBase, fewer: int) -> Any:
    return _But(tokenizer, fewer)


class _Qwen2VLProcessor(Qwen2VLProcessor):
    """Without the processor of videos, which needs torchvision."""

    def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: str | None = None):
        self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
        self.image_token_id, self.video_token_id = tokenizer.convert_tokens_to_ids([self.image_token, self.video_token])
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)


def qwen2_vl() -> tuple[Any, Any]:
    """A Qwen2-VL in float64, with positions in three dimensions and images of any size, and its processor."""
    marks = ["<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"]
    tokenizer = _tokenizer(*marks)
    image, video, start, end = tokenizer.convert_tokens_to_ids(marks)
    text = _text_config(tokenizer) | {"model_type": "qwen2_vl_text", "head_dim": 8}
    text["rope_parameters"] = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}
    config = Qwen2VLConfig(
        text_config=text,
        vision_config={"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4},
        image_token_id=image,
        video_token_id=video,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    model = Qwen2VLForConditionalGeneration(config).eval()
    torch.nn.init.normal_(model.lm_head.weight, std=0.3)
    image_processor = Qwen2VLImageProcessorPil(patch_size=4, size={"shortest_edge": 64, "longest_edge": 1024})
    template = TEMPLATE.replace("MARK", "<|vision_start|><|image_pad|><|vision_end|>")
    return models._generating(model, tokenizer).double(), _Qwen2VLProcessor(image_processor, tokenizer, template)


def qwen2_audio() -> tuple[Any, Any]:
    """A Qwen2-Audio in float64, and its processor."""
    tokenizer = _tokenizer("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>")
    sound = {
        "num_mel_bins": 8,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_ffn_dim": 16,
        "d_model": 16,
        "max_source_positions": 50,
    }
    config = Qwen2AudioConfig(
        audio_config=sound,
        text_config=_text_config(tokenizer),
        audio_token_index=tokenizer.convert_tokens_to_ids("<|AUDIO|>"),
    )
    torch.manual_seed(0)
    model = Qwen2AudioForConditionalGeneration(config).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # so few frequencies
        features = WhisperFeatureExtractor(feature_size=8, sampling_rate=1000, hop_length=10, chunk_length=1, n_fft=40)
    template = TEMPLATE.replace("MARK", "<|audio_bos|><|AUDIO|><|audio_eos|>")
    return models._generating(model, tokenizer).double(), Qwen2AudioProcessor(features, tokenizer, template)


WHISPER_FRAMES = 100  # that its encoder takes: its 30 seconds


def whisper() -> tuple[Any, Any]:
    """A Whisper that can write timestamps, and its tokenizer."""
    names = "startoftranscript en transcribe translate startofprev nospeech notimestamps".split()
    times = [f"{number / 50:.2f}" for number in range(151)]
    tokenizer = _tokenizer(*(f"<|{name}|>" for name in (*names, *times)))
    ids = {name: tokenizer.convert_tokens_to_ids(f"<|{name}|>") for name in names}
    eos = tokenizer.eos_token_id
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=8,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        d_model=16,
        max_source_positions=WHISPER_FRAMES // 2,
        max_target_positions=200,
        bos_token_id=eos,
        eos_token_id=eos,
        pad_token_id=eos,
        decoder_start_token_id=ids["startoftranscript"],
        begin_suppress_tokens=None,
    )
    torch.manual_seed(0)
    model = WhisperForConditionalGeneration(config).eval()
    torch.nn.init.normal_(model.proj_out.weight, std=0.3)
    model.generation_config = GenerationConfig(
        bos_token_id=eos,
        eos_token_id=eos,
        pad_token_id=eos,
        decoder_start_token_id=ids["startoftranscript"],
        no_timestamps_token_id=ids["notimestamps"],
        prev_sot_token_id=ids["startofprev"],
        is_multilingual=True,
        language="en",
        task="transcribe",
        lang_to_id={"<|en|>": ids["en"]},
        task_to_id={"transcribe": ids["transcribe"], "translate": ids["translate"]},
        max_initial_timestamp_index=50,
        return_timestamps=False,
    )
    return model, tokenizer


def image(seed: int, size: tuple[int, int] = (20, 24)) -> Image.Image:
    """Noise."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 255, (*size, 3), dtype=np.uint8))


def with_images(text: str, *seeds: int) -> list[dict[str, Any]]:
    """A chat of one message: images, each of its own size, and a text."""
    parts = [{"type": "image", "image": image(seed, (16 + 4 * seed, 20))} for seed in seeds]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def with_audio(text: str, *seeds: int) -> list[dict[str, Any]]:
    """A chat of one message: sounds, each of its own length, and a text."""
    parts = [
        {"type": "audio", "audio": np.random.default_rng(seed).normal(size=500 + 100 * seed).astype(np.float32)}
        for seed in seeds
    ]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
