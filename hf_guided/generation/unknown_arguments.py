"""Refuses misspelled keyword arguments before anything is compiled, and suggests the right name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from transformers import GenerationConfig, GenerationMixin
from transformers.utils import TransformersKwargs

from ..constraints.argument_advice import Call, advice
from ..errors import UnknownArgument
from ..hf.compat import RENAMED_CACHES, layers

# generate() takes these without having them in its signature.
_BESIDE = ("assistant_tokenizer", "debug_io", "mm_encoder_outputs", "tokenizer", "trust_remote_code")


def check_arguments(model: Any, generate_kwargs: Mapping[str, Any], own: Iterable[str], call: Call) -> None:
    """Refuse arguments that neither this library nor generate() takes.

    Args:
        model: the model that will generate.
        generate_kwargs: the arguments other than ``own``.
        own: names of the caller's other arguments, for the suggestion.
        call: which call this is, for the message.

    Raises:
        UnknownArgument: a name that neither the caller, nor ``GenerationConfig``, nor the model knows; or one for the
            input, which comes from the prompts.
    """
    for name in ("inputs", "input_ids", "attention_mask"):
        if generate_kwargs.get(name) is not None:
            raise UnknownArgument(
                f"{name}: the model's input is made from {call.prompts}; leave it out, or call model.generate with "
                "guide.logits_processor(...) or guide.decoder(...)",
                name=name,
                suggestion=call.prompts,
            )
    known = _taken(model, generate_kwargs)
    unknown = [name for name in generate_kwargs if name not in known]
    if not unknown:
        return
    for name in unknown:
        text, suggestion = advice(name, call, {*own, *known}) or ("leave it out", None)
        if suggestion is None and (generate_kwargs[name] is None or not _refuses_unknown(model, generate_kwargs)):
            continue  # generate() ignores None; a generate() of another library may take names of its own
        raise UnknownArgument(
            f"unknown argument {name}: neither an argument of this call, nor a generation setting, nor an input of "
            f"{type(model).__name__}; {text}",
            name=name,
            suggestion=suggestion,
        )


def _taken(model: Any, generate_kwargs: Mapping[str, Any]) -> set[str]:
    """The arguments that generate() takes, by the rules of its own check (``_validate_model_kwargs``)."""
    configs = GenerationConfig(), model.generation_config, generate_kwargs.get("generation_config")
    settings = [vars(config) for config in configs if isinstance(config, GenerationConfig)]
    known = {name for each in settings for name in each if not name.startswith("_")}
    known |= {*_BESIDE, *TransformersKwargs.__optional_keys__}
    sources: list[Callable[..., Any] | None] = [generate_kwargs.get("custom_generate")]
    for part in layers(model):
        sources += [getattr(part, name, None) for name in ("generate", "prepare_inputs_for_generation", "forward")]
        base = getattr(part, getattr(part, "base_model_prefix", "") or "model", None)
        for holder in (part, base):
            sources.append(getattr(getattr(holder, "encoder", None), "forward", None))
            known |= {
                f"decoder_{name}" for name in _parameters(getattr(getattr(holder, "decoder", None), "forward", None))
            }
        if model.config.is_encoder_decoder:
            known.add("decoder_input_ids")
    known = known.union(*map(_parameters, sources))
    return known | RENAMED_CACHES if known & RENAMED_CACHES else known


def _parameters(function: Any) -> set[str]:
    """Names of the parameters of a function, without ``*args`` and ``**kwargs``."""
    if not callable(function):
        return set()
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return set()
    return {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _refuses_unknown(model: Any, generate_kwargs: Mapping[str, Any]) -> bool:
    """Whether generate() is transformers' own, which raises for names that it does not know."""
    return (
        getattr(model.generate, "__func__", None) is GenerationMixin.generate
        and getattr(model._validate_model_kwargs, "__func__", None) is GenerationMixin._validate_model_kwargs
        and not isinstance(generate_kwargs.get("custom_generate"), str)
    )
