"""A LlamaIndex LLM over a local transformers model, whose answers are always in the format that was asked for.

llm = HFGuidedLLM(model=model, tokenizer=tokenizer)
person = llm.structured_predict(Person, PromptTemplate("Who is the {role}?"), role="gardener")
response = llm.chat_with_tools([weather], "Is it going to rain?")
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    LLMMetadata,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.program.utils import create_flexible_model
from llama_index.core.types import PydanticProgramMode
from pydantic import BaseModel

from ..errors import InvalidArgument, PromptError, shown
from ..generation.api import value_of
from ..generation.partial import Partial
from ..generation.templates import has_template
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.result import GuidedResult
from .chat_call import AnswerParts, ChatCall, ChatFields

_span = get_dispatcher(__name__).span


class HFGuidedLLM(ChatFields, FunctionCallingLLM):  # type: ignore[misc]  # LlamaIndex is not read by the type checker
    """An LLM; its fields are those of ``ChatFields``, and two more.

    Every call takes ``response_format``, in any form that ``hg.generate`` takes, and other arguments of
    ``hg.generate``. In responses, ``raw`` has the ``GuidedResult`` ("result"), "finish_reason" and "usage"; in a stream
    it has the ``Partial`` ("partial"). Without a chat template, only texts can be completed.

    Args:
        max_new_tokens: of each answer.
        context_window: how many tokens a prompt and its answer may have; None is what the model's config says.
    """

    max_new_tokens: int = DEFAULT_MAX_NEW_TOKENS
    context_window: int | None = None

    @classmethod
    def class_name(cls) -> str:
        """The name of this kind of LLM."""
        return "hf_guided_llm"

    @property
    def metadata(self) -> LLMMetadata:
        """Properties of the model that LlamaIndex asks for."""
        is_chat_model = has_template(self.tokenizer, self.chat_template_kwargs)
        window = self.context_window or getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return LLMMetadata(
            **({} if window is None else {"context_window": window}),
            num_output=self.max_new_tokens,
            is_chat_model=is_chat_model,
            is_function_calling_model=is_chat_model,
            model_name=self._model_name,
        )

    def _call(self, prompt: Any, kwargs: dict[str, Any]) -> _Call:
        return _Call(self, self.max_new_tokens, prompt, kwargs)

    # -- chats

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """The answer to a chat.

        Args:
            messages: of the chat.
            **kwargs: of this call: ``response_format``, ``stop`` (texts that end a free answer) and arguments of
                ``hg.generate``.

        Raises:
            HFGuidedError: see ``hg.generate``.
        """
        call = self._call(as_chat(messages), kwargs)
        return call.chat_response(call.result())

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponse:
        """See ``chat``."""
        call = self._call(as_chat(messages), kwargs)
        return call.chat_response(await call.aresult())

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> Iterator[ChatResponse]:
        """The answer to a chat, while it is generated; arguments and errors as for ``chat``."""
        call = self._call(as_chat(messages), kwargs)
        return (call.chat_response(partial) for partial in call.partials())

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> AsyncIterator[ChatResponse]:
        """See ``stream_chat``."""
        call = self._call(as_chat(messages), kwargs)
        return (call.chat_response(partial) async for partial in call.apartials())

    # -- texts

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """The answer to a text.

        Args:
            prompt: the text.
            formatted: whether the text is the whole prompt. Otherwise it is sent as a user's message, if the tokenizer
                has a chat template.
            **kwargs: as for ``chat``.

        Raises:
            HFGuidedError: see ``hg.generate``.
        """
        call = self._call(self._prompt(prompt, formatted), kwargs)
        return call.completion_response(call.result())

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        """See ``complete``."""
        call = self._call(self._prompt(prompt, formatted), kwargs)
        return call.completion_response(await call.aresult())

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Iterator[CompletionResponse]:
        """The answer to a text, while it is generated; arguments and errors as for ``complete``."""
        call = self._call(self._prompt(prompt, formatted), kwargs)
        return (call.completion_response(partial) for partial in call.partials())

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: Any
    ) -> AsyncIterator[CompletionResponse]:
        """See ``stream_complete``."""
        call = self._call(self._prompt(prompt, formatted), kwargs)
        return (call.completion_response(partial) async for partial in call.apartials())

    def _prompt(self, text: str, formatted: bool) -> Any:
        if formatted or not self.metadata.is_chat_model:
            return text
        return [{"role": "user", "content": text}]

    # -- structured answers: as_structured_llm calls these methods

    @_span
    def structured_predict(
        self, output_cls: type[Any], prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """An instance of a Pydantic class; the answer is in its format, whatever the model.

        Args:
            output_cls: the class.
            prompt: a template of LlamaIndex.
            llm_kwargs: of the call of the model, as for ``chat``.
            **prompt_args: the variables of the template.

        Raises:
            NoValue: the answer did not finish, or a validator of the class refused it.
            HFGuidedError: see ``hg.generate``.
        """
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            return super().structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        call = self.chat if self.metadata.is_chat_model else self.complete
        return _value_of(call(**self._structured(output_cls, prompt, llm_kwargs, prompt_args)))

    @_span
    async def astructured_predict(
        self, output_cls: type[Any], prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Any:
        """See ``structured_predict``."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            return await super().astructured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
        call = self.achat if self.metadata.is_chat_model else self.acomplete
        return _value_of(await call(**self._structured(output_cls, prompt, llm_kwargs, prompt_args)))

    @_span
    def stream_structured_predict(
        self, output_cls: type[Any], prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> Iterator[Any]:
        """The answer while it is generated; arguments and errors as for ``structured_predict``.

        Yields:
            LlamaIndex's ``FlexibleModel`` with the fields that are complete, the others None; then the instance.
        """
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            yield from super().stream_structured_predict(output_cls, prompt, llm_kwargs, **prompt_args)
            return
        call = self.stream_chat if self.metadata.is_chat_model else self.stream_complete
        growing = _GrowingValue(output_cls)
        for response in call(**self._structured(output_cls, prompt, llm_kwargs, prompt_args)):
            yield from growing.values(response)

    @_span
    async def astream_structured_predict(
        self, output_cls: type[Any], prompt: Any, llm_kwargs: dict[str, Any] | None = None, **prompt_args: Any
    ) -> AsyncIterator[Any]:
        """See ``stream_structured_predict``."""
        if self.pydantic_program_mode != PydanticProgramMode.DEFAULT:
            streamed: AsyncIterator[Any] = await super().astream_structured_predict(
                output_cls, prompt, llm_kwargs, **prompt_args
            )
            return streamed
        call = self.astream_chat if self.metadata.is_chat_model else self.astream_complete
        responses = await call(**self._structured(output_cls, prompt, llm_kwargs, prompt_args))
        growing = _GrowingValue(output_cls)
        return (value async for response in responses for value in growing.values(response))

    def _structured(
        self, output_cls: type[Any], prompt: Any, llm_kwargs: dict[str, Any] | None, prompt_args: dict[str, Any]
    ) -> dict[str, Any]:
        """The arguments of the call for a structured answer: a chat, or a text where there is no chat template."""
        kwargs = {**(llm_kwargs or {}), "response_format": output_cls}
        if not self.metadata.is_chat_model:
            return {"prompt": self._get_prompt(prompt, **prompt_args), "formatted": True, **kwargs}
        return {"messages": self._extend_messages(prompt.format_messages(llm=self, **prompt_args)), **kwargs}

    # -- tools: chat_with_tools and its siblings call these methods

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[Any],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        tool_choice: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """The arguments of ``chat``.

        Args:
            tools: LlamaIndex's tools.
            user_msg: the last message.
            chat_history: the messages before it.
            verbose: changes nothing.
            allow_parallel_tool_calls: whether there may be more than one call.
            tool_required: whether there must be a call.
            tool_choice: "auto", "any" or "required", "none", or the name of a tool; None leaves it to tool_required.
            **kwargs: other arguments of ``chat``.
        """
        messages = list(chat_history or [])
        if user_msg is not None:
            messages.append(ChatMessage(user_msg) if isinstance(user_msg, str) else user_msg)
        if tool_choice is None:
            tool_choice = "required" if tool_required else "auto"
        return {
            "messages": messages,
            "tools": [tool.metadata.to_openai_tool(skip_length_check=True) for tool in tools],
            "tool_choice": tool_choice,
            "parallel_tool_calls": allow_parallel_tool_calls,
            **kwargs,
        }

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: Any
    ) -> list[ToolSelection]:
        """The calls of an answer; their arguments are valid against the tools' schemas.

        Args:
            response: of ``chat_with_tools`` or one of its siblings.
            error_on_no_tool_call: whether an answer without a call is an error.
            **kwargs: change nothing.

        Raises:
            InvalidArgument: the answer has no call.
        """
        calls = [block for block in response.message.blocks if isinstance(block, ToolCallBlock)]
        if not calls and error_on_no_tool_call:
            raise InvalidArgument(
                "expected an answer with a call of a tool, got one without; call chat_with_tools(..., "
                "tool_required=True), or pass error_on_no_tool_call=False"
            )
        return [
            ToolSelection(tool_id=call.tool_call_id, tool_name=call.tool_name, tool_kwargs=call.tool_kwargs)
            for call in calls
        ]


class _Call(ChatCall):
    """A call of the model, and its responses."""

    _call_blocks: tuple[ToolCallBlock, ...] = ()

    def chat_response(self, answer: GuidedResult[Any] | Partial[Any, Any]) -> ChatResponse:
        """The answer, or the part of it that is there."""
        parts = self.parts(answer)
        self._call_blocks += tuple(
            ToolCallBlock(tool_call_id=call.id, tool_name=call.name, tool_kwargs=call.arguments)
            for call in parts.new_calls
        )
        blocks = [*([TextBlock(text=parts.text)] if parts.text or not parts.calls else []), *self._call_blocks]
        # LlamaIndex's own FunctionCallingProgram looks here whether there are calls.
        legacy = {"tool_calls": [_openai_call(block) for block in self._call_blocks]} if self._call_blocks else {}
        message = ChatMessage(role=MessageRole.ASSISTANT, blocks=blocks, additional_kwargs=legacy)
        return ChatResponse(message=message, **self._rest(answer, parts))

    def completion_response(self, answer: GuidedResult[Any] | Partial[Any, Any]) -> CompletionResponse:
        """The answer, or the part of it that is there."""
        parts = self.parts(answer)
        return CompletionResponse(text=parts.text, **self._rest(answer, parts))

    def _rest(self, answer: GuidedResult[Any] | Partial[Any, Any], parts: AnswerParts) -> dict[str, Any]:
        result = answer if isinstance(answer, GuidedResult) else answer.result
        usage: dict[str, int] = {}
        raw: dict[str, Any] = {"result": result}
        if result is not None:
            written = len(result.token_ids)
            usage = {"prompt_tokens": self.prompt_tokens, "completion_tokens": written}
            usage["total_tokens"] = sum(usage.values())
            raw |= {"finish_reason": result.finish_reason, "usage": usage}
            raw |= {"shortened": result.shortened, "thinking_cut": result.thinking_cut}
        if isinstance(answer, GuidedResult):
            return {"raw": raw, "additional_kwargs": dict(usage)}
        return {"raw": raw | {"partial": answer}, "additional_kwargs": dict(usage), "delta": parts.new_text}


class _GrowingValue:
    """The values of a stream's responses.

    Args:
        output_cls: the class of the last one.
    """

    def __init__(self, output_cls: type[Any]):
        self._flexible = create_flexible_model(output_cls)
        self._last: dict[str, Any] | None = None

    def values(self, response: ChatResponse | CompletionResponse) -> Iterator[Any]:
        """The value so far, if it has changed; at the end that of the answer."""
        if response.raw["result"] is not None:
            yield _value_of(response)
            return
        members = _members(response.raw["partial"].value)
        if members is not None and members != self._last:
            self._last = members
            yield self._flexible.model_validate(members)


def _members(value: Any) -> Any:
    """The members that are certain; ``model_dump`` would run serializers of the class on a part of its instance."""
    if isinstance(value, BaseModel):
        return {name: _members(getattr(value, name)) for name in value.model_fields_set}
    if isinstance(value, list):
        return [_members(item) for item in value]
    return {name: _members(item) for name, item in value.items()} if isinstance(value, dict) else value


def _value_of(response: ChatResponse | CompletionResponse) -> Any:
    """The value of an answer that has a format; raises NoValue."""
    return value_of(response.raw["result"])


def as_chat(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """LlamaIndex's messages as chat templates take them.

    Raises:
        PromptError: a message holds something else than text and calls of tools.
    """
    return [_message(index, message) for index, message in enumerate(messages)]


def _message(index: int, message: ChatMessage) -> dict[str, Any]:
    chat_message: dict[str, Any] = {"role": message.role.value, "content": message.content or ""}
    calls = []
    for block in message.blocks:
        if isinstance(block, ToolCallBlock):
            try:
                calls.append(_openai_call(block))
            except ValueError as error:
                raise PromptError(
                    f"message {index}: expected the arguments of the call of {block.tool_name!r} as a dict or as JSON, "
                    f"got {shown(block.tool_kwargs)}: {error}"
                ) from error
        elif not isinstance(block, TextBlock):
            raise PromptError(
                f"message {index}: expected text or calls of tools, got {type(block).__name__}, which the model would "
                "not see; call hg.generate with the model's processor"
            )
    if calls:
        chat_message["tool_calls"] = calls
    for name in ("tool_call_id", "name"):
        if name in message.additional_kwargs:
            chat_message[name] = message.additional_kwargs[name]
    return chat_message


def _openai_call(block: ToolCallBlock) -> dict[str, Any]:
    given = block.tool_kwargs
    function = {"name": block.tool_name, "arguments": json.loads(given) if isinstance(given, str) else given}
    return {"type": "function", "id": block.tool_call_id, "function": function}
