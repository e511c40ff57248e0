"""The input of /v1/responses, as the messages of a chat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from .content import AnyPart, AssistantContent, TextPart, Texts, UserContent, for_template
from .messages import Arguments
from .parts import ANY, List, Part, problem

_OF_ANSWERS = {"id": ANY, "status": ANY, "phase": ANY}  # clients send back what an answer held


class InputMessage(Part):
    """A message that is not the model's."""

    other_fields = _OF_ANSWERS
    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer"]
    content: UserContent


class OutputMessage(Part):
    """What the model has said."""

    other_fields = _OF_ANSWERS
    type: Literal["message"] = "message"
    role: Literal["assistant"]
    content: AssistantContent


class FunctionCall(Part):
    """A call that the model has made."""

    other_fields = {**_OF_ANSWERS, "caller": (), "namespace": (), "async": (False,)}
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: Arguments


class FunctionCallOutput(Part):
    """What a function has answered."""

    other_fields = {**_OF_ANSWERS, "caller": (), "namespace": ()}
    type: Literal["function_call_output"]
    call_id: str
    name: str | None = None
    output: Texts


class Thought(Part):
    """A text of thinking."""

    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(Part):
    """What the model has thought."""

    other_fields = {**_OF_ANSWERS, "encrypted_content": ()}
    type: Literal["reasoning"]
    content: List[Thought] = []
    summary: List[Thought] = []


def _kind(item: Any) -> str | None:
    if not isinstance(item, dict):
        return None
    kind = item.get("type") or ("message" if "role" in item else None)
    if kind == "message" and item.get("role") == "assistant":
        return "assistant message"
    return kind if isinstance(kind, str) else None


def _as_items(value: Any) -> Any:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise problem("expected a text, or a list of items, got {value}", value=value)
    return value


Item: TypeAlias = InputMessage | OutputMessage | FunctionCall | FunctionCallOutput | ReasoningItem
Items = Annotated[
    List[
        Annotated[
            Annotated[InputMessage, Tag("message")]
            | Annotated[OutputMessage, Tag("assistant message")]
            | Annotated[FunctionCall, Tag("function_call")]
            | Annotated[FunctionCallOutput, Tag("function_call_output")]
            | Annotated[ReasoningItem, Tag("reasoning")],
            Discriminator(_kind),
        ]
    ],
    Field(min_length=1),
    BeforeValidator(_as_items),
]


def render_items(items: Sequence[Item], instructions: str | None, takes_images: bool) -> tuple[dict[str, Any], ...]:
    """The items as transformers' templates read them.

    Args:
        items: in order.
        instructions: come first, as a system message.
        takes_images: whether content is a list of parts, with images.

    Raises:
        RequestRefused: an image that cannot be shown.
    """
    messages: list[dict[str, Any]] = []

    def content(parts: Sequence[AnyPart], path: str) -> Any:
        return for_template(parts, path, takes_images)

    thought = ""
    if instructions is not None:
        messages.append({"role": "system", "content": content([TextPart(type="text", text=instructions)], "")})
    for i, item in enumerate(items):
        if isinstance(item, ReasoningItem):
            thought += "".join(part.text for part in item.content or item.summary)
            continue
        if isinstance(item, FunctionCallOutput):
            answer = content(item.output, f"input.{i}.output")
            messages.append({"role": "tool", "tool_call_id": item.call_id, "content": answer})
            continue
        if isinstance(item, InputMessage):
            _add_message(messages, item, content(item.content, f"input.{i}.content"))
            continue
        # The calls of one turn are one message, with the text before them.
        if isinstance(item, OutputMessage):
            messages.append({"role": "assistant", "content": content(item.content, f"input.{i}.content")})
        elif not messages or messages[-1]["role"] != "assistant":
            messages.append({"role": "assistant", "content": content([], "")})
        if thought:
            messages[-1]["reasoning_content"], thought = thought, ""
        if isinstance(item, FunctionCall):
            call = {"name": item.name, "arguments": item.arguments}
            calls = messages[-1].setdefault("tool_calls", [])
            calls.append({"type": "function", "id": item.call_id, "function": call})
    return tuple(messages)


def _add_message(messages: list[dict[str, Any]], item: InputMessage, content: Any) -> None:
    """Append a message; templates take one system message only, so instructions and the first one are joined."""
    role = "system" if item.role == "developer" else item.role
    if role == "system" and len(messages) == 1 and messages[0]["role"] == "system":
        first = messages[0]["content"]
        messages[0]["content"] = f"{first}\n\n{content}" if isinstance(content, str) else [*first, *content]
    else:
        messages.append({"role": role, "content": content})
