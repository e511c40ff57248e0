"""Whether a call may run several tokens of a row in one pass, decided before its first pass.

The fast loop is exact where several tokens in one pass are known to equal the same tokens one by one. Elsewhere one
token a pass is exact as long as the model's inputs are prepared as in generate(). All other calls run in transformers'
own loop. ``block_rule`` asks, in this order:

1. known reasons for transformers' own loop: a loop of the model's own, an unusual cache, RoPE that changes with the
   length, gradient checkpointing, code in the passes that does not belong to the model
2. one token a pass, where virtual tokens or masks that count slots make blocks wrong
3. blocks, if transformers' common code prepares the inputs, and no module is the caller's
4. one token a pass, where the cache takes no blocks anyway
5. a trial, for all that no rule knows (block_trial.py)
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch.nn.modules import module as torch_module
from transformers import DynamicCache, GenerationMixin
from transformers.cache_utils import Cache, EncoderDecoderCache, StaticCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..compat import adds_virtual_tokens, cache_in
from .block_trial import trial_reason
from .cache_slots import grows, takes_holes
from .call import GenerateCall


class BlockRule(NamedTuple):
    """How a call may run."""

    blocks: bool  # whether our loops may run several tokens of a row in one pass
    plain_reason: str = ""  # why transformers' own loop has to run the call; empty if ours may


def block_rule(call: GenerateCall, text_ids: Sequence[int]) -> BlockRule:
    """The rule for a call, before its first pass.

    Args:
        call: in a generation mode that both loops serve.
        text_ids: five tokens of plain text, for models that have to be tried; repeated ones would hide mistakes.
    """
    model, cache = call.model, cache_in(call.model_kwargs)
    reason = _own_loop_reason(model) or _cache_reason(cache) or _length_reason(call) or _foreign_code_reason(model)
    if not reason:
        if adds_virtual_tokens(_adapter(model)) or _counts_slots(model):
            return BlockRule(blocks=False)
        if is_common(model) and not _has_foreign_modules(model):
            return BlockRule(blocks=True)
        holes = takes_holes(model, cache, call.model_kwargs.get("position_ids"))
        wide = len(call.input_ids) == 1 and type(cache) is DynamicCache and grows(cache)
        if model.config.is_encoder_decoder or not (holes or wide):
            return BlockRule(blocks=False)  # one token a pass needs no trial
        reason = trial_reason(call, text_ids, _preparation(model), holes=holes)
    return BlockRule(blocks=not reason, plain_reason=reason and f"{type(model).__name__}: {reason}")


def _own_loop_reason(model: Any) -> str:
    if getattr(model._sample, "__func__", None) is not GenerationMixin._sample:
        return "it has a loop of its own"
    checkpointing = model.training and any(getattr(part, "gradient_checkpointing", False) for part in model.modules())
    return "gradient checkpointing computes activations again, and keeps no cache" if checkpointing else ""


# -- the cache ---------------------------------------------------------------------------------------------------------


def _cache_reason(cache: Any) -> str:
    """What is unusual about a cache, so that it may not keep every token as it is; empty for the usual kinds."""
    if isinstance(cache, EncoderDecoderCache):
        return _cache_reason(cache.self_attention_cache) or _cache_reason(cache.cross_attention_cache)
    if not isinstance(cache, Cache):
        return ""  # a model's own state, which it makes and updates in every pass
    if type(cache) not in (Cache, DynamicCache, StaticCache):
        return f"its cache is a {type(cache).__name__}"
    if cache.offloading:
        return "its cache is offloaded"
    for kind in map(type, cache.layers):  # one that keeps less than it is given, or is not of transformers
        if kind.__module__ != Cache.__module__ or any("Quantized" in base.__name__ for base in kind.__mro__):
            return f"its cache has a {kind.__name__}"
    return ""


def _counts_slots(model: Any) -> bool:
    """Whether a model's masks depend on how many slots there are, and not only on what they hold.

    Doge keeps the best few slots of each pass; GIT shifts every mask by the slots of an image.
    """
    config = model.config.get_text_config(decoder=True)
    return bool(getattr(config, "keep_window_size", 0)) or model.config.model_type == "git"


# -- rotary embeddings whose frequencies depend on the length of the text, not on positions alone ----------------------
#
# With "dynamic" RoPE, the greatest position of a pass sets the frequencies of all tokens in it, once it exceeds the
# length of pretraining. With "longrope", frequencies change once, at the length of pretraining, and Phi-3 then computes
# its cache again. Beyond such a switch, several tokens in one pass do not give the same result as one by one.


def _length_reason(call: GenerateCall) -> str:
    if call.model.config.is_encoder_decoder:
        return ""
    prompt, position_ids = call.prompt_length, call.model_kwargs.get("position_ids")
    positions = prompt if position_ids is None else int(position_ids.max()) + 1
    # The last token of a row does not run.
    most = call.config.max_length
    longest = None if most is None else max(prompt, positions) + most - prompt - 1
    return rope_reason(call.model, prompt, positions, longest)


def rope_reason(model: Any, slots: int, positions: int, longest: int | None) -> str:
    """Why the length of a call changes its rotary frequencies; empty if it does not.

    ``slots`` are the columns of the prompts, padding included; ``positions`` is their greatest position, plus one;
    ``longest`` is the greatest number of either that any pass may reach, None without a limit.
    """
    for kind, length in _rope_switches(model.config.get_text_config(decoder=True)):
        # With "dynamic", a pass shorter than the length of pretraining resets frequencies that an earlier call changed.
        # A pass of exactly this length does not reset them, so it counts as changed.
        first = length if "dynamic" in kind else length + 1
        passed_at_once = kind == "longrope" and min(slots, positions) >= first
        if (longest is None or longest >= first) and not passed_at_once:
            reach = "this call has no greatest length" if longest is None else f"this call may reach {longest}"
            return f"its {kind} RoPE changes at {length} tokens, and {reach}"
    return ""


def _rope_switches(config: Any) -> Iterator[tuple[str, int]]:
    """The kinds of RoPE that depend on length, each with the length of pretraining."""
    pretrained = getattr(config, "max_position_embeddings", None)
    for name in ("rope_parameters", "rope_scaling"):  # the second in remote code
        given = getattr(config, name, None) or {}
        for parameters in (given, *given.values()):  # one dict for all kinds of layers, or a dict of dicts
            if not isinstance(parameters, dict):
                continue
            kind = str(parameters.get("rope_type") or parameters.get("type"))
            if kind == "longrope":
                original = getattr(config, "original_max_position_embeddings", None) or pretrained
                yield kind, int(parameters.get("original_max_position_embeddings") or original or 0)
            elif "dynamic" in kind:
                yield kind, int(pretrained or 0)


# -- code that runs inside a model's passes without belonging to it: steering vectors, patched layers, wrappers --------
#
# Such code may treat the last token of a pass differently from the others. The whole model, and its decoder, may have
# hooks: those are trusted only to look at inputs and outputs, as profilers and counters do.

# Packages whose code treats the tokens of a pass alike: they compute, quantize, share or move layers.
_KNOWN = {"torch", "transformers", "accelerate", "bitsandbytes", "hqq", "kernels", "liger_kernel", "optimum", "torchao"}


def _foreign_code_reason(model: Any) -> str:
    """Which hooks or replaced methods, of the caller or of an adapter, may change a pass; empty if there are none."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return "hooks are registered for all modules"
    for name, module in _inner_modules(model):
        for hook in (*module._forward_hooks.values(), *module._forward_pre_hooks.values()):
            if _package(hook) != "transformers":
                return f"{name} has hooks"
        if "forward" in vars(module) and not _keeps_forward(module):
            return f"{name}.forward was replaced"
    return ""


def _has_foreign_modules(model: Any) -> bool:
    """Whether classes of the caller are among the model's modules, or compute its attention."""
    config = model.config.get_text_config(decoder=True)
    attention = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)
    classes = {type(module) for _, module in _inner_modules(model)}
    code = [*classes, *(kind.forward for kind in classes), *([attention] if attention is not None else [])]
    return not set(map(_package, code)) <= _KNOWN | {"peft"}


def _inner_modules(model: Any) -> list[tuple[str, Any]]:
    outer = {id(part) for part in (model, model.base_model, _decoder_of(model))}
    return [(name, module) for name, module in model.named_modules() if id(module) not in outer]


def _keeps_forward(module: Any) -> bool:
    """Whether a module's own ``forward`` is that of its class, a kernel for it, or one that accelerate has wrapped."""
    forward = vars(module)["forward"]
    if (hook := getattr(module, "_hf_hook", None)) is not None:
        if any(_package(type(part)) != "accelerate" for part in (hook, *getattr(hook, "hooks", ()))):
            return False
        forward = getattr(module, "_old_forward", forward)
    function = getattr(forward, "__func__", forward)
    of_class = any(vars(base).get("forward") is function for base in type(module).__mro__)
    return of_class or _package(function) in _KNOWN or hasattr(type(module), "kernel_layer_name")


def _package(code: Any) -> str:
    """The package in which a class or a function is written.

    A function's globals say so: ``__module__`` is that of the wrapped function where ``functools.wraps`` was used.
    """
    name = getattr(code, "__globals__", {}).get("__name__") or getattr(code, "__module__", None) or ""
    return str(name).partition(".")[0]


# -- who prepares the inputs of a pass: transformers' common code, the model's class, or an adapter --------------------

_COMMON = ("prepare_inputs_for_generation", "_update_model_kwargs_for_generation", "_prefill")


def is_common(model: Any) -> bool:
    """Whether transformers' common code prepares the inputs and masks of a model.

    That code is known to give several tokens of one pass the positions and masks that they have one by one.
    """
    return (
        type(model).__module__.startswith("transformers.")
        and _preparation(model) == tuple(getattr(GenerationMixin, name) for name in _COMMON)
        and hasattr(sys.modules[type(_decoder_of(model)).__module__], "create_causal_mask")
    )


def _preparation(model: Any) -> tuple[Any, ...]:
    """The functions that prepare the inputs of a pass; those of the model's class, where an adapter stands between."""
    methods = [getattr(model, name) for name in _COMMON]
    if (adapter := _adapter(model)) is not None:
        methods[0] = adapter.base_model_prepare_inputs_for_generation
    return tuple(getattr(method, "__func__", method) for method in methods)


def _decoder_of(model: Any) -> Any:
    """The decoder inside a model with a language head, or with an encoder."""
    return model.get_decoder() if hasattr(model, "get_decoder") else model.base_model


def _adapter(model: Any) -> Any:
    """The wrapper of PEFT that prepares the inputs of a model inside it during ``generate``; None if there is none.

    If it adds virtual tokens, they shift positions, and PEFT cuts every pass after the first down to its last token.
    """
    owner = getattr(model.prepare_inputs_for_generation, "__self__", None)
    return owner if hasattr(owner, "active_peft_config") else None
