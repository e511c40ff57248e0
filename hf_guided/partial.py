"""What is certain of an answer while it is being written: its text, and the parts of its value that have closed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, Protocol

from .constraints import Constraint, JsonObject, JsonSchema
from .partial_json import PartialJson, value_of
from .pieces import utf8_decoder
from .reasoning import Opening
from .result import GuidedResult, RowReader
from .result_types import T
from .tool_calls import ToolAnswer, ToolCall, ToolCalls


@dataclass(frozen=True)
class Partial(Generic[T]):
    """What is certain of one answer at one moment; nothing of it is taken back later.

    Args:
        index: which result of ``hg.generate`` this becomes.
        text: the text so far, in whole characters; what comes later begins with it.
        closed: JSON pointers to the parts of ``value`` that have closed since the last Partial of this answer, in the
            order in which they did; "" is the whole.
        thinking: what came in front of the answer, so far; None where nothing was to be thought.
        result: at the end of the answer, what ``hg.generate`` gives without ``stream``.
    """

    index: int
    text: str
    closed: tuple[str, ...]
    thinking: str | None
    result: GuidedResult[T] | None
    _make: Callable[[], Any] = field(repr=False, compare=False)

    @cached_property
    def value(self) -> Any:
        """What has closed so far; made when it is first asked for, and nobody else's.

        JSON: dicts and lists with the members and items that have closed, and inside of those that are open what has
        closed there. Strings close at their quote, numbers at what stands behind them. In the end this is what `json`
        reads; the instance of a type that was asked for is the result's. (A name that an object has twice, where its
        schema lets it, is the one thing that changes: the last value counts, and its pointer closes again.)
        Tool calls: a ``ToolAnswer`` with the calls that are complete. Everything else: None, and in the end the
        result's value.
        """
        return self._make()


class _Values(Protocol):
    """Finds values in a text that comes in pieces."""

    def feed(self, text: str, so_far: str) -> list[str]:
        """Take more text, with which ``so_far`` ends; returns pointers to what has closed."""
        ...

    def end(self, result: GuidedResult) -> list[str]:
        """The text is complete; returns as ``feed``."""
        ...

    def snapshot(self) -> Callable[[], Any]:
        """What makes the value as it is now."""
        ...


class _JsonValues:
    def __init__(self) -> None:
        self._json = PartialJson()

    def feed(self, text: str, so_far: str) -> list[str]:
        return self._json.feed(text)

    def end(self, result: GuidedResult) -> list[str]:
        return self._json.end() if result.finish_reason == "stop" else []

    def snapshot(self) -> Callable[[], Any]:
        moves, number = self._json.moves, len(self._json.moves)
        return lambda: value_of(moves, number)


class _CallValues:
    """Calls are looked for where a mark may have ended one.

    Args:
        asked: the tools.
    """

    def __init__(self, asked: ToolCalls):
        self._asked = asked
        self._text = ""
        self._calls: tuple[ToolCall, ...] = ()

    def feed(self, text: str, so_far: str) -> list[str]:
        new = len(so_far) - len(text)
        if not any(end in so_far[max(0, new - len(end) + 1) :] for end in self._asked.ends):
            return []
        known = len(self._calls)
        try:
            written, calls = self._asked.closed(so_far, known)
        except ValueError:  # arguments that no reading makes valid: the result says so
            return []
        if calls:
            self._text, self._calls = written, self._calls + calls
        return [f"/calls/{number}" for number in range(known, len(self._calls))]

    def end(self, result: GuidedResult) -> list[str]:
        if not isinstance(result.value, ToolAnswer):
            return []
        known = len(self._calls)
        self._text, self._calls = result.value.text, result.value.calls
        return [*(f"/calls/{number}" for number in range(known, len(self._calls))), ""]

    def snapshot(self) -> Callable[[], Any]:
        text, calls = self._text, self._calls
        return lambda: ToolAnswer(text, tuple(ToolCall(one.name, copy.deepcopy(one.arguments)) for one in calls))


class _LastValue:
    """Of what has no parts."""

    def __init__(self) -> None:
        self._value: Any = None

    def feed(self, text: str, so_far: str) -> list[str]:
        return []

    def end(self, result: GuidedResult) -> list[str]:
        self._value = result.value
        return [""] if result.finish_reason == "stop" and result.error is None else []

    def snapshot(self) -> Callable[[], Any]:
        value = self._value
        return lambda: value


def _values_of(constraint: Constraint | None) -> _Values:
    if isinstance(constraint, (JsonSchema, JsonObject)):
        return _JsonValues()
    return _CallValues(constraint) if isinstance(constraint, ToolCalls) else _LastValue()


class PartialRow:
    """One answer, from its first token to its result.

    Args:
        index: which one.
        reader: reads its tokens.
    """

    def __init__(self, index: int, reader: RowReader):
        self._index = index
        self._reader = reader
        self._split = None if reader.gate is None else reader.gate.splitter(reader.opening)
        self._values = _values_of(reader.constraint)
        self._decode_text, self._decode_thinking = utf8_decoder(), utf8_decoder()
        self._text = ""
        self._thinking = None if reader.gate is None or reader.opening is Opening.ALL else ""
        self._closed: list[str] = []
        self._heard = 0
        self.ended = False
        self._add(b"", reader.prefix)

    def hear(self, token_ids: Sequence[int]) -> Partial | None:
        """Take tokens.

        Returns:
            What there is now; None if that is nothing new.
        """
        before = self._text, self._thinking
        self._take(token_ids)
        if self._reader.stopped:
            return self._end()
        return self._partial(None) if self._closed or before != (self._text, self._thinking) else None

    def end(self, token_ids: Sequence[int]) -> Partial:
        """The call has returned, and the answer had not ended before.

        Args:
            token_ids: all of the row, with or without padding.
        """
        self._take(token_ids[self._heard :])
        return self._end()

    def _take(self, token_ids: Sequence[int]) -> None:
        self._heard += len(token_ids)
        data = self._reader.take(token_ids)
        self._add(*((b"", data) if self._split is None else self._split.take(data)))

    def _end(self) -> Partial:
        self.ended = True
        rest = b"" if self._split is None else self._split.rest()
        self._add(rest, b"", final=True)
        result = self._reader.result()
        self._closed += self._values.end(result)
        return self._partial(result)

    def _add(self, thinking: bytes, answer: bytes, *, final: bool = False) -> None:
        if self._thinking is not None:
            self._thinking += self._decode_thinking.decode(thinking, final)
        text = self._decode_text.decode(answer, final)
        self._text += text
        if text:
            self._closed += self._values.feed(text, self._text)

    def _partial(self, result: GuidedResult | None) -> Partial:
        closed, self._closed = tuple(self._closed), []
        return Partial(self._index, self._text, closed, self._thinking, result, self._values.snapshot())
