"""Tiny random models of every architecture that transformers can generate text with, and their vocabulary.

``tiny_config`` begins with the defaults of an architecture's own config class, and makes them small: sizes are chosen
by the names of the fields, over all sub-configs. ``OVERRIDES`` has what cannot be read off a name.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import CONFIG_MAPPING, GenerationConfig, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.models.auto import modeling_auto

STOP, PAD, BEGIN, UNKNOWN = range(4)
FIRST_BYTE = 4  # the id of the byte 0
SPECIAL = FIRST_BYTE + 256  # the first of the ids that stand for images, sounds and other marks
WIDTH = 320  # columns of logits
WINDOW = 8  # shorter than every output
POSITIONS = 192
HIDDEN, HEADS, KEY_VALUE_HEADS, HEAD_DIM, FEED_FORWARD, LAYERS = 32, 4, 2, 8, 48, 2

SIZES: tuple[tuple[str, int], ...] = (
    (r"type_vocab_size|vocab_size_per_layer_input|task_type_vocab_size", -1),
    (r".*vocab_size|max_token_id", WIDTH),
    (r"sliding_window(_size)?|window_size|attention_window_size|local_attention|attention_window|chunk_size", WINDOW),
    (r"attention_chunk_size|swa_window_size|local_window_size|keep_window_size|index_topk|local_radius", WINDOW),
    (r"(encoder_|decoder_)?max_position_embeddings|n_positions|n_ctx|max_seq_len|max_.*_positions", POSITIONS),
    (r"context_length|max_encoder_position_embeddings|max_decoder_position_embeddings", POSITIONS),
    (r"(num_)?(global_)?(key_value|kv)_heads|num_query_groups|swa_num_key_value_heads", KEY_VALUE_HEADS),
    (r".*(attention_)?heads|n_head|index_n_heads", HEADS),
    (r".*head_dim|d_kv|dim_head|kv_channels|attention_head_size|.*dim_per_head", HEAD_DIM),
    (r".*(hidden_layers|decoder_layers|encoder_layers)|n_layers?|num_layers|depth|layers|num_blocks", LAYERS),
    (r".*(intermediate_size|ffn_dim|inner_dim|mlp_dim|expert_dim)|d_ff|dff|dim_ff|n_inner|d_inner", FEED_FORWARD),
    (r"(ffn|expert_ffn|moe|feed_forward)_(hidden_)?size|.*expert_hidden_size", FEED_FORWARD),
    (r"kv_lora_rank|q_lora_rank|.*lora_rank|laurel_rank", 16),
    (r".*hidden_size|d_model|n_embd|dim|.*embed_dim|emb_dim|.*embedding_size|projection_dim|.*output_dim", HIDDEN),
    (r"num_(local_|routed_)?experts|n_routed_experts|moe_num_experts", 4),
    (r"num_experts_per_tok|moe_topk|moe_k|num_selected_experts|top_k_experts", 2),
    (r"floor_scale|log_scaling_n_floor", WINDOW),
    (r"rotary_dim", HEAD_DIM // 2),
    (r"n_shared_experts|num_shared_experts|moe_num_shared_experts", 1),
    (r"n_groups?|num_expert_group|topk_group", 1),
    (r"state_size|mamba_d_state|ssm_state_size", 8),
    (r"first_k_dense_replace|num_dense_layers", 1),
    (r"num_nextn_predict_layers|num_mtp_layers|num_kv_shared_layers", 0),
    (r"image_size", 32),
    (r"patch_size", 8),
)
"""Fields with a whole number: the pattern of the name, and the size; -1 leaves the default."""

NEEDED = r"head_dim|num_key_value_heads|num_kv_heads|num_experts_per_tok|num_(local_|routed_)?experts|n_.*_experts"
"""Fields that get a size although their default is None."""

_SECTIONS = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}

_QWEN4 = {
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 8,
    "indexer_budget": 8,
    "indexer_compress_ratio": 4,
    "ngram_vocab_size_base": 64,
    "split_ngram_parts": 2,
}

_ROPE_OF_TEXT = "glm46v", "glm4v", "glm_ocr", "glmga", "paddleocr_vl", "qwen2_5_vl", "qwen2_vl"
OVERRIDES: dict[str, dict[str, Any]] = {
    **dict.fromkeys(_ROPE_OF_TEXT, {"text_config": {"rope_parameters": _SECTIONS}}),
    "bamba": {"attn_layer_indices": [1]},
    "bigbird_pegasus": {"attention_type": "original_full"},
    "blt": {
        "encoder_hash_byte_group_vocab": 50,
        "patcher_config": {"num_hidden_layers": 2},
    },
    "cohere_compass_text": {"rope_parameters": {"full_attention": _SECTIONS}, "layer_types": ["full_attention"] * 2},
    "chameleon": {"vocabulary_map": {"<image>": SPECIAL}},
    "cohere_compass": {
        "text_config": {"rope_parameters": {"full_attention": _SECTIONS}, "layer_types": ["full_attention"] * 2}
    },
    "cosmos3_edge": {"text_config": {"rope_parameters": {**_SECTIONS, "mrope_section": (2, 1, 1)}}},
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "kv_n_heads": 2, "clip_qkv": 8.0},
        "ffn_config": {"hidden_size": 32, "ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "deepseek_ocr2": {"text_config": {"mlp_layer_types": ["dense", "sparse"]}},
    "emu3": {"vocabulary_map": {"<image>": SPECIAL}, "vq_config": {"base_channels": 32, "channel_multiplier": [1, 1]}},
    "ernie4_5_vl_moe": {"text_config": {"rope_parameters": {**_SECTIONS, "mrope_section": [1, 1, 2]}}},
    "granite4_vision": {"deepstack_layer_map": [[-1, 0]]},
    "hunyuan_vl": {"text_config": {"rope_parameters": {**_SECTIONS, "mrope_section": [1, 1, 1, 1]}}},
    "molmo2": {"adapter_config": {"vision_feature_layer": [1, 0]}},
    "muse_spark": {"audio_config": {"patch_sizes": [4, 2], "hidden_sizes": [32, 32], "depths": [1, 1]}},
    "qwen3_omni_moe_thinker": {"vision_start_token_id": 310, "vision_end_token_id": 311},
    "step3p7": {"text_config": {"sliding_window": WINDOW, "layer_types": ["full_attention", "sliding_attention"]}},
    "dots1": {"topk_group": 1, "n_group": 1},
    "dots3_note": {"text_config": {"per_layer_config": {}, "head_dim": 16}},
    "dots3_note_text": {"per_layer_config": {}, "head_dim": 16},
    "glm4v_moe": {"text_config": {"rope_parameters": {**_SECTIONS, "partial_rotary_factor": 1.0}}},
    "glm5_next": {"text_config": {"index_topk": 16}},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"]},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"]},
    "mamba2": {"head_dim": 16},
    "qwen2_5_omni_thinker": {
        "vision_start_token_id": 310,
        "vision_end_token_id": 311,
        "text_config": {"rope_parameters": _SECTIONS},
    },
    "qwen4_exp": {"text_config": _QWEN4},
    "qwen4_exp_text": _QWEN4,
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "reformer": {"axial_pos_embds": False, "attn_layers": ["local", "lsh"]},
    "xlstm": {"hidden_size": 128},
    "xmod": {"default_language": "en_XX"},
    "zamba": {"num_hidden_layers": 3},
    "zamba2": {"num_hidden_layers": 3, "layers_block_type": ["linear_attention", "linear_attention", "hybrid"]},
}
"""By config type: arguments that differ, and for sub-configs again such a mapping."""


def tiny_config(config_type: str, changes: Mapping[str, Any] | None = None) -> PreTrainedConfig:
    """A small config of a type in ``CONFIG_MAPPING``; the changes are arguments for the config of the text model."""
    config_class = CONFIG_MAPPING[config_type]
    given = {} if "encoder_layers" in _defaults(config_class) else {"is_decoder": True}  # BERT's kind
    ids = iter(range(SPECIAL, WIDTH))
    arguments = _arguments(config_class, {**OVERRIDES.get(config_type, {}), **_known(config_class, given)}, ids)
    config = config_class(**arguments)
    if changes:
        text = config.get_text_config(decoder=True)
        if text is config:
            config = config_class(**{**arguments, **changes})
        else:
            key = next(name for name in config.sub_configs if getattr(config, name, None) is text)
            config = config_class(**{**arguments, key: {**arguments[key], **changes}})
    return config


def _arguments(
    config_class: type,
    overrides: Mapping[str, Any],
    ids: Iterator[int],
    given: Mapping[str, Any] = MappingProxyType({}),
) -> dict[str, Any]:
    """Arguments for a config class, over its defaults and what a config above it gives."""
    arguments: dict[str, Any] = {}
    defaults = {**_defaults(config_class), **given}
    for name, default in defaults.items():
        if name in config_class.sub_configs_defaults:
            continue
        value = _value(name, default, ids)
        if value is not None:
            arguments[name] = value
        elif name in given:
            arguments[name] = default
    if "kv_lora_rank" in arguments and "num_key_value_heads" in arguments:
        arguments["num_key_value_heads"] = HEADS
    for name, spec in config_class.sub_configs_defaults.items():
        inner = overrides.get(name, {})
        if spec.optional and name not in overrides and defaults.get(name) is None:
            continue
        if inner is None:
            continue
        model_type = inner.get("model_type", spec.model_type)
        inner_class = spec.config_class
        if not issubclass(inner_class, PreTrainedConfig):
            inner_class = CONFIG_MAPPING[model_type]
        inner_arguments = _arguments(inner_class, inner, ids, spec.init_kwargs)
        if not issubclass(spec.config_class, PreTrainedConfig):
            inner_arguments["model_type"] = model_type
        arguments[name] = inner_arguments
    sub = config_class.sub_configs_defaults
    arguments.update({name: value for name, value in overrides.items() if name not in sub or value is None})
    _kinds_of_layers(config_class, arguments, overrides)
    return arguments


def _defaults(config_class: type) -> dict[str, Any]:
    common = {field.name for field in dataclasses.fields(PreTrainedConfig)}
    return {
        field.name: None if field.default is dataclasses.MISSING else field.default
        for field in dataclasses.fields(config_class)
        if field.name not in common
    }


def _known(config_class: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name in _defaults(config_class)}


def _value(name: str, default: Any, ids: Iterator[int]) -> Any:
    """The argument for a field; None leaves the default."""
    fixed = {"eos_token_id": STOP, "pad_token_id": PAD, "bos_token_id": BEGIN, "decoder_start_token_id": BEGIN}
    if name in fixed:
        return fixed[name]
    if name == "tie_word_embeddings":
        return False  # tied, a random model repeats its last token
    if default is None and re.fullmatch(NEEDED, name):
        default = POSITIONS
    if isinstance(default, bool) or not isinstance(default, int):
        return None
    if re.search(r"token_(id|index)$|(start|end|newline|patch)_id$", name):
        return next(ids)
    for pattern, size in SIZES:
        if re.fullmatch(pattern, name):
            return None if size < 0 or default <= 0 else min(size, default) if size <= 4 else size
    return None


def _kinds_of_layers(config_class: type, arguments: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Arguments for a layer of each kind that the defaults have, and at least two."""
    if "layer_types" not in _defaults(config_class) or "layer_types" in overrides:
        return
    try:
        default = config_class()
    except Exception:
        return
    kinds = list(dict.fromkeys(default.layer_types or []))
    if not kinds:
        return
    if len(kinds) == 1:
        kinds *= 2
    arguments["layer_types"] = kinds
    count = next((name for name in ("num_hidden_layers", "n_layer", "num_layers") if name in arguments), None)
    if count is not None:
        arguments[count] = len(kinds)
    if others := list(dict.fromkeys(getattr(default, "mlp_layer_types", None) or [])):
        arguments["mlp_layer_types"] = [others[i % len(others)] for i in range(len(kinds))]


SWITCH = 20  # the number of positions at which scaled rotary embeddings change; the outputs pass it
LONGROPE = ("phi3", "phimoe", "phi4_multimodal")  # their own code switches, too


def variants(config_type: str) -> dict[str, dict[str, Any]]:
    """Changes of the text model's config, by the name of the variant.

    "base" changes nothing; "window" has a sliding window that is off by default; "dynamic" and "longrope" are kinds of
    rotary embeddings that depend on the length of the whole text; "positions" scales queries by their position.
    """
    text = tiny_config(config_type).get_text_config(decoder=True)
    found: dict[str, dict[str, Any]] = {"base": {}}
    if getattr(text, "use_sliding_window", True) is False:
        kinds = ["full_attention", "sliding_attention"]
        found["window"] = {"use_sliding_window": True, "sliding_window": WINDOW, "layer_types": kinds}
    elif getattr(text, "sliding_window", WINDOW) is None:
        found["window"] = {"sliding_window": WINDOW}
    rope = getattr(text, "rope_parameters", None) or {}
    if rope and getattr(text, "max_position_embeddings", None):
        dynamic = _in_each(rope, {"rope_type": "dynamic", "factor": 4.0})
        found["dynamic"] = {"rope_parameters": dynamic, "max_position_embeddings": SWITCH}
    if config_type in LONGROPE:
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
        half = int(head_dim * rope.get("partial_rotary_factor", 1.0)) // 2
        longrope = {
            **rope,
            "rope_type": "longrope",
            "short_factor": [1.0] * half,
            "long_factor": [8.0] * half,
            "short_mscale": 1.0,
            "long_mscale": 1.5,
            "original_max_position_embeddings": SWITCH,
        }
        found["longrope"] = {"rope_parameters": longrope, "original_max_position_embeddings": SWITCH}
    elif "original_max_position_embeddings" in rope:
        found["positions"] = {"rope_parameters": {**rope, "original_max_position_embeddings": WINDOW}}
    return {name: changes for name, changes in found.items() if _is_allowed(config_type, changes)}


def _is_allowed(config_type: str, changes: Mapping[str, Any]) -> bool:
    """Whether the config class takes the changes; some know only one kind of rotary embeddings."""
    try:
        tiny_config(config_type, changes)
    except (StrictDataclassError, ValueError, KeyError):
        return False
    return True


def _in_each(rope: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Rotary parameters with changes; some configs have parameters for each kind of layer."""
    if any(isinstance(value, Mapping) for value in rope.values()):
        return {kind: {**(parameters or {}), **changes} for kind, parameters in rope.items()}
    return {**rope, **changes}


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
