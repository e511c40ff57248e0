"""The messages of a chat: their parts, and earlier tool calls as a chat template takes them.

Templates differ in three ways that their source does not tell in a form that could be parsed, so small chats are
rendered to find out, once for each template:

- The arguments of a call are an object for some templates, JSON text for others. The wrong one raises, is written as
  JSON in JSON, or as Python's repr.
- Some show calls only in a message whose content is None. transformers drops keys with None from messages, so a line
  before the template puts them back.
- Some refuse ids that are not nine letters and digits. Where the chat is refused, its ids are replaced, each by one of
  this form, in calls and answers alike.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

from ..constraints.chat_families import (
    PROBE_CALLS,
    PROBE_KEY,
    PROBE_TOOL,
    PROBE_VALUE,
    ChatFamily,
    Measured,
    accepts_id,
    family_of_text,
    nine_alphanumerics,
    rendered_if_taken,
    template_source,
)
from ..constraints.suggestions import did_you_mean
from ..constraints.tool_notation import ToolFormat

Chat = Sequence[Mapping[str, Any]]
_KINDS = ("image", "video", "audio")
# The parts that transformers loads: their type, and the keys that may hold the content.
_LOADED = {
    "image": ("image", "url", "path", "base64"),
    "image_url": ("image_url",),
    "video": ("video", "url", "path"),
    "audio": ("audio", "url", "path"),
}
PART_TYPES = ("text", *_LOADED)
_MEANT = {
    "img": "image",
    "imgs": "image",
    "photo": "image",
    "picture": "image",
    "pixel_values": "image",
    "sound": "audio",
    "speech": "audio",
    "txt": "text",
    "voice": "audio",
}


class Part(NamedTuple):
    """A part of a message."""

    kind: str  # "image", "video" or "audio"; another part's own "type"
    message: int  # index of its message
    part: int  # index in the message's content
    media: bool  # whether it is an image, video or audio
    known: bool  # whether transformers loads it, if it is one of these; otherwise whether it is a text


def parts_of(chat: Chat) -> Iterator[Part]:
    """The parts of a chat's messages that a template should show, in order.

    Templates leave thinking out of the assistant's earlier messages on purpose, so of its parts there is only media.
    """
    for i, message in enumerate(chat):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
            named = part.get("type") if isinstance(part, Mapping) else None
            words = (
                [named] if isinstance(named, str) else [str(key) for key in part] if isinstance(part, Mapping) else []
            )
            kind = next((kind for kind in _KINDS if any(kind in word for word in words)), None)
            if kind is not None:
                keys = _LOADED.get(named, ()) if isinstance(named, str) else ()
                yield Part(kind, i, j, True, any(part.get(key) is not None for key in keys))
            elif message.get("role") != "assistant":
                is_text = named == "text" and isinstance(part.get("text"), str)
                yield Part(str(named or ""), i, j, False, is_text)


def text_of(chat: Chat, part: Part) -> str:
    """The text of a part; empty if it has none."""
    content = chat[part.message]["content"][part.part]
    text = content.get("text") if isinstance(content, Mapping) else content
    return text if isinstance(text, str) else ""


def meant(kind: str) -> str:
    """The end of a message about an unknown type of part: "; did you mean 'image'?", or nothing."""
    known = _MEANT.get(kind.lower())
    return f"; did you mean {known!r}?" if known else did_you_mean(kind, PART_TYPES)


def without(chat: Chat, part: Part) -> list[Mapping[str, Any]]:
    """The chat without one of its parts."""
    message = chat[part.message]
    content = [other for j, other in enumerate(message["content"]) if j != part.part]
    return [*chat[: part.message], {**message, "content": content}, *chat[part.message + 1 :]]


def in_system_message(chat: Chat, text: str) -> list[Mapping[str, Any]]:
    """The chat with a text at the end of its system message, or with a new system message of that text."""
    first, content = chat[0], chat[0].get("content")
    listed = isinstance(content, (list, tuple))  # templates for lists may read no other form
    if first.get("role") in ("system", "developer"):
        return [{**first, "content": _joined((content, text), "\n\n", listed=listed)}, *chat[1:]]
    return [{"role": "system", "content": _joined((text,), "", listed=listed)}, *chat]


def in_user_message(chat: Chat, text: str) -> list[Mapping[str, Any]] | None:
    """The chat with a text at the beginning of its first user message; None if there is none."""
    for i, message in enumerate(chat):
        if message.get("role") == "user":
            content = message.get("content")
            added: Any = f"{text}\n\n{content}" if content else text
            if isinstance(content, (list, tuple)):
                added = [{"type": "text", "text": f"{text}\n\n"}, *content]
            return [*chat[:i], {**message, "content": added}, *chat[i + 1 :]]
    return None


_AS_JSON = re.compile(rf'\{{\s*"{PROBE_KEY}"\s*:\s*"{PROBE_VALUE}"\s*\}}')
_NONE_CONTENT = (
    "{%- set restored = namespace(messages=[]) %}{%- for message in messages %}"
    "{%- set restored.messages = restored.messages + [message if 'content' in message else "
    "dict(message, content=none)] %}{%- endfor %}{%- set messages = restored.messages %}"
)


class CallForm(NamedTuple):
    """How a template takes earlier calls."""

    as_text: bool | None = None  # whether arguments are JSON text; None if no rendering told, and they stay as they are
    without_content: bool = False  # whether calls are shown only where the content of their message is None


_forms: Measured[CallForm] = Measured()


def has_calls(chat: Chat) -> bool:
    """Whether a chat has tool calls, or answers of tools; False for a list of chats."""
    return any(
        isinstance(message, Mapping) and (message.get("tool_calls") or message.get("role") == "tool")
        for message in chat
    )


def with_calls_as_text(chat: Chat, notation: ToolFormat, *, answers: bool) -> Chat:
    """The chat with calls in the texts of the assistant; with ``answers`` the tools' are in messages of the user."""
    listed = any(_are_parts(message.get("content")) for message in chat)  # templates for lists may read no other form
    messages: list[Mapping[str, Any]] = []
    of_tools = False  # whether the last message holds answers of tools: templates refuse another of the same role
    for message in chat:
        role = message.get("role")
        if answers and (role == "tool" or (of_tools and role == "user")):
            content = message.get("content")
            if role == "tool":
                if not isinstance(content, str) and not _are_parts(content):
                    content = json.dumps(content, ensure_ascii=False)
                content = _joined(("<tool_response>\n", content, "\n</tool_response>"), "", listed=listed)
            kept = {} if role == "tool" else message
            if messages and messages[-1].get("role") == "user":
                before = messages.pop()
                kept = {**before, **kept}
                content = _joined((before.get("content"), content), "\n", listed=listed)
            messages.append({**kept, "role": "user", "content": content})
            of_tools = role == "tool"
            continue
        of_tools = False
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                arguments = _function(call).get("arguments") or "{}"
                written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
                calls.append((str(_function(call).get("name")), written))
            text = _joined((message.get("content"), notation.written(calls).strip()), "\n", listed=listed)
            kept = {key: value for key, value in message.items() if key != "tool_calls"}
            messages.append({**kept, "content": text})
        else:
            messages.append(message)
    return messages


def _are_parts(content: Any) -> TypeGuard[Sequence[Mapping[str, Any]]]:
    """Whether a content is a list of parts, and not another list, as a tool may answer."""
    return isinstance(content, (list, tuple)) and all(isinstance(part, Mapping) and "type" in part for part in content)


def _joined(contents: Sequence[Any], between: str, *, listed: bool) -> Any:
    """Contents, texts or lists of parts, as one; as a list if ``listed``."""
    present = [content for content in contents if content]
    if not listed:
        return between.join(map(str, present))
    parts: list[Any] = []
    for content in present:
        added = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if parts and between:
            first = added[0]
            if first["type"] == "text" and isinstance(first.get("text"), str):
                added[0] = {**first, "text": between + first["text"]}
            else:
                added.insert(0, {"type": "text", "text": between})
        parts += added
    return parts


def for_template(
    templates: Any, chat: Chat, arguments: Mapping[str, Any], *, refused: bool = False
) -> tuple[Chat, Mapping[str, Any]]:
    """A chat and the arguments of its template, such that the template shows earlier calls as it means to.

    ``refused`` says that the template has refused the chat with its own ids.
    """
    if not has_calls(chat):
        return chat, arguments
    source = template_source(templates, arguments)
    family = None if source is None else family_of_text(source)
    form = _form_of(templates, source, arguments)
    messages = [_message(message, form) for message in _with_ids(chat, family, replace_all=refused)]
    if form.without_content and source is not None:
        arguments = {**arguments, "chat_template": _NONE_CONTENT + source}
    return messages, arguments


def marked(chat: Chat) -> tuple[Chat, dict[str, str]]:
    """A chat in which each call has arguments of its own, and each message a text; and what these stand for."""
    marks: dict[str, str] = {}

    def new_mark(meaning: str) -> str:
        mark = f"markOf{len(marks)}End"
        marks[mark] = meaning
        return mark

    def with_mark(number: int, call: Mapping[str, Any]) -> Mapping[str, Any]:
        function = _function(call)
        meaning = f"the call of {function.get('name')!r} in message {number}"
        return {**call, "function": {**function, "arguments": {PROBE_KEY: new_mark(meaning)}}}

    messages = []
    for number, message in enumerate(chat):
        message = dict(message)
        if message.get("tool_calls"):
            message["tool_calls"] = [with_mark(number, call) for call in message["tool_calls"]]
        content = message.get("content")
        meaning = "the tool's answer" if message.get("role") == "tool" else f"the {message.get('role')}'s text"
        meaning = f"{meaning} in message {number}"
        if isinstance(content, str) and content.strip():
            message["content"] = new_mark(meaning)
        elif _are_parts(content):
            message["content"] = [
                {**part, "text": new_mark(meaning)}
                if part["type"] == "text" and isinstance(text := part.get("text"), str) and text.strip()
                else part
                for part in content
            ]
        messages.append(message)
    return messages, marks


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function", call)
    return function if isinstance(function, Mapping) else {}


def _message(message: Mapping[str, Any], form: CallForm) -> Mapping[str, Any]:
    calls = message.get("tool_calls")
    if not calls:
        return message
    changed = {**message, "tool_calls": [_call(call, form) for call in calls]}
    if form.without_content and not changed.get("content"):
        changed.pop("content", None)
    elif changed.get("content") is None and not form.without_content:
        changed["content"] = ""  # many templates add it to other text
    return changed


def _call(call: Mapping[str, Any], form: CallForm) -> Mapping[str, Any]:
    function = _function(call)
    arguments = function.get("arguments")
    if form.as_text and isinstance(arguments, Mapping):
        arguments = json.dumps(arguments, ensure_ascii=False)
    elif form.as_text is False and isinstance(arguments, str):
        try:
            read = json.loads(arguments) if arguments.strip() else {}
        except ValueError:
            return call
        arguments = read if isinstance(read, dict) else arguments
    else:
        return call
    if "function" not in call:
        return {**call, "arguments": arguments}
    return {**call, "function": {**function, "arguments": arguments}}


def _with_ids(chat: Chat, family: ChatFamily | None, *, replace_all: bool) -> Iterator[Mapping[str, Any]]:
    """The messages with an id in each call and answer, in a form that the template knows."""
    made: dict[str, str] = {}
    taken = {str(call.get("id")) for message in chat for call in message.get("tool_calls") or ()}

    def id_for(given: Any, number: int, name: str) -> str:
        key = str(given)
        if replace_all:
            return key if re.fullmatch("[0-9A-Za-z]{9}", key) else nine_alphanumerics(key)
        if accepts_id(family, key):
            return key
        if key not in made:
            own = nine_alphanumerics(key)
            if family is not None and family.calls == "kimi":
                own = f"functions.{name}:{number}"
                while own in taken:  # by a call that has an id of this family
                    number += 1
                    own = f"functions.{name}:{number}"
                taken.add(own)
            made[key] = own
        return made[key]

    number = 0
    waiting: list[str] = []  # ids of calls that no answer has named yet
    for message in chat:
        if calls := message.get("tool_calls"):
            with_ids, waiting = [], []
            for call in calls:
                name, given = str(_function(call).get("name")), call.get("id")
                own = _new_id(family, number, name) if given is None else id_for(given, number, name)
                with_ids.append({**call, "id": own})
                waiting.append(own)
                number += 1
            message = {**message, "tool_calls": with_ids}
        elif message.get("role") == "tool":
            answered: str | None
            given = message.get("tool_call_id")
            if given is not None:
                answered = id_for(given, number, str(message.get("name")))
            else:  # templates that name no ids have their answers in order
                answered = waiting[0] if waiting else None
            if answered is not None:
                waiting = [other for other in waiting if other != answered]
                message = {**message, "tool_call_id": answered}
        yield message


def _new_id(family: ChatFamily | None, number: int, name: str) -> str:
    if family is not None and family.calls == "kimi":
        return f"functions.{name}:{number}"
    return nine_alphanumerics(f"call {number} of {name}")


def _form_of(templates: Any, source: str | None, arguments: Mapping[str, Any]) -> CallForm:
    if source is None:  # written by code, such as mistral-common's, which takes both
        return CallForm()
    others = inspect.signature(templates.apply_chat_template).parameters.keys() - {"chat_template"}
    variables = {name: value for name, value in arguments.items() if name not in others | {"processor_kwargs"}}
    return _forms.get((source, type(templates)), variables, lambda: _probed(templates, source, variables))


def _probed(templates: Any, source: str, arguments: Mapping[str, Any]) -> CallForm:
    """The first form in which a probe's arguments stand in its prompt, as JSON exactly once."""
    shown: CallForm | None = None  # a form in which they stand there otherwise, as elements
    for without_content in (False, True):
        for tools in ([PROBE_TOOL], None):
            for as_text in (False, True):
                form = CallForm(as_text, without_content)
                written = _written_probe(templates, source, {**arguments, "tools": tools}, form)
                if len(_AS_JSON.findall(written)) == 1:
                    return form
                # Neither JSON in JSON nor Python's repr.
                as_repr = f"'{PROBE_KEY}': '{PROBE_VALUE}'" in written
                if shown is None and not as_text and PROBE_VALUE in written and not as_repr:
                    shown = form
        if shown is not None:
            return shown
    return CallForm()


def _written_probe(templates: Any, source: str, arguments: Mapping[str, Any], form: CallForm) -> str:
    """The prompt after a call and its answer; empty if the template refuses them, which shows nothing."""
    call = PROBE_CALLS[0]
    chat: Sequence[Mapping[str, Any]] = [
        {"role": "user", "content": "Look up."},
        _message({"role": "assistant", "content": "", "tool_calls": [call]}, form),
        {"role": "tool", "tool_call_id": call["id"], "name": call["function"]["name"], "content": "found"},
    ]
    given = {**arguments, "add_generation_prompt": True}
    if form.without_content:
        given["chat_template"] = _NONE_CONTENT + source
    return rendered_if_taken(templates, chat, given) or ""
