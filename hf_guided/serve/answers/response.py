"""The answers of /v1/responses: a list of items (reasoning, message, function calls), or typed events that build it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..error_responses import RequestRefused
from .answer import Answer, Delta
from .logprobs import ShownToken, response_logprobs
from .parts import CallArguments, CallBegins, Part, Text, Thinking
from .response_items import FunctionCall, Item, Message, Reasoning
from .shape import Reply, new_id
from .sse import event

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


class ResponseShape:
    """See ``Shape``; there is one answer.

    Args:
        reply: the response.
    """

    def __init__(self, reply: Reply):
        self._reply = reply
        self._id = f"resp_{reply.request_id}"
        self._items: list[Item] = []
        self._open: Item | None = None  # the last of them, while it grows
        self._number = 0  # of the next event

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        """See ``Shape``."""
        [answer] = answers
        content = answer.content
        if content.thinking:
            self._items.append(Reasoning(new_id("rs_"), content.thinking))
        if content.text or not content.calls:
            self._items.append(Message(new_id("msg_"), content.text, self._shown(answer.logprobs)))
        for call in content.calls:
            self._items.append(FunctionCall(new_id("fc_"), call.arguments, call.name, call.id))
        return self._finished(answer)

    def begin(self) -> Iterator[str]:
        """See ``Shape``."""
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response("in_progress"))

    def add(self, answer: Answer, delta: Delta) -> Iterator[str]:
        """See ``Shape``."""
        texts = [part for part in delta.parts if isinstance(part, Text)]
        for part in delta.parts:
            yield from self._part(part, delta.logprobs if texts and part is texts[-1] else [])
        if not texts and delta.logprobs and isinstance(self._open, Message):
            yield from self._part(Text(""), delta.logprobs)

    def end(self, answer: Answer) -> Iterator[str]:
        """See ``Shape``."""
        if not any(isinstance(item, (Message, FunctionCall)) for item in self._items):
            yield from self._begin_item(Message(new_id("msg_")))
        yield from self._end_item("completed" if answer.finish_reason != "length" else "incomplete")

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        """See ``Shape``."""
        response = self._finished(answers[0])
        yield self._event(f"response.{response['status']}", response=response)

    def fail(self, error: RequestRefused) -> Iterator[str]:
        """See ``Shape``."""
        detail = error.body["error"]
        yield self._event("error", code=detail["code"], message=detail["message"], param=detail["param"])
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = {**self._response("failed"), "error": {"code": code, "message": detail["message"]}}
        yield self._event("response.failed", response=failed)

    def _part(self, part: Part, logprobs: Sequence[ShownToken]) -> Iterator[str]:
        if isinstance(part, Thinking):
            if not isinstance(self._open, Reasoning):
                yield from self._begin_item(Reasoning(new_id("rs_")))
            yield from self._grow(part.text)
        elif isinstance(part, Text):
            if not isinstance(self._open, Message):
                yield from self._begin_item(Message(new_id("msg_")))
            yield from self._grow(part.text, logprobs=self._shown(logprobs) or [])
        elif isinstance(part, CallBegins):
            yield from self._begin_item(FunctionCall(new_id("fc_"), name=part.name, call_id=part.id))
        elif isinstance(part, CallArguments):
            yield from self._grow(part.text)

    def _begin_item(self, item: Item) -> Iterator[str]:
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
        item.add_logprobs(more.get("logprobs", []))
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

    def _position(self, item: Item) -> dict[str, Any]:
        content = {} if isinstance(item, FunctionCall) else {"content_index": 0}
        return {"item_id": item.id, "output_index": self._index, **content}

    def _shown(self, logprobs: Sequence[ShownToken]) -> list[dict[str, Any]] | None:
        return None if self._reply.call.logprobs is None else response_logprobs(logprobs)

    def _event(self, kind: str, **fields: Any) -> str:
        made = event({"type": kind, "sequence_number": self._number, **fields}, kind)
        self._number += 1
        return made

    def _finished(self, answer: Answer) -> dict[str, Any]:
        cut = answer.finish_reason == "length"
        response = self._response("incomplete" if cut else "completed")
        prompt, made = self._reply.prompt_tokens, answer.num_tokens
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
            "id": self._id,
            "object": "response",
            "created_at": self._reply.created,
            "status": status,
            "model": self._reply.model,
            "error": None,
            "incomplete_details": None,
            "output": [],
            "usage": None,
            **_DEFAULTS,
            **self._reply.call.body,
        }
