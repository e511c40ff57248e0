"""The answers of /v1/responses: a list of items (reasoning, message, function calls), or typed events that build it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..error_responses import RequestRefused
from .answer import Answer, Delta, ShownToken
from .parts import CallBegins, Part, Text, Thinking
from .writers import Writer, event, listed_logprobs, new_id

# What a response says about settings that its request leaves out.
_DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
}


@dataclass
class _Item(ABC):
    """An item that may still grow; the text of a function call is its arguments."""

    events: ClassVar[str]  # the beginning of the names of its events

    id: str
    text: str = ""

    @abstractmethod
    def as_dict(self, status: str) -> dict[str, Any]:
        """As a response lists it; without its content while it is in progress."""

    def part(self, text: str) -> dict[str, Any] | None:
        """Its one part of content; None if it has none."""
        return None

    def done(self) -> dict[str, Any]:
        """The fields of the event that ends its text."""
        return {"text": self.text}


@dataclass
class _Reasoning(_Item):
    events: ClassVar[str] = "response.reasoning_text"

    def as_dict(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self.part(self.text)]
        return {"id": self.id, "type": "reasoning", "summary": [], "content": content, "status": status}

    def part(self, text: str) -> dict[str, Any] | None:
        return {"type": "reasoning_text", "text": text}


@dataclass
class _Message(_Item):
    logprobs: list[dict[str, Any]] | None = None  # of its tokens; None reports none
    events: ClassVar[str] = "response.output_text"

    def as_dict(self, status: str) -> dict[str, Any]:
        content = [] if status == "in_progress" else [self.part(self.text)]
        return {"id": self.id, "type": "message", "role": "assistant", "status": status, "content": content}

    def part(self, text: str) -> dict[str, Any] | None:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self.logprobs or []}

    def done(self) -> dict[str, Any]:
        return {"text": self.text, "logprobs": self.logprobs or []}


@dataclass
class _FunctionCall(_Item):
    name: str = ""
    call_id: str = ""
    events: ClassVar[str] = "response.function_call_arguments"

    def as_dict(self, status: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "type": "function_call",
            "call_id": self.call_id,
            "name": self.name,
            "arguments": self.text,
            "status": status,
        }

    def done(self) -> dict[str, Any]:
        return {"arguments": self.text, "name": self.name}


class ResponseWriter(Writer):
    """There is one answer."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._items: list[_Item] = []
        self._open: _Item | None = None  # the last of them, while it grows
        self._number = 0  # of the next event

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """See ``Writer``."""
        [answer] = answers
        content = answer.content
        if content.thinking:
            self._items.append(_Reasoning(new_id("rs_"), content.thinking))
        if content.text or not content.calls:
            self._items.append(_Message(new_id("msg_"), content.text, self._shown(answer.logprobs)))
        for call in content.calls:
            self._items.append(_FunctionCall(new_id("fc_"), call.arguments, call.name, call.id))
        return self._finished(answer)

    def begin(self) -> Iterator[str]:
        """See ``Writer``."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response("in_progress"))

    def add(self, answer: Answer, delta: Delta) -> Iterator[str]:
        """See ``Writer``."""
        texts = [part for part in delta.parts if isinstance(part, Text)]
        for part in delta.parts:
            yield from self._part(part, delta.logprobs if texts and part is texts[-1] else [])
        if not texts and delta.logprobs and isinstance(self._open, _Message):
            yield from self._part(Text(""), delta.logprobs)

    def end(self, answer: Answer) -> Iterator[str]:
        """See ``Writer``."""
        if not any(isinstance(item, (_Message, _FunctionCall)) for item in self._items):
            yield from self._begin_item(_Message(new_id("msg_")))
        yield from self._end_item("completed" if answer.finish_reason != "length" else "incomplete")

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """See ``Writer``."""
        response = self._finished(answers[0])
        yield self._event(f"response.{response['status']}", response=response)

    def fail(self, error: RequestRefused) -> Iterator[str]:
        """See ``Writer``."""
        detail = error.body["error"]
        yield self._event("error", code=detail["code"], message=detail["message"], param=detail["param"])
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = {**self._response("failed"), "error": {"code": code, "message": detail["message"]}}
        yield self._event("response.failed", response=failed)

    def _part(self, part: Part, logprobs: Sequence[ShownToken]) -> Iterator[str]:
        if isinstance(part, Thinking):
            if not isinstance(self._open, _Reasoning):
                yield from self._begin_item(_Reasoning(new_id("rs_")))
            yield from self._grow(part.text)
        elif isinstance(part, Text):
            if not isinstance(self._open, _Message):
                yield from self._begin_item(_Message(new_id("msg_")))
            yield from self._grow(part.text, logprobs=self._shown(logprobs) or [])
        elif isinstance(part, CallBegins):
            yield from self._begin_item(_FunctionCall(new_id("fc_"), name=part.name, call_id=part.id))
        else:
            yield from self._grow(part.text)

    def _begin_item(self, item: _Item) -> Iterator[str]:
        yield from self._end_item("completed")
        self._items.append(item)
        self._open = item
        yield self._event("response.output_item.added", output_index=self._index, item=item.as_dict("in_progress"))
        if (part := item.part("")) is not None:
            yield self._event("response.content_part.added", **self._position(item), part=part)

    def _grow(self, text: str, **more: Any) -> Iterator[str]:
        item = self._open
        assert item is not None
        item.text += text
        if isinstance(item, _Message):
            item.logprobs = (item.logprobs or []) + more["logprobs"]
        yield self._event(f"{item.events}.delta", **self._position(item), delta=text, **more)

    def _end_item(self, status: str) -> Iterator[str]:
        item, self._open = self._open, None
        if item is None:
            return
        yield self._event(f"{item.events}.done", **self._position(item), **item.done())
        if (part := item.part(item.text)) is not None:
            yield self._event("response.content_part.done", **self._position(item), part=part)
        yield self._event("response.output_item.done", output_index=self._index, item=item.as_dict(status))

    @property
    def _index(self) -> int:
        return len(self._items) - 1

    def _position(self, item: _Item) -> dict[str, Any]:
        content = {} if isinstance(item, _FunctionCall) else {"content_index": 0}
        return {"item_id": item.id, "output_index": self._index, **content}

    def _shown(self, logprobs: Sequence[ShownToken]) -> list[dict[str, Any]] | None:
        return None if self._call.logprobs is None else listed_logprobs(logprobs)

    def _event(self, kind: str, **fields: Any) -> str:
        made = event({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return made

    def _finished(self, answer: Answer) -> dict[str, Any]:
        cut = answer.finish_reason == "length"
        response = self._response("incomplete" if cut else "completed")
        prompt, made = self._num_prompt_tokens, answer.num_tokens
        return {
            **response,
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [item.as_dict("completed") for item in self._items[:-1]]
            + [item.as_dict(response["status"]) for item in self._items[-1:]],
            "usage": {
                "input_tokens": prompt,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": made,
                "output_tokens_details": {"reasoning_tokens": answer.num_thinking_tokens},
                "total_tokens": prompt + made,
            },
        }

    def _response(self, status: str) -> dict[str, Any]:
        return {
            "id": f"resp_{self._request_id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": self._model,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            **_DEFAULTS,
            **self._call.body,
        }
