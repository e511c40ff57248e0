"""Code that runs inside a model's passes without belonging to the model: steering vectors, patched layers, wrappers.

Such code may treat the last token of a pass differently from the others. The whole model, and its decoder, may have
hooks: those are trusted only to look at inputs and outputs, as profilers and counters do.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn.modules import module as torch_module
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .input_preparation import decoder_of

# Packages whose code treats the tokens of a pass alike: they compute, quantize, share or move layers.
_KNOWN = {"torch", "transformers", "accelerate", "bitsandbytes", "hqq", "kernels", "liger_kernel", "optimum", "torchao"}


def foreign_code_reason(model: Any) -> str:
    """Which hooks or replaced methods, of the caller or of an adapter, may change a pass; empty if there are none."""
    if torch_module._global_forward_hooks or torch_module._global_forward_pre_hooks:
        return "hooks are registered for all modules"
    for name, module in _inner(model):
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        if any(_package(hook) != "transformers" for hook in hooks):
            return f"{name} has hooks"
        if not _keeps_forward(module):
            return f"{name}.forward was replaced"
    return ""


def has_foreign_modules(model: Any) -> bool:
    """Whether classes of the caller are among the model's modules, or compute its attention."""
    config = model.config.get_text_config(decoder=True)
    attention = ALL_ATTENTION_FUNCTIONS.get(config._attn_implementation)
    classes = {type(module) for _, module in _inner(model)}
    code = [*classes, *(kind.forward for kind in classes), *([attention] if attention is not None else [])]
    return any(_package(part) not in _KNOWN | {"peft"} for part in code)


def _inner(model: Any) -> Iterator[tuple[str, Any]]:
    outer = {id(part) for part in (model, model.base_model, decoder_of(model))}
    return ((name, module) for name, module in model.named_modules() if id(module) not in outer)


def _keeps_forward(module: Any) -> bool:
    """Whether ``forward`` is that of the module's class, a kernel for it, or one that accelerate has wrapped."""
    forward = vars(module).get("forward")
    if forward is None:
        return True
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
