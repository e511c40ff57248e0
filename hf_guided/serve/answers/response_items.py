"""The items of a response: reasoning, a message, a function call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass
class Item:
    """An item that may still grow.

    Args:
        id: of the item.
        text: so far; of a function call, its arguments.
    """

    events: ClassVar[str]  # the beginning of the names of its events

    id: str
    text: str = ""

    def as_dict(self, status: str) -> dict[str, Any]:
        """As a response lists it; without its content while it is in progress."""
        raise NotImplementedError

    def part(self, text: str) -> dict[str, Any] | None:
        """Its one part of content; None if it has none."""
        return None

    def done(self) -> dict[str, Any]:
        """The fields of the event that ends its text."""
        return {"text": self.text}

    def add_logprobs(self, logprobs: list[dict[str, Any]]) -> None:
        """Append log probabilities of its tokens."""


@dataclass
class Reasoning(Item):
    """The thinking."""

    events: ClassVar[str] = "response.reasoning_text"

    def as_dict(self, status: str) -> dict[str, Any]:
        """See ``Item``."""
        content = [] if status == "in_progress" else [{"type": "reasoning_text", "text": self.text}]
        return {"id": self.id, "type": "reasoning", "summary": [], "content": content, "status": status}

    def part(self, text: str) -> dict[str, Any] | None:
        """See ``Item``."""
        return {"type": "reasoning_text", "text": text}


@dataclass
class Message(Item):
    """The answer's text.

    Args:
        id: of the item.
        text: so far.
        logprobs: of its tokens; None reports none.
    """

    logprobs: list[dict[str, Any]] | None = None
    events: ClassVar[str] = "response.output_text"

    def as_dict(self, status: str) -> dict[str, Any]:
        """See ``Item``."""
        content = [] if status == "in_progress" else [self.part(self.text)]
        return {"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content}

    def part(self, text: str) -> dict[str, Any] | None:
        """See ``Item``."""
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs or []}

    def done(self) -> dict[str, Any]:
        """See ``Item``."""
        return {"text": self.text, "logprobs": self.logprobs or []}

    def add_logprobs(self, logprobs: list[dict[str, Any]]) -> None:
        """See ``Item``."""
        self.logprobs = (self.logprobs or []) + logprobs


@dataclass
class FunctionCall(Item):
    """A call of a function.

    Args:
        id: of the item.
        text: its arguments so far.
        name: of the function.
        call_id: of the call.
    """

    name: str = ""
    call_id: str = ""
    events: ClassVar[str] = "response.function_call_arguments"

    def as_dict(self, status: str) -> dict[str, Any]:
        """See ``Item``."""
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
            "status": status,
        }

    def done(self) -> dict[str, Any]:
        """See ``Item``."""
        return {"arguments": self.text, "name": self.name}
