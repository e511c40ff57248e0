"""The common part of other frameworks' chat models: their fields, and a call, from the chat to the answer's parts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCall, ToolCalls
from ..constraints.values import Constraint
from ..generation.api import agenerate, generate
from ..generation.partial import Partial
from ..generation.prompts import encoded, prepared
from ..generation.templates import TemplateOptions
from ..guide import Guide
from ..hf.generation_settings import sampling_at
from ..session.result import GuidedResult


class ChatFields(BaseModel):
    """The fields that the chat models of all frameworks have.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        temperature: of the samples; 0 is greedy. None samples as the model's generation config says, else is greedy.
        tool_format: how the model writes its calls, see ``hg.ToolCalls``.
        describe: whether the format of the answer, or the tools, are described in the chat, see ``hg.describe``.
        chat_template_kwargs: arguments of the chat template.
        generate_kwargs: other arguments of ``hg.generate``.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, ignored_types=(cached_property,))

    model: Any = Field(exclude=True)
    tokenizer: Any = Field(exclude=True)
    temperature: float | None = None
    tool_format: str = "auto"
    describe: bool = False
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    generate_kwargs: dict[str, Any] = Field(default_factory=dict)

    @cached_property
    def _guide(self) -> Guide:
        return Guide(self.model, self.tokenizer)

    @property
    def _model_name(self) -> str:
        return getattr(self.model, "name_or_path", "") or type(self.model).__name__


class AnswerParts(NamedTuple):
    """An answer, or what is there of it.

    Args:
        text: outside of the calls.
        calls: those that are complete.
        new_text: the text after that of the last parts.
        new_calls: those after the ones of the last parts.
    """

    text: str
    calls: Sequence[ToolCall]
    new_text: str
    new_calls: Sequence[ToolCall]


class ChatCall:
    """A call of a chat model.

    Args:
        fields: of the chat model.
        max_new_tokens: of the answer, where the call does not say it.
        prompt: a text, or a chat of dicts.
        kwargs: of the call: "response_format", "tools", "tool_choice" and "parallel_tool_calls"; "stop" (texts that
            end a free answer, or one text), "temperature", "max_tokens", "describe", and other arguments of
            ``hg.generate``.

    Raises:
        InvalidConstraint: tools or a format that are none.
        PromptError: the chat template refuses the chat.
    """

    def __init__(self, fields: ChatFields, max_new_tokens: int, prompt: Any, kwargs: Mapping[str, Any]):
        kwargs = dict(kwargs)
        kwargs.pop("stream", None)  # the method that is called decides; LangChain's invoke(stream=True) passes it on
        constraint = _constraint_of(kwargs, fields.tool_format)
        describe = kwargs.pop("describe", fields.describe)
        thinks = {**fields.generate_kwargs, **kwargs}.get("reasoning") is not None
        options = TemplateOptions(fields.chat_template_kwargs, None, show_tools=True, describe=describe, thinks=thinks)
        ready = prepared(fields.tokenizer, prompt, constraint, options)
        tokens = encoded(fields._guide.vocabulary, ready, "")
        self.prompt_tokens, self.model_name = len(tokens), fields._model_name
        self._positional = fields.model, fields.tokenizer, [replace(ready, tokens=tokens)], [constraint]
        self._arguments: dict[str, Any] = {
            "guide": fields._guide,
            "max_new_tokens": kwargs.pop("max_tokens", max_new_tokens),
            "progress": False,
        }
        self._arguments |= sampling_at(kwargs.pop("temperature", fields.temperature))
        stop = kwargs.pop("stop", None)
        self._stop = [stop] if isinstance(stop, str) else list(stop or ())
        if self._stop:
            self._arguments["stop_strings"] = self._stop
        self._arguments |= {**fields.generate_kwargs, **kwargs}
        self._calls_tools = isinstance(constraint, ToolCalls)
        self._text_length, self._num_calls = 0, 0

    def result(self) -> GuidedResult[Any]:
        """The whole answer; errors as ``hg.generate``."""
        result: GuidedResult[Any]
        [result] = generate(*self._positional, **self._arguments)
        return result

    async def aresult(self) -> GuidedResult[Any]:
        """The whole answer, without blocking the event loop."""
        result: GuidedResult[Any]
        [result] = await agenerate(*self._positional, **self._arguments)
        return result

    def partials(self) -> Iterator[Partial[Any, Any]]:
        """The answer while it is generated."""
        partials: Iterator[Partial[Any, Any]] = generate(*self._positional, stream=True, **self._arguments)
        return partials

    def apartials(self) -> AsyncIterator[Partial[Any, Any]]:
        """The answer while it is generated, without blocking the event loop."""
        partials: AsyncIterator[Partial[Any, Any]] = agenerate(*self._positional, stream=True, **self._arguments)
        return partials

    def parts(self, answer: GuidedResult[Any] | Partial[Any, Any]) -> AnswerParts:
        """The parts of an answer, or of a stream's next ``Partial``."""
        text, calls = self._split(answer)
        parts = AnswerParts(text, calls, text[self._text_length :], calls[self._num_calls :])
        self._text_length, self._num_calls = max(self._text_length, len(text)), len(calls)
        return parts

    def _split(self, answer: GuidedResult[Any] | Partial[Any, Any]) -> tuple[str, Sequence[ToolCall]]:
        result = answer.result if isinstance(answer, Partial) else answer
        is_cut = result is not None and result.value is None
        if self._calls_tools and answer.value is not None and (answer.value.calls or not is_cut):
            return answer.value.text, answer.value.calls
        text = answer.text
        for mark in self._stop:
            text = text.partition(mark)[0]
        return text, ()


def _constraint_of(kwargs: dict[str, Any], tool_format: str) -> Constraint | None:
    """The constraint of a call, whose arguments it takes out.

    Raises:
        InvalidConstraint: tools or a format that are none.
    """
    response_format = coerce(kwargs.pop("response_format", None))
    tools, choice = kwargs.pop("tools", None), kwargs.pop("tool_choice", None)
    parallel = kwargs.pop("parallel_tool_calls", True)
    if not tools:
        return response_format
    if not isinstance(choice, dict):
        choice = {None: "auto", False: "auto", True: "required", "any": "required"}.get(choice, choice)
    return ToolCalls(tools, format=tool_format, choice=choice, parallel=parallel, answer=response_format)
