"""The model that a server answers with, and its prompts: by its own chat template, or its tokenizer alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import torch.nn.functional as F
import transformers
from packaging.version import Version

from ..checkpoints.load import ModelSource
from ..errors import PromptError, UsageError
from ..generation.templates import answer_start, applied, rendered, unshown
from ..vocabulary.processors import tokenizer_of
from .job import Chat, Prompt
from .options import ServeOptions

# A prompt as token ids, and inputs of the model for images and the like.
Rendered: TypeAlias = "tuple[tuple[int, ...], Mapping[str, Any]]"

log = logging.getLogger("hf_guided.serve")

OLDEST = "5.23"  # the continuous batching of older ones has other classes
# What the demo model was trained on is no chat: it reads the messages' texts as they are. Its calls are Qwen's.
_DEMO_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}<tool_call>\n{{ call['function'] | tojson }}\n</tool_call>"
    "{% endfor %}{% endfor %}"
)
_reported: set[str] = set()  # the models whose templates left out a call; each is logged once
_LONGEST = 200  # characters of a template's message, which may repeat a part of the request


@dataclass(frozen=True)
class ServedModel:
    """A model, and what writes its prompts.

    Args:
        model: of transformers, in eval mode and on its device.
        templates: its tokenizer; or its processor, if it takes more than text.
        name: for clients.
    """

    model: Any
    templates: Any
    name: str

    @property
    def tokenizer(self) -> Any:
        """The tokenizer alone."""
        return tokenizer_of(self.templates)

    @property
    def takes_media(self) -> bool:
        """Whether it takes images, videos or audio."""
        return self.templates is not self.tokenizer

    @cached_property
    def takes_any_arguments(self) -> bool:
        """Whether the chat template writes the arguments of a call unchanged if they are any text."""
        text = '{"broken": "\\'  # where it writes JSON or Python's repr, the backslash is doubled
        call = {"id": "a1B2c3D4e", "type": "function", "function": {"name": "look_up", "arguments": text}}
        said: Any = [{"type": "text", "text": "found"}] if self.takes_media else "found"
        chat = [
            {"role": "user", "content": said},
            {"role": "assistant", "content": said[:0], "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a1B2c3D4e", "name": "look_up", "content": said},
        ]
        try:
            return text in rendered(self.templates, chat, {})
        except PromptError:
            return False

    def render(
        self,
        prompt: Prompt,
        template_variables: Mapping[str, Any],
        *,
        generates: bool = True,
        thinks: bool = True,
        calls: bool = False,
    ) -> Rendered:
        """Write a prompt; runs the model's own template.

        Args:
            prompt: a chat, a text, or token ids.
            template_variables: for chats, where the request does not set them.
            generates: whether a chat ends with the beginning of an answer.
            thinks: whether the model may think before its answer.
            calls: whether the answer may be tool calls.

        Raises:
            PromptError: the template refuses the chat.
        """
        if isinstance(prompt, str):
            return tuple(self.tokenizer(prompt)["input_ids"]), {}
        if not isinstance(prompt, Chat):
            return prompt, {}
        arguments = {**({} if prompt.tools is None else {"tools": list(prompt.tools)}), **template_variables}
        arguments |= prompt.template_variables
        ids, inputs = self._applied(prompt, arguments, generates)
        if thinks or not generates:
            return ids, inputs
        # The text that comes between the chat and an answer without thinking.
        render = partial(rendered, self.templates, prompt.messages, arguments)
        start = answer_start(self.templates, arguments, render, calls=calls)
        added = self.tokenizer.encode(start, add_special_tokens=False) if start else []
        return (*ids, *added), {
            # One number for each token, such as its type: those of text are 0.
            name: F.pad(value, (0, len(added))) if getattr(value, "shape", None) == (1, len(ids)) else value
            for name, value in inputs.items()
        }

    def _applied(self, chat: Chat, arguments: Mapping[str, Any], generates: bool) -> Rendered:
        tensors = {"return_tensors": "pt"} if self.takes_media else {}
        messages = [dict(message) for message in chat.messages]
        try:
            made = applied(
                self.templates,
                messages,
                add_generation_prompt=generates,
                tokenize=True,
                return_dict=True,
                **tensors,
                **arguments,
            )
        except PromptError as error:
            raise PromptError(f"the chat template refuses these messages: {_reason(error.__cause__)}") from error
        if self.name not in _reported and (lost := unshown(self.templates, messages, arguments)):
            _reported.add(self.name)
            log.warning("a request: %s", lost)
        if not self.takes_media:
            return tuple(made["input_ids"]), {}
        inputs = {name: value for name, value in made.items() if name not in ("input_ids", "attention_mask")}
        return tuple(made["input_ids"][0].tolist()), inputs


def _reason(error: BaseException | None) -> str:
    """The message of a template itself; of other errors the kind alone, for they may repeat a whole image."""
    from jinja2 import TemplateError

    return str(error)[:_LONGEST] if isinstance(error, TemplateError) else type(error).__name__


def is_supported() -> bool:
    """Whether the installed transformers is new enough."""
    return Version(transformers.__version__).release >= Version(OLDEST).release


def load(options: ServeOptions) -> ServedModel:
    """Load a server's model once; there is no other.

    Raises:
        UsageError: it cannot be loaded; transformers is too old.
    """
    if not is_supported():
        raise UsageError(
            f"the server needs transformers {OLDEST} or newer, found {transformers.__version__}; "
            "pip install -U transformers (newer ones need Python 3.11)"
        )
    source = ModelSource(
        options.model,
        revision=options.revision,
        trust_remote_code=options.trust_remote_code,
        dtype=options.dtype,
        device=options.device,
        quantization=options.quantization,
    )
    source.check()
    if source.is_built_in:
        model, tokenizer = source.load()
        tokenizer.chat_template = _DEMO_CHAT_TEMPLATE
        return ServedModel(model, tokenizer, options.public_name)
    loader = _loader_for_media(source)
    pair = source.load() if loader is None else _load_with_processor(source, loader)
    return ServedModel(*pair, options.public_name)


def _loader_for_media(source: ModelSource) -> Any:
    """The class of transformers that loads a model which takes more than text; None if it takes text alone."""
    from transformers.models.auto import modeling_auto

    location = source.locate()
    with location.loading("config"):
        config = transformers.AutoConfig.from_pretrained(
            location.path, revision=location.revision, trust_remote_code=source.trust_remote_code
        )
    if (
        config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        and (config.architectures or [""])[0] in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
    ):
        return None
    for names, loader in (
        (modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES, "AutoModelForMultimodalLM"),
        (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "AutoModelForImageTextToText"),
    ):
        if config.model_type in names:
            return getattr(transformers, loader)
    return None


def _load_with_processor(source: ModelSource, loader: Any) -> tuple[Any, Any]:
    model, location = source.load_model(loader), source.locate()
    with location.loading("processor"):
        return model, transformers.AutoProcessor.from_pretrained(
            location.path, revision=location.revision, trust_remote_code=source.trust_remote_code
        )
