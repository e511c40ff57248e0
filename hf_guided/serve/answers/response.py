"""The answers of /v1/responses: a list of items (reasoning, message, function calls), or typed events that build it."""

# ruff: noqa: D102 - methods without docstrings are those of Writer
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..error_responses import RequestRefused
from .answer import Answer, Delta, ShownToken
from .parts import CallBegins, Part, Text, Thinking
from .writers import Writer, event, listed_logprobs, new_id, own_fields

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


# The beginning of an item's id, and the fields that all items of its kind have.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "reasoning": ("rs_", {"summary": []}),
    "message": ("msg_", {"role": "assistant"}),
    "function_call": ("fc_", {}),
}
# The type of an item's one part of content; a function call has none.
_PARTS = {"reasoning": "reasoning_text", "message": "output_text"}


class _Item:
    """An item that may still grow, of a kind of ``_KINDS``; the text of a function call is its arguments."""

    def __init__(self, kind: str, text: str = "", logprobs: Sequence[dict[str, Any]] = (), **fields: Any):
        self.kind, self.text, self.logprobs = kind, text, [*logprobs]
        prefix, shared = _KINDS[kind]
        self.fields = {"id": new_id(prefix), "type": kind, **shared, **fields}

    def part(self, text: str) -> dict[str, Any]:
        """The item's part of content, with this text."""
        more = {"annotations": [], "logprobs": self.logprobs} if self.kind == "message" else {}
        return {"type": _PARTS[self.kind], "text": text, **more}

    def as_dict(self, status: str) -> dict[str, Any]:
        """The item as a response lists it; without its content while it is in progress."""
        item = {**self.fields, "status": status}
        if self.kind not in _PARTS:
            return {**item, "arguments": self.text}
        return {**item, "content": [] if status == "in_progress" else [self.part(self.text)]}


class ResponseWriter(Writer):
    """There is one answer."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._items: list[_Item] = []
        self._open: _Item | None = None  # the last of them, while it grows
        self._number = 0  # number of the next event

    def whole(self, answers: Sequence[Answer], generated: Sequence[Answer]) -> dict[str, Any]:
        [answer] = answers
        logprobs = self._shown(answer.logprobs)
        for run in answer.content.runs:
            if isinstance(run, Thinking):
                self._items.append(_Item("reasoning", run.text))
            elif isinstance(run, Text):
                self._items.append(_Item("message", run.text, logprobs))  # tokens after a call have none
                logprobs = []
            else:
                self._items.append(_Item("function_call", run.arguments, name=run.name, call_id=run.id))
        if all(item.kind == "reasoning" for item in self._items):
            self._items.append(_Item("message", "", logprobs))
        return self._finished(answer)

    def begin(self) -> Iterator[str]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._response("in_progress"))

    def add(self, index: int, delta: Delta) -> Iterator[str]:
        logprobs = self._shown(delta.logprobs)
        texts = [part for part in delta.parts if isinstance(part, Text)]
        for part in delta.parts:
            yield from self._part(part, logprobs if texts and part is texts[-1] else [])
        if not texts and logprobs and self._is_open("message"):
            yield from self._part(Text(""), logprobs)
        if delta.finish_reason is not None:
            if all(item.kind == "reasoning" for item in self._items):
                yield from self._begin_item(_Item("message"))
            yield from self._end_item("completed" if delta.finish_reason != "length" else "incomplete")

    def finish(self, answers: Sequence[Answer]) -> Iterator[str]:
        response = self._finished(answers[0])
        yield self._event(f"response.{response['status']}", response=response)

    def fail(self, error: RequestRefused) -> Iterator[str]:
        detail = error.body["error"]
        yield self._event("error", code=detail["code"], message=detail["message"], param=detail["param"])
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        failed = {**self._response("failed"), "error": {"code": code, "message": detail["message"]}}
        yield self._event("response.failed", response=failed)

    def _is_open(self, kind: str) -> bool:
        return self._open is not None and self._open.kind == kind

    def _part(self, part: Part, logprobs: list[dict[str, Any]]) -> Iterator[str]:
        if isinstance(part, CallBegins):
            yield from self._begin_item(_Item("function_call", name=part.name, call_id=part.id))
            return
        kind = "reasoning" if isinstance(part, Thinking) else "message" if isinstance(part, Text) else None
        if kind is not None and not self._is_open(kind):
            yield from self._begin_item(_Item(kind))
        item = self._open
        assert item is not None
        item.text += part.text
        item.logprobs += logprobs
        more = {"logprobs": logprobs} if item.kind == "message" else {}
        yield self._event(f"{self._name(item)}.delta", **self._position(item), delta=part.text, **more)

    def _begin_item(self, item: _Item) -> Iterator[str]:
        yield from self._end_item("completed")
        self._items.append(item)
        self._open = item
        yield self._event("response.output_item.added", output_index=self._index, item=item.as_dict("in_progress"))
        if item.kind in _PARTS:
            yield self._event("response.content_part.added", **self._position(item), part=item.part(""))

    def _end_item(self, status: str) -> Iterator[str]:
        item, self._open = self._open, None
        if item is None:
            return
        if item.kind == "function_call":
            text = {"arguments": item.text, "name": item.fields["name"]}
        else:
            text = {"text": item.text, **({"logprobs": item.logprobs} if item.kind == "message" else {})}
        yield self._event(f"{self._name(item)}.done", **self._position(item), **text)
        if item.kind in _PARTS:
            yield self._event("response.content_part.done", **self._position(item), part=item.part(item.text))
        yield self._event("response.output_item.done", output_index=self._index, item=item.as_dict(status))

    @property
    def _index(self) -> int:
        return len(self._items) - 1

    def _name(self, item: _Item) -> str:
        """The beginning of the names of the events of its text."""
        return f"response.{_PARTS.get(item.kind, 'function_call_arguments')}"

    def _position(self, item: _Item) -> dict[str, Any]:
        content = {"content_index": 0} if item.kind in _PARTS else {}
        return {"item_id": item.fields["id"], "output_index": self._index, **content}

    def _shown(self, logprobs: Sequence[ShownToken]) -> list[dict[str, Any]]:
        return [] if self._call.logprobs is None else listed_logprobs(logprobs)

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
            **own_fields(answer.limited),
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
