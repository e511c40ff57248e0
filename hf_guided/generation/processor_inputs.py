"""Chats with images, videos or audio as tensors for a model, made by its processor."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import PromptError
from ..hf.compat import input_device
from .chat_history import has_calls
from .chat_prompts import Prompt, applied, rendered

# Tensors that describe tokens; all others that a processor makes are images, video or audio.
OF_TOKENS = frozenset("input_ids attention_mask token_type_ids mm_token_type_ids position_ids".split())
# Writes a chat that is already rendered; transformers loads the images of its messages.
_AS_IT_IS = "{{ messages[0]['rendered'] }}"


def processed(processor: Any, prompts: Sequence[Prompt], prefixes: Sequence[str | None], model: Any) -> dict[str, Any]:
    """The inputs of ``model.generate`` for chats of one group.

    Args:
        processor: of transformers.
        prompts: chats; see ``Prompt.group``.
        prefixes: for each prompt, the part of its answer that it already ends with.
        model: the model.

    Returns:
        input_ids and attention_mask, (rows, longest) int64, padded left for a decoder; and the other tensors of the
        processor, on the model's device, floating point in its dtype.

    Raises:
        PromptError: the processor refuses the chats; or the model would not see a part of them.
    """
    arguments = dict(prompts[0].arguments or {})
    settings = dict(arguments.pop("processor_kwargs", None) or {})
    refused = "sanitize_control_tokens" in arguments or "chat_template" not in _arguments_of(processor)
    chats = [[dict(message) for message in prompt.chat] for prompt in prompts]  # transformers writes into them
    starts = [prompt.answer_start + (prefix or "") for prompt, prefix in zip(prompts, prefixes, strict=True)]
    if any(prefixes) or (not refused and (any(starts) or any(has_calls(prompt.chat) for prompt in prompts))):
        if refused:
            raise PromptError(
                f"prefix: {type(processor).__name__} renders these chats itself and appends nothing to them; leave out "
                "the prefix, or sanitize_control_tokens if it was passed"
            )
        for chat, prompt, start in zip(chats, prompts, starts, strict=True):
            chat[0]["rendered"] = rendered(processor, prompt.chat, prompt.arguments) + start
        kept = arguments.keys() & _arguments_of(processor) - {"tools", "documents"}
        arguments = {name: arguments[name] for name in kept} | {"chat_template": _AS_IT_IS}
    if len(prompts) > 1:
        if processor.tokenizer.pad_token_id is None:
            raise PromptError(
                "expected a processor whose tokenizer has a padding token, to run several chats at once; set "
                "processor.tokenizer.pad_token = processor.tokenizer.eos_token, or pass batch_size=1"
            )
        settings |= {"padding": True, "padding_side": "right" if model.config.is_encoder_decoder else "left"}
    made = applied(
        processor,
        chats,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs=settings,
        **arguments,
    )
    inputs = {name: _on(value, model) for name, value in made.items()}
    if "attention_mask" not in inputs:
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    _check_seen(processor, prompts, inputs, model)
    return inputs


def _arguments_of(processor: Any) -> set[str]:
    return set(inspect.signature(processor.apply_chat_template).parameters)


def tokens_of(inputs: dict[str, Any]) -> list[list[int]]:
    """The tokens of each row without padding."""
    rows, mask = inputs["input_ids"].tolist(), inputs["attention_mask"].tolist()
    return [
        [token for token, kept in zip(ids, kept_of, strict=True) if kept]
        for ids, kept_of in zip(rows, mask, strict=True)
    ]


def check_takes_media(processor: Any, prompts: Iterable[Prompt], model: Any) -> None:
    """Check that a model takes more than tokens, if a chat has more than text.

    Raises:
        PromptError: it takes tokens alone.
    """
    kinds = sorted({kind for prompt in prompts for kind in prompt.media})
    if not kinds:
        return
    names = set(getattr(processor, "model_input_names", ())) - set(processor.tokenizer.model_input_names)
    if names and not names & _parameters(model):
        raise _unseen(model, kinds)


def _check_seen(processor: Any, prompts: Sequence[Prompt], inputs: dict[str, Any], model: Any) -> None:
    """Check that each kind of content is in a tensor that the model takes, and has a placeholder among the tokens."""
    kinds = sorted(prompts[0].media)
    if not kinds:
        return
    if not (inputs.keys() - OF_TOKENS) & _parameters(model):
        raise _unseen(model, kinds)
    for kind in kinds:
        # Some processors write a video as images.
        tokens = [_placeholder(processor, model, name) for name in {kind, *(["image"] if kind == "video" else [])}]
        known = [token for token in tokens if token is not None]
        if not known:
            continue
        for ids in inputs["input_ids"].tolist():
            if not set(known) & set(ids):
                raise PromptError(
                    f"a chat holds {kind} content, and the processor wrote no {kind} token for it: the model would not "
                    "see it; use the processor that belongs to the model"
                )


def _unseen(model: Any, kinds: Sequence[str]) -> PromptError:
    return PromptError(
        f"the chats hold {' and '.join(kinds)} content, and {type(model).__name__} takes tokens alone: it would not "
        "see it; use a model for it, or leave it out"
    )


def _parameters(model: Any) -> set[str]:
    """The arguments of a model's forward pass; for an adapter (PEFT), those of the model inside."""
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    return set(inspect.signature(inner.forward).parameters)


def _placeholder(processor: Any, model: Any, kind: str) -> int | None:
    """The token that stands for such content; None if neither processor nor config names it."""
    for holder, name in (
        (processor, f"{kind}_token_id"),
        (model.config, f"{kind}_token_id"),
        (model.config, f"{kind}_token_index"),
    ):
        token_id = getattr(holder, name, None)
        if isinstance(token_id, int):
            return token_id
    return None


def _on(value: Any, model: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    device = input_device(model)
    return value.to(device, model.dtype) if value.is_floating_point() else value.to(device)
