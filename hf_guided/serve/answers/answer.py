"""An answer as it grows: its parts, its finish reason, its log probabilities, and its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...constraints.tool_calls import ToolCalls
from ...guide import Guide, calls_of
from ...session.logprobs import TokenLogprob
from ...session.reasoning_gate import space_before, thinking_was_cut
from ...session.row import Row
from ..job import EndReason, Job, first_row
from .parts import (
    CallArguments,
    CallBegins,
    CallReader,
    Part,
    StopStrings,
    Text,
    TextReader,
    Thinking,
    ThinkingReader,
)

FinishReason = Literal["stop", "length", "tool_calls"]
_LEAST = -9999.0  # for -inf: JSON has no infinities


class ShownToken(NamedTuple):
    """A token with its bytes as text, its log probability, and its alternatives, the most likely first.

    Log probabilities are the model's own: before the mask, penalties and temperature.
    """

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]


class Limited(NamedTuple):
    """What limits and masks did to an answer that has ended; see ``GuidedResult``."""

    shortened: bool = False
    thinking_cut: bool = False
    log_mass: float | None = None  # None unless log probabilities are reported


NOT_LIMITED = Limited()


class Delta(NamedTuple):
    """The addition of further tokens to an answer.

    Args:
        parts: in order.
        logprobs: of the tokens of the text that has been passed on.
        finish_reason: of the answer, if it has ended with them.
        limited: what limits did to the answer, see ``Limited``.
    """

    parts: list[Part]
    logprobs: list[ShownToken]
    finish_reason: FinishReason | None = None
    limited: Limited = NOT_LIMITED


@dataclass
class Call:
    """A tool call so far."""

    name: str
    id: str
    arguments: str = ""


@dataclass
class Content:
    """An answer's parts so far, joined; ``runs`` has them in order, each call as it begins."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)
    runs: list[Text | Thinking | Call] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        """Append parts."""
        for part in parts:
            if isinstance(part, (Text, Thinking)):
                last = self.runs[-1] if self.runs else None
                if isinstance(last, (Text, Thinking)) and type(last) is type(part):
                    self.runs[-1] = type(part)(last.text + part.text)
                else:
                    self.runs.append(part)
            if isinstance(part, Text):
                self.text += part.text
            elif isinstance(part, Thinking):
                self.thinking += part.text
            elif isinstance(part, CallBegins):
                self.calls.append(Call(part.name, part.id))
                self.runs.append(self.calls[-1])
            elif isinstance(part, CallArguments):
                self.calls[part.number].arguments += part.text


class Answer:
    """An answer, from tokens to parts; each part is given as soon as its kind is known."""

    def __init__(self, index: int, job: Job, guide: Guide):
        constraint, compiled = job.guided.constraint, job.guided.compiled
        # All that the constraint writes is text in its vocabulary.
        vocabulary = guide.vocabulary if compiled is None else compiled.result().vocabulary
        gate = None if job.guided.gate is None else job.guided.gate.for_vocabulary(vocabulary)
        self.index = index
        self.content = Content()
        self.logprobs: list[ShownToken] = []  # all that have been given
        self.finish_reason: FinishReason | None = None
        self.limited = NOT_LIMITED
        self.num_tokens = 0
        self.num_thinking_tokens = 0
        self.vocabulary = vocabulary if gate is None else gate.vocabulary
        self._stop_token_ids = frozenset(job.stop_token_ids)
        self._stops = StopStrings(job.stop)
        self._thinking = None
        self._row, self._limit = Row(None), None  # in its thinking: where that ends, the row says whether it was cut
        if gate is not None:
            stops = guide.vocabulary.stops_with_logits(job.stop_token_ids)
            self._row, self._limit = first_row(job, stops, job.prompt)
            self._thinking = ThinkingReader(
                gate,
                job.prompt,
                free=constraint is None,
                header=calls_of(guide).answer_header.encode(),
                space=space_before(constraint, None if compiled is None else compiled.result(), gate),
            )
        self._thought = TextReader()
        self._answer = CallReader(constraint) if isinstance(constraint, ToolCalls) else TextReader()
        self._num_bytes = 0  # number of bytes of all tokens so far
        self._given = 0  # number of these bytes that are certainly before a stop string
        self._start: int | None = None if self._thinking is not None else 0  # the first byte of the answer
        self._answered = self._thinking is None  # whether it has come
        self._top = job.top_logprobs
        self._tokens: list[tuple[int, int]] = []  # where each begins and ends in the bytes of the answer
        self._reported: list[TokenLogprob] = []
        self._num_shown = 0
        self._total_logprob = 0.0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it, which its engine does not know."""
        return self._stops.found

    @property
    def has_all_logprobs(self) -> bool:
        """Whether the log probabilities of all tokens so far have come, if they are to be reported."""
        return self._top is None or len(self._reported) >= self.num_tokens

    @property
    def mean_logprob(self) -> float:
        """The measure by which the best of several answers are chosen."""
        return self._total_logprob / max(1, len(self._reported))

    def take(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> Delta:
        """Add tokens, and log probabilities of these or of earlier ones; not after the end."""
        if not self._answered:
            for token_id in token_ids:
                self._row.advance(token_id)
        pieces = [self._bytes_of(token_id) for token_id in token_ids]
        self.num_tokens += len(token_ids)
        keeps = self._top is not None or not self._answered
        for piece in pieces:
            start, self._num_bytes = self._num_bytes, self._num_bytes + len(piece)
            if keeps:
                self._tokens.append((start, self._num_bytes))
        parts = list(self._read(self._stops.feed(b"".join(pieces))))
        self._reported += logprobs
        self._total_logprob += sum(token.logprob for token in logprobs)
        return self._delta(parts)

    def end(self, reason: EndReason, *, shortened: bool = False, log_mass: float | None = None) -> Delta:
        """The last addition: the text that was held back, and what is to be shown of what limited the answer."""
        delta, start = self._delta(list(self._rest()), ended=True), self._start
        if start != 0:
            self.num_thinking_tokens = sum(start is None or end <= start for _, end in self._tokens)
        self.finish_reason = "tool_calls" if reason == "stop" and self.content.calls else reason
        log_mass = None if log_mass is None else _finite(log_mass)
        self.limited = Limited(shortened, thinking_was_cut(self._row.engine, self._limit), log_mass)
        return delta._replace(finish_reason=self.finish_reason, limited=self.limited)

    def _bytes_of(self, token_id: int) -> bytes:
        """The bytes of a token as text; a token that ends the answer has none."""
        return b"" if token_id in self._stop_token_ids else self.vocabulary.decode_bytes((token_id,))

    def _name(self, token_id: int) -> bytes:
        """The bytes of a token; of one without text its name, such as "<|im_end|>"."""
        return self._bytes_of(token_id) or str(self.vocabulary.tokenizer.convert_ids_to_tokens(token_id)).encode()

    def _read(self, data: bytes) -> Iterator[Part]:
        self._given += len(data)
        if self._thinking is not None:
            thinking, data = self._thinking.take(data)
            if thought := self._thought.decoded(thinking):
                yield Thinking(thought)
            if self._thinking.over and not self._answered:  # the space after the thinking is no part of the answer
                self._start, self._answered = self._given - len(data), bool(data)
        yield from self._answer.feed(data)

    def _rest(self) -> Iterator[Part]:
        yield from self._read(self._stops.finish())
        if self._thinking is not None:
            thinking, rest = self._thinking.finish()
            if thought := self._thought.decoded(thinking):
                yield Thinking(thought)
            if self._thinking.over and self._start is None:
                self._start = 0
            yield from self._answer.feed(rest)
            if not self._thinking.over:
                return
        yield from self._answer.finish()

    def _delta(self, parts: list[Part], *, ended: bool = False) -> Delta:
        self.content.add(parts)
        new = self._new_logprobs(ended=ended) if self._top is not None else []
        self.logprobs += new
        return Delta(parts, new)

    def _new_logprobs(self, *, ended: bool) -> list[ShownToken]:
        """Tokens of the text that has been passed on, with log probabilities; none of the thinking, nor of calls."""
        new = []
        end_of_text = (self._start or 0) + self._answer.num_given
        while self._num_shown < min(len(self._tokens), len(self._reported)):
            start, end = self._tokens[self._num_shown]
            if end > end_of_text and not (ended and start < end_of_text):
                break
            if end > start and self._start is not None and end > self._start + self._answer.num_before:
                token = self._reported[self._num_shown]
                top = tuple((self._name(other), _finite(logprob)) for other, logprob in token.top.raw[: self._top])
                new.append(ShownToken(self._name(token.token_id), _finite(token.logprob), top))
            self._num_shown += 1
        return new


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST
