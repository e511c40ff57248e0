"""Prompts as token ids: by the model's own chat template, or its tokenizer alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch.nn.functional as F

from ..errors import PromptError
from ..generation.templates import answer_start, applied, unshown
from ..generation.templates import rendered as written
from ..hf.compat import input_device
from .call import Chat, Prompt
from .error_responses import log
from .models import ServedModel

_OF_TOKENS = ("input_ids", "attention_mask")
_reported: set[str] = set()  # the models whose templates left out a call; each is logged once
_LONGEST = 200  # characters of a template's message, which may repeat a part of the request


@dataclass(frozen=True)
class Rendered:
    """A prompt as the model gets it.

    Args:
        token_ids: of the prompt.
        model_inputs: of images and the like, for one row; on the model's device.
    """

    token_ids: tuple[int, ...]
    model_inputs: Mapping[str, Any] = field(default_factory=dict)


def render(
    served: ServedModel,
    prompt: Prompt,
    template_variables: Mapping[str, Any] | None = None,
    *,
    generates: bool = True,
    thinks: bool = True,
    calls: bool = False,
) -> Rendered:
    """A prompt as token ids; takes time, and runs the model's own template.

    Args:
        served: the model.
        prompt: a chat, a text, or token ids.
        template_variables: for chats, where the request does not set them.
        generates: whether a chat ends with the beginning of an answer.
        thinks: whether the model may think before its answer.
        calls: whether the answer may be tool calls.

    Raises:
        PromptError: the template refuses the chat.
    """
    if isinstance(prompt, Chat):
        variables = {**(template_variables or {}), **prompt.template_variables}
        rendered = _rendered_chat(served, prompt, variables, generates)
        return rendered if thinks or not generates else _with_start(served, prompt, variables, rendered, calls)
    if isinstance(prompt, str):
        return Rendered(tuple(served.tokenizer(prompt)["input_ids"]))
    return Rendered(prompt)


def _rendered_chat(served: ServedModel, chat: Chat, variables: Mapping[str, Any], generates: bool) -> Rendered:
    shown: dict[str, Any] = {} if chat.tools is None else {"tools": list(chat.tools)}
    tensors = {"return_tensors": "pt"} if served.takes_media else {}
    messages = [dict(message) for message in chat.messages]
    try:
        made = applied(
            served.templates,
            messages,
            add_generation_prompt=generates,
            tokenize=True,
            return_dict=True,
            **shown,
            **tensors,
            **variables,
        )
    except PromptError as error:
        raise PromptError(f"the chat template refuses these messages: {_reason(error.__cause__)}") from error
    if served.name not in _reported and (lost := unshown(served.templates, messages, {**shown, **variables})):
        _reported.add(served.name)
        log.warning("a request: %s", lost)
    if not served.takes_media:
        return Rendered(tuple(made["input_ids"]))
    inputs = {name: _on(value, served.model) for name, value in made.items() if name not in _OF_TOKENS}
    return Rendered(tuple(made["input_ids"][0].tolist()), inputs)


def _with_start(
    served: ServedModel, chat: Chat, variables: Mapping[str, Any], rendered: Rendered, calls: bool
) -> Rendered:
    """The prompt with the text that comes between the chat and an answer without thinking."""
    shown = {} if chat.tools is None else {"tools": list(chat.tools)}
    arguments = {**shown, **variables}
    render = partial(written, served.templates, chat.messages, arguments)
    start = answer_start(served.templates, arguments, render, calls=calls)
    added = served.tokenizer.encode(start, add_special_tokens=False) if start else []
    shape = (1, len(rendered.token_ids))
    inputs = {
        # One number for each token, such as its type: those of text are 0.
        name: F.pad(value, (0, len(added))) if getattr(value, "shape", None) == shape else value
        for name, value in rendered.model_inputs.items()
    }
    return Rendered((*rendered.token_ids, *added), inputs)


def _reason(error: BaseException | None) -> str:
    """What a template says itself; of other errors the kind alone, for they may repeat a whole image."""
    from jinja2 import TemplateError

    return str(error)[:_LONGEST] if isinstance(error, TemplateError) else type(error).__name__


def _on(value: Any, model: Any) -> Any:
    """A tensor on the model's device, floating point in its dtype."""
    if not hasattr(value, "to"):
        return value
    device = input_device(model)
    return value.to(device, model.dtype) if value.is_floating_point() else value.to(device)
