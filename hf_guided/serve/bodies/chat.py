"""The body of /v1/chat/completions: messages and their content, tools, thinking; what chat templates read of them."""

# ruff: noqa: D101 - objects of requests have the names of the API, and need no other words
from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase
from transformers.utils.chat_template_utils import render_jinja_template

from ...constraints.json_text import loads
from ...constraints.suggestions import did_you_mean
from ...constraints.tool_calls import ToolCalls
from ...errors import InvalidConstraint, shown
from ..error_responses import expected, refused
from ..job import Call, Chat, Kind
from .fields import ANY, Count, HistoryPart, List, Part, as_list, is_text, problem, read
from .generation import (
    CompletionFields,
    Defaults,
    GenerationFields,
    LogprobCount,
    check_most,
    fields_with,
    read_call,
)

_IMAGE = "data:image/"


class TextPart(HistoryPart):
    """A text; "input_text" and "output_text" in /v1/responses."""

    type: Literal["text", "input_text", "output_text"]
    text: str


class ImageUrl(HistoryPart):
    other_fields = {"detail": ("auto",)}
    url: str


class ImagePart(HistoryPart):
    type: Literal["image_url"]
    image_url: ImageUrl


class InputImage(HistoryPart):
    other_fields = {"detail": ("auto",)}
    type: Literal["input_image"]
    image_url: str


class RefusalPart(HistoryPart):
    """Words of an assistant instead of an answer."""

    type: Literal["refusal"]
    refusal: str


def _as_parts(value: Any) -> Any:
    return as_list(value, "a text, or a list of parts", lambda text: {"type": "text", "text": text})


AnyPart: TypeAlias = TextPart | ImagePart | InputImage | RefusalPart
Texts = Annotated[List[TextPart], BeforeValidator(_as_parts)]
AssistantContent = Annotated[
    List[Annotated[TextPart | RefusalPart, Field(discriminator="type")]], BeforeValidator(_as_parts)
]
UserContent = Annotated[
    List[Annotated[TextPart | ImagePart | InputImage, Field(discriminator="type")]], BeforeValidator(_as_parts)
]


def content_for_template(parts: Sequence[AnyPart], path: str, defaults: Defaults) -> str | list[dict[str, str]]:
    """The content at a path of the body as templates read it: a text, or a list where the model takes images.

    Raises:
        RequestRefused: an image that the model cannot take, or that would have to be fetched.
    """
    shown: list[dict[str, str]] = []
    for i, part in enumerate(parts):
        if isinstance(part, (TextPart, RefusalPart)):
            shown.append({"type": "text", "text": part.text if isinstance(part, TextPart) else part.refusal})
        else:
            url = part.image_url.url if isinstance(part, ImagePart) else part.image_url
            if not defaults.takes_images:
                raise refused(f"{path}.{i}", "this model takes no images", "unsupported_content")
            if not url.startswith(_IMAGE):  # a file of this machine, or a page of its network
                raise refused(
                    f"{path}.{i}.image_url",
                    "expected the image itself, as data:image/png;base64,...; this server fetches none",
                    "unsupported_content",
                )
            shown.append({"type": "image", "url": url})
    return shown if defaults.takes_images else "\n".join(part["text"] for part in shown)


def _as_object(value: Any) -> Any:
    """The arguments of a call: templates go through them as an object, the API has them as JSON text.

    A model may have written another text, which stays one.
    """
    if isinstance(value, str):
        try:
            read = loads(value, "it") if value.strip() else {}
        except InvalidConstraint:
            return value
        # Half of a surrogate pair, as "\ud83d" without the other, is no text that a template could write.
        return read if isinstance(read, dict) and is_text(json.dumps(read, ensure_ascii=False)) else value
    if not isinstance(value, dict):
        raise problem("expected the JSON text of an object, got {value}", value)
    return value


Arguments = Annotated[dict[str, Any] | str, BeforeValidator(_as_object)]


def arguments_for_template(arguments: dict[str, Any] | str, path: str, defaults: Defaults) -> dict[str, Any] | str:
    """The arguments at a path of the body as templates read them.

    Raises:
        RequestRefused: a text that is not the JSON of an object, where the template would write another call than that;
            or that some readers of JSON take for an object, as one with a name twice.
    """
    if isinstance(arguments, str) and not (defaults.takes_any_arguments and _is_no_object(arguments)):
        raise expected(path, "the JSON text of an object, as the model's chat template needs it", arguments)
    return arguments


def _is_no_object(text: str) -> bool:
    try:
        return not isinstance(json.loads(text), dict)
    except ValueError:
        return True
    except RecursionError:
        return False


Name = Annotated[str, Field(min_length=1)]


class CalledFunction(HistoryPart):
    other_fields = fields_with((), "args input kwargs parameters")  # names that other notations have for arguments
    name: Name
    arguments: Arguments = {}


class MessageToolCall(HistoryPart):
    type: Literal["function"] = "function"
    id: str | None = None
    function: CalledFunction


class SystemMessage(HistoryPart):
    role: Literal["system", "developer"]
    content: Texts
    name: str | None = None


class UserMessage(HistoryPart):
    role: Literal["user"]
    content: UserContent
    name: str | None = None


class AssistantMessage(HistoryPart):
    other_fields = {"refusal": ()}
    role: Literal["assistant"]
    content: AssistantContent = []
    name: str | None = None
    tool_calls: List[MessageToolCall] = []
    reasoning_content: str | None = None
    reasoning: str | None = None


class ToolMessage(HistoryPart):
    role: Literal["tool"]
    content: Texts
    tool_call_id: str
    name: str | None = None


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage
Messages = Annotated[List[Annotated[Message, Field(discriminator="role")]], Field(min_length=1)]


def render_messages(messages: Sequence[Message], defaults: Defaults) -> tuple[dict[str, Any], ...]:
    """The messages as transformers' templates read them; with images, content is a list of parts.

    Raises:
        RequestRefused: an image, or a call, that cannot be shown.
    """
    return tuple(_rendered(message, f"messages.{i}", defaults) for i, message in enumerate(messages))


def _rendered(message: Message, path: str, defaults: Defaults) -> dict[str, Any]:
    # Few templates know "developer", the newer name of the same role.
    role = "system" if message.role == "developer" else message.role
    content = content_for_template(message.content, f"{path}.content", defaults)
    rendered: dict[str, Any] = {"role": role, "content": content}
    if message.name is not None:
        rendered["name"] = message.name
    if isinstance(message, ToolMessage):
        rendered["tool_call_id"] = message.tool_call_id
    if isinstance(message, AssistantMessage):
        thought = message.reasoning_content or message.reasoning
        if thought:
            rendered["reasoning_content"] = thought
        if message.tool_calls:
            rendered["tool_calls"] = []
            for i, call in enumerate(message.tool_calls):
                place = f"{path}.tool_calls.{i}.function.arguments"
                arguments = arguments_for_template(call.function.arguments, place, defaults)
                function = {"name": call.function.name, "arguments": arguments}
                own_id = {} if call.id is None else {"id": call.id}
                rendered["tool_calls"].append({**own_id, "type": "function", "function": function})
    return rendered


class Function(Part):
    other_fields = {
        "defer_loading": (False,),
        "allowed_callers": (["direct"],),
        "async": (False,),
        "output_schema": (),
    }
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NestedTool(Part):
    """The form that chat templates read."""

    other_fields = {"defer_loading": (False,), "cache_control": ANY}
    type: Literal["function"]
    function: Function


def _nested(tool: Any) -> Any:
    """A flat tool, as /v1/responses has it, in the nested form; everything else as it is."""
    return flat_as_nested(tool) if isinstance(tool, dict) and tool.keys() - {"type"} else tool


def flat_as_nested(tool: Any) -> Any:
    """A tool in the nested form, where one without any field but its type is a flat one too."""
    if not isinstance(tool, dict) or "function" in tool:
        return tool
    function = {name: value for name, value in tool.items() if name != "type"}
    return {"type": tool.get("type"), "function": function}


def for_template(tool: NestedTool) -> dict[str, Any]:
    """A tool in the nested form, with what is given."""
    return {"type": "function", "function": {name: value for name, value in tool.function if value is not None}}


Tool = Annotated[NestedTool, BeforeValidator(_nested)]


Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
_NO_EFFORT = ("none", "minimal")
SWITCHES = ("enable_thinking", "thinking")  # names that templates have for it
_PATH = "chat_template_kwargs"


@cache
def _reserved_names() -> frozenset[str]:
    """Names that would not reach the template as a variable, or would replace what the server gives it."""
    methods = (PreTrainedTokenizerBase.apply_chat_template, ProcessorMixin.apply_chat_template, render_jinja_template)
    parameters = {name for method in methods for name in inspect.signature(method).parameters}
    of_every_template = {"messages", "raise_exception", "strftime_now"}
    return frozenset({*parameters, *of_every_template, *PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES} - {"kwargs"})


def read_thinking(
    given: Mapping[str, Any], effort: tuple[str, str | None], defaults: Defaults
) -> tuple[dict[str, Any], bool | None]:
    """The template's variables, and whether the model thinks; None if the request does not say it.

    Args:
        given: the request's ``chat_template_kwargs``.
        effort: the field of its effort, and the value.
        defaults: the variables that the template reads.

    Raises:
        RequestRefused: an argument of ``apply_chat_template``, a variable that the template does not read, or two
            fields that contradict each other.
    """
    known = defaults.template_variables
    for name in given:
        if name in _reserved_names():
            raise refused(f"{_PATH}.{name}", "it is set by the server; leave it out", "unsupported_field")
        if known is not None and name not in known and name not in SWITCHES:
            near = did_you_mean(name, known) if len(name) <= 64 else ""
            raise refused(_PATH, f"the model's chat template does not read {shown(name)}{near}", "unknown_field")
    switches = {name: given[name] for name in SWITCHES if name in given}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise refused(f"{_PATH}.{name}", f"expected true or false, got {shown(value)}")
    said = {f"{_PATH}.{name}": value for name, value in switches.items()}
    variables = dict(given)
    effort_path, level = effort
    if level is not None:
        said[effort_path] = level not in _NO_EFFORT
        variables.setdefault("reasoning_effort", level)
    if len(set(said.values())) > 1:
        raise refused(next(iter(said)), f"expected {' and '.join(said)} to agree on whether the model thinks")
    think = next(iter(said.values()), None)
    if think is not None:
        variables = {**dict.fromkeys(SWITCHES, think), **variables}
    return {name: value for name, value in variables.items() if name in given or name in (known or ())}, think


class ChatFields(GenerationFields):
    """The fields that a chat and a response share."""

    tools: List[Tool] = []
    tool_choice: Any = None
    parallel_tool_calls: bool = True
    top_logprobs: LogprobCount | None = None
    chat_template_kwargs: dict[str, Any] = {}


def read_chat_call(
    kind: Kind,
    fields: ChatFields,
    body: Mapping[str, Any],
    defaults: Defaults,
    messages: tuple[Mapping[str, Any], ...],
    *,
    length_fields: tuple[str, ...],
    effort: tuple[str, str | None],
    logprobs: bool,
) -> Call:
    """Read what chats and responses share; ``effort`` is the field of the thinking effort, and its value."""
    body = {**body, "tools": [*map(for_template, fields.tools)]}
    call = read_call(kind, fields, body, defaults, length_fields)
    variables, think = read_thinking(fields.chat_template_kwargs, effort, defaults)
    most = fields.top_logprobs or 0
    check_most("top_logprobs", most, defaults.limits.max_logprobs)
    prompt = Chat(messages, shown_tools(call.constraint, fields.tool_choice), variables)
    return replace(call, prompts=(prompt,), logprobs=most if logprobs else None, think=think)


class ChatBody(ChatFields, CompletionFields):
    other_fields = {
        **fields_with(
            (),
            # OpenAI's
            "audio function_call prediction web_search_options "
            # vLLM's and SGLang's
            "chat_template input_ids max_dynamic_patch media_io_kwargs min_dynamic_patch mm_processor_kwargs reasoning "
            "task",
        ),
        **fields_with((False,), "add_special_tokens continue_final_message echo return_prompt_text use_audio_in_video"),
        **fields_with((True,), "add_generation_prompt include_reasoning separate_reasoning stream_reasoning"),
        **fields_with(([],), "documents functions"),
        "chat_template_content_format": ("auto",),
        "modalities": (["text"],),
        "verbosity": ("medium",),
    }
    messages: Messages
    max_completion_tokens: Count | None = None
    logprobs: bool = False
    reasoning_effort: Effort | None = None


def read_chat(body: object, defaults: Defaults) -> Call:
    """Read a chat, any JSON.

    Raises:
        RequestRefused: 400 with the field's path; 404 for another model.
    """
    chat = read(ChatBody, body)
    assert isinstance(body, dict)
    if chat.top_logprobs and not chat.logprobs:
        raise refused("top_logprobs", "expected it only with logprobs, which is false")
    return read_chat_call(
        "chat",
        chat,
        body,
        defaults,
        render_messages(chat.messages, defaults),
        length_fields=("max_completion_tokens", "max_tokens"),
        effort=("reasoning_effort", chat.reasoning_effort),
        logprobs=chat.logprobs,
    )


def shown_tools(constraint: Any, tool_choice: Any = None) -> ToolCalls | None:
    """The calls whose tools the prompt shows: none that must not be called."""
    return constraint if isinstance(constraint, ToolCalls) and tool_choice != "none" else None
