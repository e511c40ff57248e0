"""The certain part of an answer during generation: its text, and the parts of its value that have closed."""

from __future__ import annotations

import codecs
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic

from ..constraints.tool_calls import ToolAnswer, ToolCall, ToolCalls
from ..constraints.values import Constraint, JsonObject, JsonSchema
from ..session.logprobs import TokenLogprob
from ..session.reasoning import Opening
from ..session.result import GuidedResult, RowReader, with_dead_end
from ..session.result_types import PartialT, T
from .partial_values import PartialJson, model_in, typed_part


@dataclass(frozen=True)
class Partial(Generic[T, PartialT]):
    """The certain part of one answer at one moment; nothing of it changes later.

    For type checkers the first type argument is the type of ``result.value``, the second that of ``value``: the model
    for a Pydantic class, the result of ``parse`` for a constraint, and Any for every other Python type, whose value is
    plain JSON data until the answer ends.

    Args:
        index: of the answer among the results of ``hg.generate``.
        text: the text so far, in whole characters; all later text begins with it.
        closed: JSON pointers to the parts of ``value`` that have closed since the last Partial of this answer, in that
            order; "" is the whole.
        thinking: the text before the answer, so far; None if the row does not think.
        logprobs: with ``logprobs``, the entries that became known since the last Partial of this answer, in the order
            of its tokens; those of forced text come a step after the text. None if they are not recorded.
        result: at the end of the answer, the result that ``hg.generate`` returns without ``stream``.
    """

    index: int
    text: str
    closed: tuple[str, ...]
    thinking: str | None
    logprobs: tuple[TokenLogprob, ...] | None
    result: GuidedResult[T] | None
    _make: Callable[[], Any] = field(repr=False, compare=False)

    @cached_property
    def value(self) -> PartialT | None:
        """The closed parts of the value; made at the first read, and shared with no other Partial.

        Pydantic model: an instance in which the fields that have closed are set, as their types read them, and all
        others are None; ``model_fields_set`` tells a null that was written from what is still missing. The same holds
        for models inside of it, and for those in lists, dicts and unions (once it is clear which member of the union it
        is). A model whose object is open belongs to a class derived from the model and has not been validated: its
        validators run when the object closes.
        Every other JSON schema and Python type, such as a dataclass, an Enum, a set or a date: plain JSON data, that is
        dicts, lists, strings, numbers, bools and None, with the members and items that have closed. Strings close at
        their quote, numbers at the character after them. (A name that an object has twice, where its schema allows it,
        is the one thing that changes: the last value counts, and its pointer closes again.)
        Tool calls: a ``ToolAnswer`` with the calls that are complete; in an answer in the format of
        ``ToolCalls.answer`` its ``value`` is the value of this format so far, and pointers to its parts begin with
        ``/value``.
        Every other constraint: None.
        In the last Partial it is ``result.value``, an instance of the type. If the answer did not finish, or its text
        could not be read as that type, ``result.value`` is None, and this is still what had closed.
        """
        value: PartialT | None = self._make()
        return value


class _Values:
    """Finds values in a text that grows. In this class, a value without parts."""

    _value: Any = None

    def feed(self, text: str) -> list[str]:
        """Take all of the text so far; returns pointers to the parts that have closed since the last call."""
        return []

    def end(self, result: GuidedResult) -> list[str]:
        """Take the complete text; returns the same as ``feed``."""
        self._value = result.value
        return [""] if result.finish_reason == "stop" and result.error is None else []

    def snapshot(self) -> Callable[[], Any]:
        """A function that makes the current value."""
        value = self._value
        return lambda: value


class _JsonValues(_Values):
    """Plain JSON data until the answer ends, with Pydantic models in it; then the value of the result.

    Args:
        python_type: a model, or a type with models in it; None for others.
    """

    def __init__(self, python_type: Any):
        self._type = python_type
        self._json = PartialJson()
        self._text = ""
        self._final: Callable[[], Any] | None = None

    def feed(self, text: str) -> list[str]:
        self._text = text
        return self._json.feed(text)

    def end(self, result: GuidedResult) -> list[str]:
        if result.finish_reason != "stop":
            return []
        closed = self._json.end(self._text)
        if result.error is None:
            self._final = lambda: result.value
            if self._json.written(self._text).path is not None:  # nested more deeply than unfinished text is read
                closed.append("")
        return closed

    def snapshot(self) -> Callable[[], Any]:
        written = self._json.written(self._text)
        return self._final or (lambda: written.value() if self._type is None else typed_part(self._type, written))


class _CallValues(_Values):
    """Tool calls; the text is searched for them after marks that may have ended one."""

    def __init__(self, tools: ToolCalls):
        self._tools = tools
        self._length = 0  # length of the text that has been searched
        self._text = ""
        self._calls: tuple[ToolCall, ...] = ()
        self._answer: _Values | None = None  # the reader of an answer in its format

    def feed(self, text: str) -> list[str]:
        if self._tools.is_call(text) is False:
            self._answer = self._answer or _values_of(self._tools.answer)
            start, end = self._tools.plain(text)
            self._text = text[start:end]
            return [f"/value{pointer}" for pointer in self._answer.feed(self._text)]
        searched, self._length = self._length, len(text)
        if not any(end in text[max(0, searched - len(end) + 1) :] for end in self._tools.ends):
            return []
        known = len(self._calls)
        try:
            written, calls = self._tools.closed(text, known)
        except ValueError:  # the arguments are not valid in any reading: the result says so
            return []
        if calls:
            self._text, self._calls = written, self._calls + calls
        return [f"/calls/{number}" for number in range(known, len(self._calls))]

    def end(self, result: GuidedResult) -> list[str]:
        if not isinstance(result.value, ToolAnswer):
            return []
        if self._tools.answer is not None and not result.value.calls:
            self._text = result.value.text
            closed = [] if self._answer is None else self._answer.feed(self._text)
            self._answer = self._answer or _values_of(self._tools.answer)
            closed += self._answer.end(replace(result, value=result.value.value))
            return [*(f"/value{pointer}" for pointer in closed), ""]
        known = len(self._calls)
        self._text, self._calls = result.value.text, result.value.calls
        return [*(f"/calls/{number}" for number in range(known, len(self._calls))), ""]

    def snapshot(self) -> Callable[[], Any]:
        text, calls = self._text, self._calls
        if self._answer is not None:
            value = self._answer.snapshot()
            return lambda: ToolAnswer(text, (), value())
        return lambda: ToolAnswer(text, tuple(replace(call, arguments=copy.deepcopy(call.arguments)) for call in calls))


def _values_of(constraint: Constraint | None) -> _Values:
    if isinstance(constraint, (JsonSchema, JsonObject)):
        return _JsonValues(model_in(constraint.python_type) if isinstance(constraint, JsonSchema) else None)
    return _CallValues(constraint) if isinstance(constraint, ToolCalls) else _Values()


class PartialRow:
    """One answer, from its first token to its result.

    Args:
        index: of the answer.
        reader: reads its tokens.
        logprobs: whether log probabilities are recorded; the answer's end then waits for them.
        traced: whether the answer's end waits for the end of the batch, when its trace is complete.
        with_limit: adds to the result what the token limit did to the answer; called when that has ended.
    """

    def __init__(
        self,
        index: int,
        reader: RowReader,
        *,
        logprobs: bool = False,
        traced: bool = False,
        with_limit: Callable[[GuidedResult], GuidedResult] = lambda result: result,
    ):
        self._index = index
        self._reader = reader
        self._split = reader.splitter()
        self._values = _values_of(reader.constraint)
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decode_text, self._decode_thinking = decoder("replace"), decoder("replace")
        self._text = ""
        self._thinking = None if reader.opening is Opening.ALL else ""
        self._closed: list[str] = []
        self._num_tokens = 0
        self._entries: list[TokenLogprob] | None = [] if logprobs else None
        self._shown = 0  # number of entries that were shown
        self._traced = traced
        self._with_limit = with_limit
        self.ended = False
        self._add(b"", reader.prefix)

    def add_tokens(self, token_ids: Sequence[int]) -> Partial | None:
        """Take tokens, and return the new Partial; None if nothing is new."""
        before = self._text, self._thinking
        self._take(token_ids)
        if self._complete:
            return self._end()
        return self._partial(None) if self._closed or before != (self._text, self._thinking) else None

    def on_logprobs(self, entries: Sequence[TokenLogprob]) -> Partial | None:
        """Take the log probabilities of the next tokens; returns the last Partial, if it only waited for them."""
        assert self._entries is not None
        self._entries += entries
        return self._end() if self._complete else None

    def end(
        self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None = None, dead_end: str | None = None
    ) -> Partial:
        """End the answer when the call has returned, if it has not ended before.

        The tokens are all of the row, with or without padding, and the entries those of all of them, or more.
        ``dead_end`` is why the call had to end the row.
        """
        self._take(token_ids[self._num_tokens :])
        self._entries = None if logprobs is None else list(logprobs)
        return self._end(dead_end)

    @property
    def _complete(self) -> bool:
        known = self._entries is None or len(self._entries) >= self._reader.num_taken
        return self._reader.stopped and known and not self._traced

    def _take(self, token_ids: Sequence[int]) -> None:
        self._num_tokens += len(token_ids)
        self._add(*self._split.take(self._reader.take(token_ids)))

    def _end(self, dead_end: str | None = None) -> Partial:
        self.ended = True
        self._add(self._split.rest(), b"", final=True)
        result = self._with_limit(with_dead_end(self._reader.result(), dead_end))
        if self._entries is not None:
            del self._entries[len(result.token_ids) :]  # tokens after the row left its constraint
            result = replace(result, logprobs=list(self._entries))
        self._closed += self._values.end(result)
        return self._partial(result)

    def _add(self, thinking: bytes, answer: bytes, *, final: bool = False) -> None:
        if self._thinking is not None:
            self._thinking += self._decode_thinking.decode(thinking, final)
        text = self._decode_text.decode(answer, final)
        self._text += text
        if text:
            self._closed += self._values.feed(self._text)

    def _partial(self, result: GuidedResult | None) -> Partial:
        closed, self._closed = tuple(self._closed), []
        fresh = None
        if self._entries is not None:
            known = self._entries[: self._reader.num_taken]
            fresh, self._shown = tuple(known[self._shown :]), len(known)
        return Partial(self._index, self._text, closed, self._thinking, fresh, result, self._values.snapshot())
