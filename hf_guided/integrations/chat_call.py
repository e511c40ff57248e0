"""One call of a chat model of another framework: its prompt, its constraint, and the parts of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ..constraints.coerce import coerce
from ..constraints.tool_calls import ToolCall, ToolCalls
from ..constraints.values import Constraint
from ..errors import InvalidConstraint
from ..generation.partial import Partial
from ..generation.prompts import encoded, prepared
from ..generation.templates import TemplateOptions
from ..guide import Guide
from ..hf.generation_settings import sampling_at
from ..session.result import GuidedResult


@dataclass(frozen=True)
class ChatSettings:
    """What holds for all calls of a chat model.

    Args:
        model: a transformers model that can generate.
        tokenizer: its tokenizer.
        guide: of both.
        max_new_tokens: of each answer.
        temperature: of the samples; 0 is greedy. None samples as the model's generation config says, else is greedy.
        tool_format: how the model writes its calls, see ``hg.ToolCalls``.
        describe: whether formats and tools are described in the chat, see ``hg.describe``.
        chat_template_kwargs: arguments of the chat template.
        generate_kwargs: other arguments of ``hg.generate``.
    """

    model: Any
    tokenizer: Any
    guide: Guide
    max_new_tokens: int
    temperature: float | None
    tool_format: str
    describe: bool
    chat_template_kwargs: dict[str, Any]
    generate_kwargs: dict[str, Any]


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
    """One call.

    Args:
        settings: of the chat model.
        prompt: a text, or a chat of dicts.
        stop: texts that end a free answer, or one text.
        kwargs: of the call: "response_format" or "tools", "tool_choice" and "parallel_tool_calls"; "temperature",
            "max_tokens", "describe", and other arguments of ``hg.generate``.

    Raises:
        InvalidConstraint: tools or a format that are none, or both.
        PromptError: the chat template refuses the chat.
    """

    def __init__(self, settings: ChatSettings, prompt: Any, stop: Sequence[str] | None, kwargs: dict[str, Any]):
        kwargs = dict(kwargs)
        kwargs.pop("stream", None)  # the method that is called decides; LangChain's invoke(stream=True) passes it on
        constraint = _constraint_of(kwargs, settings.tool_format)
        describe = kwargs.pop("describe", settings.describe)
        thinks = {**settings.generate_kwargs, **kwargs}.get("reasoning") is not None
        options = TemplateOptions(
            settings.chat_template_kwargs, None, show_tools=True, describe=describe, thinks=thinks
        )
        ready = prepared(settings.tokenizer, prompt, constraint, options)
        tokens = encoded(settings.guide.vocabulary, ready, "")
        self.prompt_tokens = len(tokens)
        self.positional = settings.model, settings.tokenizer, [replace(ready, tokens=tokens)], [constraint]
        self.arguments: dict[str, Any] = {
            "guide": settings.guide,
            "max_new_tokens": kwargs.pop("max_tokens", settings.max_new_tokens),
            "progress": False,
        }
        self.arguments |= sampling_at(kwargs.pop("temperature", settings.temperature))
        self._stop = [stop] if isinstance(stop, str) else list(stop or ())
        if self._stop:
            self.arguments["stop_strings"] = self._stop
        self.arguments |= {**settings.generate_kwargs, **kwargs}
        self._calls_tools = isinstance(constraint, ToolCalls)
        self._text_length, self._num_calls = 0, 0

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
        InvalidConstraint: tools or a format that are none, or both.
    """
    response_format = coerce(kwargs.pop("response_format", None))
    tools, choice = kwargs.pop("tools", None), kwargs.pop("tool_choice", None)
    parallel = kwargs.pop("parallel_tool_calls", True)
    if not tools:
        return response_format
    if response_format is not None:
        raise InvalidConstraint("expected a response_format or tools, got both")
    if not isinstance(choice, dict):
        choice = {None: "auto", False: "auto", True: "required", "any": "required"}.get(choice, choice)
    return ToolCalls(tools, format=tool_format, choice=choice, parallel=parallel)
