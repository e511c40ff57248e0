"""The trial of a model that no rule knows: does a block of tokens give the same logits as the same tokens one by one?

Four short passes of three rows with at most five tokens show it, once for each model and for all that may change its
passes. They leave nothing behind.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import DynamicCache

from ...session.tensor_parallel import Ranks
from ..compat import cache_argument, is_compiled, is_offloaded
from .cache_slots import CacheSlots
from .call import GenerateCall

_reasons: WeakKeyDictionary[Any, dict[Any, str]] = WeakKeyDictionary()
_lock = Lock()
_UNKNOWN = "not all of it is transformers' common code"
_MOST_BYTES = 1 << 20  # largest buffer that a pass may write; larger ones are weights


def trial_reason(call: GenerateCall, token_ids: Sequence[int], preparation: Hashable, *, holes: bool) -> str:
    """Why blocks of tokens are not known to be right for a model; empty if they are.

    Args:
        call: its model, cache and options are tried; its prompts are not.
        token_ids: five different tokens of plain text.
        preparation: what prepares the inputs of a pass; with another one the model is tried again.
        holes: whether blocks are also tried in rows of different lengths.
    """
    model = call.model
    if len(set(token_ids)) < len(token_ids):
        return f"{_UNKNOWN}, and the vocabulary has too few tokens to try it"
    if unfit := _no_trial_reason(model):
        return f"{_UNKNOWN}, and {unfit}"
    with _lock:  # one for all models: a trial is short, and two threads may share a model
        known = _reasons.setdefault(model, {})
        key = (holes, preparation, *_trial_key(model))
        if key not in known:
            with _without_traces(model):
                known[key] = _difference_reason(call, token_ids, holes=holes)
        return known[key]


def _no_trial_reason(model: Any) -> str:
    """Why the model cannot be run for a moment."""
    if Ranks.of(model) is not None:
        return "several processes hold it"
    if is_offloaded(model):
        return "parts of it are loaded for every pass"
    if is_compiled(model):
        return "it is compiled"
    if model.training:
        return "it is in training mode"
    if any(module._forward_hooks or module._forward_pre_hooks for module in model.modules()):
        return "it has hooks, which would see passes that are not part of the call"
    return ""


def _trial_key(model: Any) -> tuple[Any, ...]:
    """All that may change what a block gives."""
    adapters = tuple(model.active_adapters()) if getattr(model, "_hf_peft_config_loaded", False) else ()
    config = (repr(model.config.to_dict()), model.config._attn_implementation)
    forward = id(vars(model).get("forward"))  # only its identity: it may hold the model
    classes = tuple(map(type, model.modules()))
    return (*config, model.dtype, model.device, adapters, forward, classes)


@contextmanager
def _without_traces(model: Any) -> Iterator[None]:
    """Undo what passes leave behind: random numbers drawn, values that modules remember, small buffers."""
    before = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    contents = [(buffer, buffer.clone()) for buffer in model.buffers() if buffer.nbytes <= _MOST_BYTES]
    devices = [model.device] if model.device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for module, attributes, buffers in before:
            for name in vars(module).keys() - attributes.keys():
                del module.__dict__[name]
            module.__dict__.update(attributes)
            module._buffers.clear()
            module._buffers.update(buffers)
        for buffer, content in contents:
            buffer.copy_(content)


def _difference_reason(call: GenerateCall, token_ids: Sequence[int], *, holes: bool) -> str:
    model = call.model
    a, b, c, d, e = token_ids
    rows = 3 if holes else 1
    try:
        prompts = torch.tensor([[a, b, c], [c, a, b], [b, c, a]][:rows], device=model.device)
        slots = _slots(call, prompts)
        if not (slots.holes or slots.wide):
            return ""  # the loop will not run blocks either
        one_by_one = slots.select(range(rows))
        one_by_one.holes = one_by_one.wide = False
        first = one_by_one.run([[d], [e], [e]][:rows])
        second = one_by_one.run([[e], [d], [d]][:rows])
        if holes:
            # The second row's last token is removed, and runs again; the third row's next block begins with a hole.
            slots.forget([0, 1, 0])
        block = slots.run([[d, e], [b, e], [e]][:rows], 2)
    except Exception as error:  # the model's own code, which may raise anything
        return f"it failed on a block of tokens ({type(error).__name__}: {error})"
    pairs = [(block[0, :1], first[0]), (block[0, 1:], second[0]), *zip(block[1:, 1:], first[1:], strict=True)]
    if all(_agree(model, logits, reference) for logits, reference in pairs):
        return ""
    return "a block of tokens gave other logits than the same tokens one by one"


def _slots(call: GenerateCall, input_ids: Tensor) -> CacheSlots:  # (rows, 3) int64
    model, config = call.model, copy.copy(call.config)
    config.prefill_chunk_size = None
    kwargs: dict[str, Any] = {
        "attention_mask": torch.ones_like(input_ids),
        "position_ids": torch.arange(3, device=input_ids.device).expand(len(input_ids), 3),
        cache_argument(model): DynamicCache(config=model.config.get_text_config(decoder=True)),
        "use_cache": True,
    }
    if "logits_to_keep" in call.model_kwargs:
        kwargs["logits_to_keep"] = 1
    slots = CacheSlots(replace(call, input_ids=input_ids, config=config, model_kwargs=kwargs), blocks=True)
    slots.prefill()
    return slots


def _agree(model: Any, logits: Tensor, reference: Tensor) -> bool:
    """Whether logits (1, vocab) differ by no more than the order of additions explains."""
    precision = max(torch.finfo(model.dtype).eps, torch.finfo(torch.float32).eps)
    spread = float(reference.max() - reference.min())
    return bool((logits - reference).abs().max() <= precision**0.5 * spread)
