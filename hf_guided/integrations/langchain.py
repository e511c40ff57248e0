"""A LangChain chat model over a local transformers model, whose answers are always in the format that was asked for.

chat = ChatHFGuided(model=model, tokenizer=tokenizer)
person = chat.with_structured_output(Person).invoke("Who is the gardener?")
answer = chat.bind_tools([get_weather]).invoke("Is it going to rain?")
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.base import LangSmithParams
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.output_parsers import BaseCumulativeTransformOutputParser
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult, Generation
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json import parse_partial_json
from pydantic import Field

from ..constraints.coerce import coerce
from ..constraints.values import JsonObject, JsonSchema
from ..errors import InvalidArgument, cause
from ..generation.partial import Partial
from ..options import DEFAULT_MAX_NEW_TOKENS
from ..session.result import GuidedResult
from .chat_call import ChatCall, ChatFields


class ChatHFGuided(ChatFields, BaseChatModel):  # type: ignore[misc]  # LangChain is not read by the type checker
    """A chat model; its fields are those of ``ChatFields``, and ``max_new_tokens`` of each answer."""

    max_tokens: int = Field(default=DEFAULT_MAX_NEW_TOKENS, alias="max_new_tokens")

    @property
    def _llm_type(self) -> str:
        return "hf-guided"

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"model_name": self._model_name, "max_tokens": self.max_tokens, "temperature": self.temperature}

    def _call(self, messages: list[BaseMessage], stop: list[str] | None, kwargs: dict[str, Any]) -> _Call:
        return _Call(self, self.max_tokens, as_chat(messages), {**kwargs, "stop": stop})

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        given = super()._get_ls_params(stop=stop, **kwargs)
        given.update(ls_provider="hf_guided", ls_model_name=self._model_name, ls_max_tokens=self.max_tokens)
        return given

    # -- formats and tools

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        parallel_tool_calls: bool = True,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model with tools that it may call; the arguments of every call are valid.

        Args:
            tools: functions, Pydantic classes, LangChain's tools, or OpenAI's dicts.
            tool_choice: "auto" or None or False, "any" or "required" or True (at least one call), "none", or the name
                of a tool.
            parallel_tool_calls: whether there may be more than one call.
            **kwargs: of every call of the model.
        """
        formatted = [convert_to_openai_tool(tool) for tool in tools]
        return self.bind(tools=formatted, tool_choice=tool_choice, parallel_tool_calls=parallel_tool_calls, **kwargs)

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """The model with answers in a format; what it returns is the value.

        Args:
            schema: in any form that ``hg.generate`` takes, or OpenAI's dict of a function or a tool.
            include_raw: return a dict with the message ("raw"), the value ("parsed"; None if there is none) and the
                error ("parsing_error").
            **kwargs: ``method`` and ``strict`` of other models are read, and change nothing: the schema is enforced.
        """
        if unknown := set(kwargs) - {"method", "strict"}:
            raise InvalidArgument(f"with_structured_output: no such argument: {', '.join(sorted(unknown))}")
        if isinstance(schema, dict) and schema.get("type") == "function" and isinstance(schema.get("function"), dict):
            schema = schema["function"]
        if isinstance(schema, dict) and "parameters" in schema and "name" in schema:
            schema = schema["parameters"]
        constraint = coerce(schema)
        if constraint is None:
            raise InvalidArgument("with_structured_output: expected a format, got None")
        answers = self.bind(
            response_format=constraint,
            ls_structured_output_format={"kwargs": {"method": "json_schema"}, "schema": schema},
        )
        parser = _Values(constraint=constraint)
        if not include_raw:
            return answers | parser
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parser, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap(raw=answers) | parsed.with_fallbacks([failed], exception_key="parsing_error")

    # -- calls

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(messages, stop, kwargs)
        return call.chat_result(call.result())

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        call = self._call(messages, stop, kwargs)
        return call.chat_result(await call.aresult())

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        call = self._call(messages, stop, kwargs)
        for partial in call.partials():
            for chunk in call.chunks(partial):
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        call = self._call(messages, stop, kwargs)
        async for partial in call.apartials():
            for chunk in call.chunks(partial):
                if run_manager is not None:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk


class _Call(ChatCall):
    """A call of the model, and its results."""

    def chat_result(self, result: GuidedResult[Any]) -> ChatResult:
        """The whole answer."""
        parts = self.parts(result)
        message = AIMessage(
            content=parts.text,
            tool_calls=[tool_call(name=call.name, args=call.arguments, id=call.id) for call in parts.calls],
            usage_metadata=self._usage(result),
            response_metadata=self._metadata(result),
        )
        return ChatResult(generations=[ChatGeneration(message=message)])

    def chunks(self, partial: Partial[Any, Any]) -> Iterator[ChatGenerationChunk]:
        """The new chunks of an answer that is being generated."""
        parts = self.parts(partial)
        if parts.new_text or parts.new_calls:
            first = len(parts.calls) - len(parts.new_calls)
            chunks = [
                tool_call_chunk(name=call.name, args=json.dumps(call.arguments), id=call.id, index=index)
                for index, call in enumerate(parts.new_calls, first)
            ]
            yield ChatGenerationChunk(message=AIMessageChunk(content=parts.new_text, tool_call_chunks=chunks))
        if partial.result is not None:
            last = AIMessageChunk(
                content="",
                usage_metadata=self._usage(partial.result),
                response_metadata=self._metadata(partial.result),
                chunk_position="last",
            )
            yield ChatGenerationChunk(message=last)

    def _usage(self, result: GuidedResult[Any]) -> UsageMetadata:
        prompt, answer = self.prompt_tokens, len(result.token_ids)
        return UsageMetadata(input_tokens=prompt, output_tokens=answer, total_tokens=prompt + answer)

    def _metadata(self, result: GuidedResult[Any]) -> dict[str, Any]:
        known: dict[str, Any] = {
            "finish_reason": result.finish_reason,
            "model_name": self.model_name,
            "model_provider": "hf_guided",
        }
        known |= {"shortened": result.shortened, "thinking_cut": result.thinking_cut}
        return known if result.error is None else known | {"error": result.error}


class _Values(BaseCumulativeTransformOutputParser[Any]):  # type: ignore[misc]
    """The value of an answer; while a schema's answer is streamed, what is there of it.

    Args:
        constraint: of the answer.
    """

    constraint: Any

    def parse(self, text: str) -> Any:
        return self.constraint.parse(text)

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        [answer] = result
        metadata = answer.message.response_metadata if isinstance(answer, ChatGeneration) else {}
        reason = metadata.get("finish_reason", None if partial else "stop")
        if reason is None:  # the answer is being generated
            return self._begun(answer.text)
        if reason != "stop":
            why = "length; raise max_tokens" if reason == "length" else metadata.get("error", reason)
            raise OutputParserException(f"the answer did not finish: {why}", llm_output=answer.text)
        try:
            return self.parse(answer.text)
        except ValueError as error:
            raise OutputParserException(cause(error), llm_output=answer.text) from error

    def _begun(self, text: str) -> Any:
        is_schema = isinstance(self.constraint, JsonSchema) and self.constraint.python_type is None
        if not (is_schema or isinstance(self.constraint, JsonObject)):  # the value of a Python type has no part
            return None
        try:
            return parse_partial_json(text)
        except ValueError:
            return None


def as_chat(messages: Sequence[BaseMessage]) -> list[dict[str, Any]]:
    """LangChain's messages as chat templates take them: the arguments of calls are objects."""
    chat: list[dict[str, Any]] = convert_to_openai_messages(messages)
    for message in chat:
        for call in message.get("tool_calls", ()):
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return chat
