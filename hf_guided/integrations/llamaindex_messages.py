"""Messages and responses of LlamaIndex, from and to those of hf-guided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    CompletionResponse,
    MessageRole,
    TextBlock,
    ToolCallBlock,
)
from llama_index.core.program.utils import create_flexible_model
from pydantic import BaseModel

from ..errors import PromptError, shown
from ..generation.api import value_of
from ..generation.partial import Partial
from ..session.result import GuidedResult
from .chat_call import AnswerParts, ChatCall


class LlamaIndexCall(ChatCall):
    """One call of the model, and its responses."""

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
        if isinstance(answer, GuidedResult):
            return {"raw": raw, "additional_kwargs": dict(usage)}
        return {"raw": raw | {"partial": answer}, "additional_kwargs": dict(usage), "delta": parts.new_text}


class GrowingValue:
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
            yield value_of_response(response)
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


def value_of_response(response: ChatResponse | CompletionResponse) -> Any:
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
