"""The content of messages: texts and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BeforeValidator, Field

from .parts import ANY, List, Part, problem
from .refusals import refused

_IMAGE = "data:image/"


class TextPart(Part):
    """A text; "input_text" and "output_text" in /v1/responses."""

    other_fields = {"prompt_cache_breakpoint": ANY, "cache_control": ANY, "annotations": ANY, "logprobs": ANY}
    type: Literal["text", "input_text", "output_text"]
    text: str


class ImageUrl(Part):
    """Where an image is."""

    other_fields = {"detail": ("auto",)}
    url: str


class ImagePart(Part):
    """An image."""

    other_fields = {"prompt_cache_breakpoint": ANY}
    type: Literal["image_url"]
    image_url: ImageUrl


class InputImage(Part):
    """An image in /v1/responses."""

    other_fields = {"detail": ("auto",), "file_id": (), "prompt_cache_breakpoint": ANY}
    type: Literal["input_image"]
    image_url: str


class RefusalPart(Part):
    """What an assistant has said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


def _as_parts(value: Any) -> Any:
    if isinstance(value, str):
        return [{"type": "text", "text": value}]
    if not isinstance(value, list):
        raise problem("expected a text, or a list of parts, got {value}", value=value)
    return value


AnyPart: TypeAlias = TextPart | ImagePart | InputImage | RefusalPart
Texts = Annotated[List[TextPart], BeforeValidator(_as_parts)]
AssistantContent = Annotated[
    List[Annotated[TextPart | RefusalPart, Field(discriminator="type")]], BeforeValidator(_as_parts)
]
UserContent = Annotated[
    List[Annotated[TextPart | ImagePart | InputImage, Field(discriminator="type")]], BeforeValidator(_as_parts)
]


def for_template(parts: Sequence[AnyPart], path: str, takes_images: bool) -> str | list[dict[str, str]]:
    """The content as templates read it: a text, or a list where the model takes images.

    Args:
        parts: in order.
        path: of the content in the body.
        takes_images: whether the model does.

    Raises:
        RequestRefused: an image that the model cannot take, or that would have to be fetched.
    """
    shown: list[dict[str, str]] = []
    for i, part in enumerate(parts):
        if isinstance(part, (TextPart, RefusalPart)):
            shown.append({"type": "text", "text": part.text if isinstance(part, TextPart) else part.refusal})
        else:
            url = part.image_url.url if isinstance(part, ImagePart) else part.image_url
            if not takes_images:
                raise refused(f"{path}.{i}", "this model takes no images", "unsupported_content")
            if not url.startswith(_IMAGE):  # a file of this machine, or a page of its network
                raise refused(
                    f"{path}.{i}.image_url",
                    "expected the image itself, as data:image/png;base64,...; this server fetches none",
                    "unsupported_content",
                )
            shown.append({"type": "image", "url": url})
    return shown if takes_images else "\n".join(part["text"] for part in shown)
