"""The messages of a chat: their images, videos and audio, and functions that add a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..constraints.suggestions import did_you_mean

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


class MediaPart(NamedTuple):
    """An image, video or audio in a chat; or another part of a message.

    Args:
        kind: "image", "video" or "audio".
        message: index of its message.
        part: index in the message's content.
        loaded: whether transformers loads its content.
    """

    kind: str
    message: int
    part: int
    loaded: bool


def media_of(chat: Chat) -> Iterator[MediaPart]:
    """The images, videos and audio of a chat, in order."""
    for i, message in enumerate(chat):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, (list, tuple)) else ()):
            named = part.get("type") if isinstance(part, Mapping) else "text"
            words = [named] if isinstance(named, str) else [key for key in part if isinstance(key, str)]
            kind = next((kind for kind in _KINDS if any(kind in word for word in words)), None)
            if kind is not None:
                keys = _LOADED.get(named, ()) if isinstance(named, str) else ()
                yield MediaPart(kind, i, j, any(part.get(key) is not None for key in keys))


def other_parts(chat: Chat) -> Iterator[MediaPart]:
    """The parts that are not media, whose text a template may leave out: ``kind`` is their own "type".

    Templates leave thinking out of the assistant's earlier messages on purpose, so its parts are not among them.
    """
    media = {(media_part.message, media_part.part) for media_part in media_of(chat)}
    for i, message in enumerate(chat):
        content = message.get("content")
        if message.get("role") != "assistant" and isinstance(content, (list, tuple)):
            for j, part in enumerate(content):
                if (i, j) not in media:
                    named = part.get("type") if isinstance(part, Mapping) else None
                    yield MediaPart(str(named or ""), i, j, named == "text" and isinstance(part.get("text"), str))


def text_of(chat: Chat, part: MediaPart) -> str:
    """The text of a part; empty if it has none."""
    content = chat[part.message]["content"][part.part]
    text = content.get("text") if isinstance(content, Mapping) else content
    return text if isinstance(text, str) else ""


def meant(kind: str) -> str:
    """The end of a message about an unknown type of part: "; did you mean 'image'?", or nothing."""
    known = _MEANT.get(kind.lower())
    return f"; did you mean {known!r}?" if known else did_you_mean(kind, PART_TYPES)


def without(chat: Chat, media: MediaPart) -> list[Mapping[str, Any]]:
    """The chat without one of its parts."""
    message = chat[media.message]
    content = [part for j, part in enumerate(message["content"]) if j != media.part]
    return [*chat[: media.message], {**message, "content": content}, *chat[media.message + 1 :]]


def in_system_message(chat: Chat, text: str) -> list[Mapping[str, Any]]:
    """The chat with a text at the end of its system message, or with a new system message of that text."""
    first = chat[0]
    if first.get("role") in ("system", "developer"):
        content = first.get("content")
        if isinstance(content, (list, tuple)):
            parts = [*content, {"type": "text", "text": f"\n\n{text}" if content else text}]
            return [{**first, "content": parts}, *chat[1:]]
        return [{**first, "content": f"{content}\n\n{text}" if content else text}, *chat[1:]]
    listed = isinstance(first.get("content"), (list, tuple))  # templates for lists may read no other form
    return [{"role": "system", "content": [{"type": "text", "text": text}] if listed else text}, *chat]


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
