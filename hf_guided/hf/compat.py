"""What the package needs to know about a model of transformers, its config, wrappers and caches."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from transformers import DynamicCache, PreTrainedConfig, WhisperTimeStampLogitsProcessor
from transformers.cache_utils import DynamicLayer
from transformers.generation.utils import ALL_CACHE_NAMES, is_deepspeed_zero3_enabled, is_fsdp_managed_module

from ..errors import InvalidArgument, TokenizerError, UnsupportedModel, shown
from ..session.tensor_parallel import Ranks
from ..vocabulary.processors import tokenizer_of

# What transformers calls a cache in its own models and outputs: "cache" from 5.24 on, "past_key_values" before.
CACHE_NAME: str = ALL_CACHE_NAMES[0]
RENAMED_CACHES = frozenset({"cache", "past_key_values", "cache_params"})


def check_pair(model: Any, tokenizer: Any, call: str) -> None:
    """Refuse arguments that are not a model and a tokenizer, before either is used.

    ``call`` is how the caller should be called, for the message.

    Raises:
        TokenizerError: they are swapped, or one is the name of a checkpoint.
    """
    no_model = _is_tokenizer(model)
    # An int is the width of the logits in the model's place, and nothing in the tokenizer's.
    no_tokenizer = isinstance(tokenizer, (torch.nn.Module, PreTrainedConfig, *([int] if no_model else [])))
    if no_model or no_tokenizer:
        step = "swap the two" if no_model and no_tokenizer else f"pass the {'model' if no_model else 'tokenizer'} too"
        raise TokenizerError(
            f"expected a model and its tokenizer, got {type(model).__name__} as the model and "
            f"{type(tokenizer).__name__} as the tokenizer; {step}: {call}"
        )
    for kind, value, loader in (("model", model, "AutoModelForCausalLM"), ("tokenizer", tokenizer, "AutoTokenizer")):
        if isinstance(value, str):
            raise TokenizerError(
                f"expected a {kind}, got the string {shown(value)}; load it first: "
                f"{loader}.from_pretrained({shown(value)})"
            )
    if not _is_tokenizer(tokenizer):
        raise TokenizerError(
            f"expected a tokenizer or a processor of transformers, got {type(tokenizer).__name__}; load it: "
            "AutoTokenizer.from_pretrained(...)"
        )


def _is_tokenizer(value: Any) -> bool:
    """Whether a value is a tokenizer or a processor; a model may hold its tokenizer."""
    inner = tokenizer_of(value)
    return not isinstance(value, torch.nn.Module) and hasattr(inner, "__len__") and hasattr(inner, "eos_token_id")


def check_generates(model: Any) -> None:
    """Raise UnsupportedModel for objects without transformers' ``generate``: a config, a width, a base model."""
    if not callable(getattr(model, "generate", None)) or not hasattr(model, "generation_config"):
        raise UnsupportedModel(
            f"expected a model that can generate, got {type(model).__name__}; load it with a class that has a head, "
            "such as AutoModelForCausalLM.from_pretrained(...)"
        )


def layers(model: Any) -> Iterator[Any]:
    """The model, and the models inside the wrappers of ``torch.compile`` and PEFT."""
    yield model
    inner = getattr(model, "_orig_mod", None)
    if inner is None and callable(base := getattr(model, "get_base_model", None)):
        inner = base()
    if inner is not None and inner is not model:
        yield from layers(inner)


def logits_width(model: Any) -> int:
    """Columns of the logits (the padded vocab size) of a PreTrainedModel, of a config, or the width itself.

    Raises:
        TokenizerError: none of these.
    """
    if isinstance(model, int) and not isinstance(model, bool):
        return model
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    # The weight of a quantized head may have another shape, or `weight` may be a method.
    width = getattr(head, "out_features", None)
    if isinstance(width, int):
        return width
    weight = getattr(head, "weight", None)
    if isinstance(weight, torch.Tensor) and weight.is_floating_point():
        return int(weight.shape[0])
    config = getattr(model, "config", model)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    width = getattr(config, "vocab_size", None)
    if not isinstance(width, int):
        raise TokenizerError(
            f"expected a PreTrainedModel, a config with vocab_size, or the logits width as int, got "
            f"{type(model).__name__}; pass the model itself"
        )
    return width


def token_id_tuple(eos_token_id: Any) -> tuple[int, ...]:
    """``eos_token_id`` in any form transformers takes (None, int, list, tensor) as a tuple."""
    if eos_token_id is None:
        return ()
    if hasattr(eos_token_id, "tolist"):
        eos_token_id = eos_token_id.tolist()
    return tuple(eos_token_id) if isinstance(eos_token_id, (list, tuple)) else (int(eos_token_id),)


def generation_eos_token_ids(model: Any) -> tuple[int, ...]:
    """The stop tokens that generate() would use for this model; those of a bare config; empty for a width."""
    config = getattr(model, "generation_config", None) or model
    return token_id_tuple(getattr(config, "eos_token_id", None))


def layers_without_full_attention(model: Any) -> list[str]:
    """Names of the kinds of layers that do not attend to all earlier tokens: they count slots of the cache.

    If there are none, rows may have holes in the cache. The model's configuration decides: a caller's own cache need
    not know.
    """
    config = model.config.get_text_config(decoder=True)
    kinds = {type(layer).__name__ for layer in DynamicCache(config=config).layers if type(layer) is not DynamicLayer}
    # GPT-Neo's window is in its attention, and unknown to caches.
    kinds |= {kind for kind in getattr(config, "attention_layers", ()) if kind != "global"}
    return sorted(kinds)


def in_step_with_others(model: Any) -> bool:
    """Whether generate() has to run as many forward passes as the other processes that hold parts of the model."""
    return (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
        and (is_deepspeed_zero3_enabled() or is_fsdp_managed_module(model))
    )


def decoder_prompt_length(model: Any, settings: Any, inputs: Mapping[str, Any]) -> int:
    """How many tokens precede the output in the decoder of an encoder-decoder; 0 for other models.

    ``settings`` are those of the call, ``inputs`` the arguments of ``model.generate`` that are for the model.
    """
    if not model.config.is_encoder_decoder:
        return 0
    of_decoder = {name: inputs[name] for name in ("decoder_input_ids", "input_ids") if name in inputs}
    if not of_decoder:
        return 1
    rows, device = len(next(iter(of_decoder.values()))), next(iter(of_decoder.values())).device
    start = settings.get("decoder_start_token_id")
    start = settings.get("bos_token_id") if start is None else start
    token = torch.tensor(0 if start is None else start, device=device)
    main = main_input_name(model)
    ids, _ = model._prepare_decoder_input_ids_for_generation(rows, main, of_decoder, token, device)
    return int(ids.shape[1])


def main_input_name(model: Any) -> str:
    """The main input of a model, or of its encoder; "input_ids" unless it takes no text."""
    encoder = getattr(model, "encoder", None) if model.config.is_encoder_decoder else None
    name = getattr(encoder, "main_input_name", None) or getattr(model, "main_input_name", "input_ids")
    return str(name)


def cache_name(model: Any) -> str:
    """The name under which a model's forward() takes its cache; a model with code of its own may have an old one."""
    for layer in layers(model):
        for forward in (layer.forward, *(vars(base).get("forward") for base in type(layer).__mro__)):
            names = () if forward is None else inspect.signature(forward).parameters
            if found := next((name for name in names if name in RENAMED_CACHES), None):
                return found
    return CACHE_NAME


def cache_argument(model: Any) -> str:
    """The name under which generate() takes a model's cache and hands it on, without a warning."""
    name = cache_name(model)
    return name if name in ALL_CACHE_NAMES else CACHE_NAME


def with_cache_argument(model: Any, generate_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of generate() with a cache of any name under the right one; raises InvalidArgument if there are two."""
    names = [name for name in generate_kwargs if name in RENAMED_CACHES and generate_kwargs[name] is not None]
    if len(names) > 1:
        raise InvalidArgument(f"{', '.join(names)}: expected one of these, which mean the same; leave the others out")
    others = {name: value for name, value in generate_kwargs.items() if name not in RENAMED_CACHES}
    return others | {cache_argument(model): generate_kwargs[name] for name in names}


def cache_in(values: Mapping[str, Any]) -> Any:
    """The cache among a model's outputs or a call's arguments, under any of its names; None if there is none."""
    # Asking an output for an old name would make transformers warn.
    names = RENAMED_CACHES.union(ALL_CACHE_NAMES)
    return next((value for name, value in values.items() if name in names and value is not None), None)


def is_callers_own(cache: Any) -> bool:
    """Whether generate() was called with this cache, so that its caller sees changes of it."""
    return bool(getattr(cache, "_is_user_defined", False))


def is_compiled(model: Any) -> bool:
    """Whether ``torch.compile`` runs the model or a part of it."""
    return any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in model.modules())


def is_offloaded(model: Any) -> bool:
    """Whether accelerate loads parts of the model for each pass, from the CPU or from disk."""
    hooks = (getattr(module, "_hf_hook", None) for module in model.modules())
    return any(getattr(part, "offload", False) for hook in hooks for part in (hook, *getattr(hook, "hooks", ())))


def input_device(model: Any) -> torch.device:
    """Where a model's inputs go: to its own device; to the CPU if its embedding is loaded for each pass."""
    device: torch.device = model.device
    return torch.device("cpu") if device.type == "meta" else device


def adds_virtual_tokens(wrapper: Any) -> bool:
    """Whether the active adapter of a wrapper of PEFT adds tokens that only the model sees; False for other models.

    Prompt tuning and prefix tuning do.
    """
    adapter = getattr(wrapper, "active_peft_config", None)
    return adapter is not None and bool(adapter.is_prompt_learning)


_TIMESTAMPS = (
    "return_timestamps: Whisper writes tokens of times between the words, also for audio of more than 30 seconds, and "
    "constraints know nothing of them; pass return_timestamps=False and at most 30 seconds of audio, or transcribe "
    "first, and give the text to a second model"
)


def check_timestamps(model: Any, generate_kwargs: Mapping[str, Any]) -> None:
    """Refuse a call in which Whisper would write timestamps, which no constraint allows.

    Raises:
        UnsupportedModel: timestamps are asked for, or the audio is so long that transformers needs them.
    """
    *_, innermost = layers(model)
    if "return_timestamps" not in inspect.signature(innermost.generate).parameters:
        return
    config = generate_kwargs.get("generation_config") or innermost.generation_config
    asked = generate_kwargs.get("return_timestamps")
    features = generate_kwargs.get("input_features")
    frames = 2 * innermost.config.max_source_positions  # frames of the 30 seconds that the encoder takes
    is_long = isinstance(features, torch.Tensor) and features.shape[-1] > frames
    if is_long or (getattr(config, "return_timestamps", False) if asked is None else asked):
        raise UnsupportedModel(_TIMESTAMPS)


def check_no_timestamps(processors: Iterable[Any]) -> None:
    """Raise UnsupportedModel where one of the logits processors of a call makes Whisper write timestamps."""
    if any(isinstance(processor, WhisperTimeStampLogitsProcessor) for processor in processors):
        raise UnsupportedModel(_TIMESTAMPS)


def _layer_types(model: Any) -> set[str]:
    """The kinds of layers that the model's config names; empty if it names none."""
    try:
        return set(model.config.get_text_config().layer_types or ())
    except (AttributeError, ValueError):  # a config of other code; several configs of texts
        return set()


def continuous_batching_reason(model: Any) -> str:
    """Why continuous batching cannot run a model, of which it would drop a part in silence; empty if it can."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        reason = "expected a decoder, got an encoder-decoder"
    elif Ranks.of(model) is not None:
        reason = "it cannot keep the processes of one model in step (tensor parallel)"
    elif any(map(adds_virtual_tokens, layers(model))):
        reason = "it would ignore the virtual tokens that an adapter of the model adds (prompt tuning, prefix tuning)"
    elif others := _layer_types(model) - {"full_attention", "sliding_attention"}:
        reason = f"its cache holds full and sliding attention, and this model has {', '.join(sorted(others))}"
    else:
        return ""
    return f"continuous batching cannot run {type(model).__name__}: {reason}; generate without it"
