"""The body of /v1/responses, whose input becomes the messages of a chat."""

# ruff: noqa: D101 - objects of requests have the names of the API, and need no other words
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Discriminator, Field, Tag

from ..job import Call
from .chat import (
    AnyPart,
    Arguments,
    AssistantContent,
    ChatFields,
    Effort,
    Name,
    NestedTool,
    TextPart,
    Texts,
    UserContent,
    arguments_for_template,
    content_for_template,
    flat_as_nested,
    for_template,
    read_chat_call,
)
from .fields import Count, HistoryPart, List, Part, as_list, problem, read
from .generation import Defaults, fields_with


class InputMessage(HistoryPart):
    """A message that is not the model's."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer"]
    content: UserContent


class OutputMessage(HistoryPart):
    type: Literal["message"] = "message"
    role: Literal["assistant"]
    content: AssistantContent


class FunctionCall(HistoryPart):
    other_fields = fields_with((), "caller namespace async")
    type: Literal["function_call"]
    call_id: str
    name: Name
    arguments: Arguments


class FunctionCallOutput(HistoryPart):
    other_fields = fields_with((), "caller namespace")
    type: Literal["function_call_output"]
    call_id: str
    name: str | None = None
    output: Texts


class Thought(HistoryPart):
    type: Literal["reasoning_text", "summary_text"]
    text: str


class ReasoningItem(HistoryPart):
    other_fields = {"encrypted_content": ()}
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
    return as_list(value, "a text, or a list of items", lambda text: {"role": "user", "content": text})


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


def _render_items(items: Sequence[Item], instructions: str | None, defaults: Defaults) -> tuple[dict[str, Any], ...]:
    """The items as the messages of a chat; instructions come first, as a system message.

    Raises:
        RequestRefused: an image, or a call, that cannot be shown.
    """
    messages: list[dict[str, Any]] = []

    def content(parts: Sequence[AnyPart], path: str) -> Any:
        return content_for_template(parts, path, defaults)

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
            arguments = arguments_for_template(item.arguments, f"input.{i}.arguments", defaults)
            call = {"name": item.name, "arguments": arguments}
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


_MOST_METADATA = 16  # OpenAI's limit
_LOGPROBS = "message.output_text.logprobs"
# What an answer repeats; the rest of ``Response`` describes what was done.
_REPEATED = (
    "instructions max_output_tokens metadata parallel_tool_calls prompt_cache_key reasoning safety_identifier "
    "temperature text tool_choice top_logprobs top_p truncation user"
).split()


def _few_texts(value: Any) -> Any:
    if (
        not isinstance(value, dict)
        or len(value) > _MOST_METADATA
        or not all(isinstance(v, str) for v in value.values())
    ):
        raise problem(f"expected an object of {_MOST_METADATA} texts at most, got {{value}}", value)
    return value


class Reasoning(Part):
    other_fields = {
        "context": ("auto",),
        "generate_summary": ("auto",),
        "mode": ("standard",),
        "summary": ("auto",),  # answers have the thinking itself
    }
    effort: Effort | None = None


class TextConfig(Part):
    other_fields = {"verbosity": ("medium",)}
    format: dict[str, Any] | None = None


class ResponseStreamOptions(Part):
    """Fields that change no stream."""

    other_fields = {"include_obfuscation": (False,), "include_usage": (True,)}


class ResponseBody(ChatFields):
    other_fields = {
        **fields_with(
            (),
            "access_programs background_options conversation image max_tool_calls mm_processor_kwargs "
            "previous_input_messages previous_response previous_response_id prompt",
        ),
        **fields_with((False,), "background enable_response_messages"),
        "context_management": ([],),
        "truncation": ("disabled",),
    }
    input: Items
    tools: List[Annotated[NestedTool, BeforeValidator(flat_as_nested)]] = []
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: TextConfig = TextConfig()
    reasoning: Reasoning = Reasoning()
    include: List[Literal["message.output_text.logprobs"]] = []
    stream_options: ResponseStreamOptions | None = None
    # Answers repeat them, so they have to be what an answer may hold.
    metadata: Annotated[dict[str, str], BeforeValidator(_few_texts)] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


def read_response(body: object, defaults: Defaults) -> Call:
    """Read a request for a response, any JSON.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    response = read(ResponseBody, body)
    assert isinstance(body, dict)
    messages = _render_items(response.input, response.instructions, defaults)
    call = read_chat_call(
        "response",
        response,
        body,
        defaults,
        messages,
        length_fields=("max_output_tokens",),
        effort=("reasoning.effort", response.reasoning.effort),
        logprobs=bool(response.top_logprobs) or _LOGPROBS in response.include,
    )
    repeated = {name: body[name] for name in _REPEATED if body.get(name) is not None}
    # Answers have tools in the flat form.
    functions = [for_template(tool)["function"] for tool in response.tools]
    repeated["tools"] = [{"type": "function", "parameters": None, "strict": None, **function} for function in functions]
    return replace(call, body=repeated)
