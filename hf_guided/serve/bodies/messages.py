"""The messages of a chat, and what chat templates read of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from ...constraints.json_text import loads
from ...errors import InvalidConstraint
from .content import AssistantContent, Texts, UserContent, for_template
from .parts import ANY, List, Part, problem


def _as_object(value: Any) -> Any:
    """The arguments of a call: templates go through them as an object, the API has them as JSON text."""
    if isinstance(value, str):
        try:
            value = loads(value, "it") if value.strip() else {}
        except InvalidConstraint:
            raise problem("expected the JSON text of an object, got {value}", value=value) from None
    if not isinstance(value, dict):
        raise problem("expected the JSON text of an object, got {value}", value=value)
    return value


Arguments = Annotated[dict[str, Any], BeforeValidator(_as_object)]


class CalledFunction(Part):
    """What was called."""

    name: str
    arguments: Arguments = {}


class MessageToolCall(Part):
    """A call that the assistant has made."""

    other_fields = {"index": ANY}  # streamed calls have it
    type: Literal["function"] = "function"
    id: str | None = None
    function: CalledFunction


class SystemMessage(Part):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Texts
    name: str | None = None


class UserMessage(Part):
    """What the user says."""

    role: Literal["user"]
    content: UserContent
    name: str | None = None


class AssistantMessage(Part):
    """What the model has said."""

    # Clients send back whole answers.
    other_fields = {
        "annotations": ANY,
        "audio": (),
        "function_call": (),
        "refusal": (),
        "parsed": ANY,
    }
    role: Literal["assistant"]
    content: AssistantContent = []
    name: str | None = None
    tool_calls: List[MessageToolCall] = []
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(Part):
    """What a tool has answered."""

    role: Literal["tool"]
    content: Texts
    tool_call_id: str
    name: str | None = None


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[List[Annotated[Message, Field(discriminator="role")]], Field(min_length=1)]


def render_messages(
    messages: Sequence[Message], takes_images: bool, path: str = "messages"
) -> tuple[dict[str, Any], ...]:
    """The messages as transformers' templates read them.

    Args:
        messages: in order.
        takes_images: whether content is a list of parts, with images.
        path: of the messages in the body.

    Raises:
        RequestRefused: an image that cannot be shown.
    """
    return tuple(_rendered(message, f"{path}.{i}.content", takes_images) for i, message in enumerate(messages))


def _rendered(message: Message, path: str, takes_images: bool) -> dict[str, Any]:
    # Few templates know "developer", the newer name of the same role.
    role = "system" if message.role == "developer" else message.role
    rendered: dict[str, Any] = {"role": role, "content": for_template(message.content, path, takes_images)}
    if message.name is not None:
        rendered["name"] = message.name
    if isinstance(message, ToolMessage):
        rendered["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        thought = message.reasoning_content or message.reasoning
        if thought:
            rendered["reasoning_content"] = thought
        if message.tool_calls:
            rendered["tool_calls"] = [_rendered_call(call) for call in message.tool_calls]
    return rendered


def _rendered_call(call: MessageToolCall) -> dict[str, Any]:
    function = {"name": call.function.name, "arguments": call.function.arguments}
    return {**({} if call.id is None else {"id": call.id}), "type": "function", "function": function}
