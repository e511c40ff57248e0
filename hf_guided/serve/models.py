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
from ..constraints.tool_calls import ToolCalls
from ..constraints.tool_notation import FAMILIES, JSON
from ..errors import PromptError, UsageError
from ..generation.description import describe
from ..generation.messages import Chat as Messages
from ..generation.prompts import shows_tools, with_description
from ..generation.templates import answer_start, applied, rendered, unshown, with_shown_calls
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
_reported: set[tuple[str, str]] = set()  # models, and what their templates left out; logged once
_LONGEST = 200  # characters of a template's message, which may repeat a part of the request


@dataclass(frozen=True)
class ServedModel:
    """A model, and what writes its prompts.

    Args:
        model: of transformers, in eval mode and on its device.
        templates: its tokenizer; or its processor, if it takes more than text.
        name: for clients.
        tool_format: how it writes its tool calls, see ``ServeOptions``.
    """

    model: Any
    templates: Any
    name: str
    tool_format: str = "auto"

    @property
    def tokenizer(self) -> Any:
        """The tokenizer alone."""
        return tokenizer_of(self.templates)

    @property
    def takes_media(self) -> bool:
        """Whether the model takes images, videos or audio."""
        return self.templates is not self.tokenizer

    @cached_property
    def takes_any_arguments(self) -> bool:
        """Whether the chat template writes the arguments of a call unchanged if they are any text."""
        text = '{"broken": "\\'  # a template that writes JSON or Python's repr doubles the backslash
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
        arguments = {**({} if prompt.calls is None else {"tools": prompt.calls.tools}), **template_variables}
        arguments |= prompt.template_variables
        messages = self._with_tools([dict(message) for message in prompt.messages], arguments, prompt.calls)
        ids, inputs = self._applied(messages, arguments, generates)
        if thinks or not generates:
            return ids, inputs
        # The text that comes between the chat and an answer without thinking.
        render = partial(rendered, self.templates, messages, arguments)
        start = answer_start(self.templates, arguments, render, calls=calls)
        added = self.tokenizer.encode(start, add_special_tokens=False) if start else []
        return (*ids, *added), {
            # One number for each token, such as its type: those of text are 0.
            name: F.pad(value, (0, len(added))) if getattr(value, "shape", None) == (1, len(ids)) else value
            for name, value in inputs.items()
        }

    def _with_tools(self, messages: Messages, arguments: Mapping[str, Any], calls: ToolCalls | None) -> Messages:
        """The messages, with tools and earlier calls as text where the notation is one that no template shows."""
        if self.tool_format == JSON:
            messages = with_shown_calls(self.templates, messages, arguments, FAMILIES[JSON])
        if calls is None or self._shows_tools:
            return messages
        if calls.described is not None:
            try:
                return with_description(self.templates, messages, arguments, describe(calls, self.templates))
            except PromptError:
                self._applied(messages, arguments, generates=True)  # raises, if that is not for the description
                raise PromptError(
                    "the chat template shows no tools, and writes their description neither as a system message nor "
                    "in the first message of the user; leave tools out, or add a message of the user"
                ) from None
        self._report(
            "tools",
            "the chat template does not show the tools, so the model does not know them; --tool-format json describes "
            "them in the prompt",
        )
        return messages

    @cached_property
    def _shows_tools(self) -> bool:
        tool = {"name": "look_up", "description": "Looks up.", "parameters": {"type": "object", "properties": {}}}
        said: Any = [{"type": "text", "text": "Hello"}] if self.takes_media else "Hello"
        chat: Messages = [{"role": "user", "content": said}]
        try:
            return shows_tools(self.templates, chat, {}, [{"type": "function", "function": tool}])
        except PromptError:  # the template refuses tools, and will say so
            return True

    def _report(self, kind: str, what: str) -> None:
        if (self.name, kind) not in _reported:
            _reported.add((self.name, kind))
            log.warning("a request: %s", what)

    def _applied(self, messages: Messages, arguments: Mapping[str, Any], generates: bool) -> Rendered:
        tensors = {"return_tensors": "pt"} if self.takes_media else {}
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
        if (self.name, "calls") not in _reported and (lost := unshown(self.templates, messages, arguments)):
            self._report("calls", lost)
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
        return ServedModel(model, tokenizer, options.public_name, options.tool_format)
    loader = _loader_for_media(source)
    pair = source.load() if loader is None else _load_with_processor(source, loader)
    return ServedModel(*pair, options.public_name, options.tool_format)


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
