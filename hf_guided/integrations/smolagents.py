"""smolagents' model on transformers, with ``response_format``: its own class refuses it.

    model = GuidedTransformersModel("path/to/model", max_new_tokens=500)
    agent = CodeAgent(tools=[], model=model, use_structured_outputs_internally=True)

smolagents prepares the messages and reads the answer; ``hg.generate`` runs between the two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from smolagents import ChatMessage, TransformersModel
from smolagents.models import ChatMessageStreamDelta, MessageRole, TokenUsage

from ..constraints.coerce import coerce
from ..constraints.values import Constraint
from ..errors import InvalidArgument
from ..generation.api import generate
from ..generation.prompt_inputs import processed
from ..generation.prompts import Prompt, encoded, prepared
from ..generation.templates import TemplateOptions, is_processor
from ..guide import Guide
from ..session.result import GuidedResult

_DEFAULT_MAX_NEW_TOKENS = 1024  # smolagents' own


class GuidedTransformersModel(TransformersModel):  # type: ignore[misc]  # smolagents is untyped here
    """``TransformersModel`` whose answers match ``response_format``, in any form that ``hg.generate`` takes.

    Args:
        *args: as for ``TransformersModel``.
        **kwargs: as for ``TransformersModel``.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._templates = self.processor if hasattr(self, "processor") else self.tokenizer
        self._guide = Guide(self.model, self._templates)

    def generate(
        self, messages: list[Any], stop_sequences: list[str] | None = None, response_format: Any = None, **kwargs: Any
    ) -> Any:
        """Generate one answer; see ``TransformersModel.generate``.

        Args:
            messages: the chat.
            stop_sequences: texts that end a free answer; an answer with a format ends by itself, and ignores them.
            response_format: the format of the answer; None leaves it free. The chat template is given the tools of
                ``hg.ToolCalls``.
            **kwargs: as there; with a response_format also ``chat_template_kwargs``, ``documents``, ``show_tools`` and
                ``describe``, as for ``hg.generate``.

        Raises:
            ConstraintError: no answer in this format can be promised.
        """
        constraint = coerce(response_format)
        if constraint is None:
            return super().generate(messages, stop_sequences, **kwargs)
        prompt, length, settings = self._prepared(messages, constraint, kwargs)
        if "stream" in settings:
            raise InvalidArgument("stream: expected a call of generate_stream instead")
        result, *_ = generate(self.model, self._templates, [prompt], [constraint], **settings)
        raw = {"out": result.text, "result": result}
        return ChatMessage(MessageRole.ASSISTANT, result.text, raw=raw, token_usage=_usage(length, result))

    def generate_stream(
        self, messages: list[Any], stop_sequences: list[str] | None = None, response_format: Any = None, **kwargs: Any
    ) -> Iterator[Any]:
        """The answer while it is being generated; arguments as for ``generate``."""
        constraint = coerce(response_format)
        if constraint is None:
            yield from super().generate_stream(messages, stop_sequences, **kwargs)
            return
        prompt, length, settings = self._prepared(messages, constraint, kwargs)
        if settings.get("num_return_sequences", 1) != 1:
            raise InvalidArgument("num_return_sequences: a stream has one answer")
        text = ""
        for partial in generate(self.model, self._templates, [prompt], [constraint], stream=True, **settings):
            usage = None if partial.result is None else _usage(length, partial.result)
            yield ChatMessageStreamDelta(partial.text.removeprefix(text), token_usage=usage)
            text = partial.text

    def _prepared(
        self, messages: list[Any], constraint: Constraint, kwargs: dict[str, Any]
    ) -> tuple[Prompt, int, dict[str, Any]]:
        """The prompt, the number of its tokens, and the other arguments of ``hg.generate``."""
        of_template: Mapping[str, Any] = kwargs.pop("chat_template_kwargs", None) or {}
        documents, show_tools = kwargs.pop("documents", None), kwargs.pop("show_tools", True)
        describe = kwargs.pop("describe", False)
        # smolagents lets the model's arguments win, of which one is always a limit; but a call's own limit comes first.
        limits = [given.get(name) for given in (kwargs, self.kwargs) for name in ("max_new_tokens", "max_tokens")]
        settings = self._prepare_completion_kwargs(messages, tool_choice=None, **kwargs)
        # smolagents' roles are members of an enum, which a template may print by another name.
        chat = [
            {**message, "role": getattr(message["role"], "value", message["role"])}
            for message in settings.pop("messages")
        ]
        tools = settings.pop("tools", None)
        arguments = {**self.apply_chat_template_kwargs, **of_template, **({"tools": tools} if tools else {})}
        thinks = settings.get("reasoning") is not None
        options = TemplateOptions(arguments, documents, show_tools=show_tools, describe=describe, thinks=thinks)
        prompt = prepared(self._templates, chat, constraint, options)
        if is_processor(self._templates):
            length = processed(self._templates, [prompt], [None], self.model)["input_ids"].shape[1]
        else:
            prompt = replace(prompt, tokens=encoded(self._guide.vocabulary, prompt, ""))
            length = len(prompt.tokens or ())
        settings.pop("max_tokens", None)
        settings = {name: value for name, value in settings.items() if value is not None}
        settings["max_new_tokens"] = next(filter(None, limits), _DEFAULT_MAX_NEW_TOKENS)
        return prompt, length, {**settings, "guide": self._guide, "progress": False}


def _usage(prompt_length: int, result: GuidedResult[Any]) -> TokenUsage:
    return TokenUsage(input_tokens=prompt_length, output_tokens=len(result.token_ids))
