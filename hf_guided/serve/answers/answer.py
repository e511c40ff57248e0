"""One answer as it grows: its parts, its finish reason, its log probabilities, and its tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...session.logprobs import TokenLogprob
from ..job import EndReason
from .reader import AnswerReader, CallArguments, CallBegins, Format, Part, Text, Thinking

FinishReason = Literal["stop", "length", "tool_calls"]
_LEAST = -9999.0  # for -inf: JSON has no infinities


class ShownToken(NamedTuple):
    """A token with its bytes as text, its log probability, and its alternatives, the most likely first.

    Log probabilities are the model's own: before the mask, penalties and temperature.
    """

    data: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...]


class Delta(NamedTuple):
    """What further tokens add to an answer.

    Args:
        parts: in order.
        logprobs: of the tokens of the text that has been passed on.
    """

    parts: list[Part]
    logprobs: list[ShownToken]


@dataclass
class Call:
    """A tool call so far."""

    name: str
    id: str
    arguments: str = ""


@dataclass
class Content:
    """An answer's parts so far, joined."""

    text: str = ""
    thinking: str = ""
    calls: list[Call] = field(default_factory=list)

    def add(self, parts: Iterable[Part]) -> None:
        """Append parts."""
        for part in parts:
            if isinstance(part, Text):
                self.text += part.text
            elif isinstance(part, Thinking):
                self.thinking += part.text
            elif isinstance(part, CallBegins):
                self.calls.append(Call(part.name, part.id))
            elif isinstance(part, CallArguments):
                self.calls[part.number].arguments += part.text


class Answer:
    """One answer, from tokens to parts.

    Args:
        index: in the whole response.
        format: how its tokens are to be read.
        prompt: token ids.
        top_logprobs: how many alternatives of each token are reported; None: no log probabilities.
    """

    def __init__(self, index: int, format: Format, prompt: Sequence[int], top_logprobs: int | None = None):
        self.index = index
        self.content = Content()
        self.logprobs: list[ShownToken] = []  # all that have been given
        self.finish_reason: FinishReason | None = None
        self.num_tokens = 0
        self.num_thinking_tokens = 0
        self._reader = AnswerReader(format, prompt)
        self._top = top_logprobs
        self._tokens: list[tuple[int, int]] = []  # where each begins and ends in the bytes of the answer
        self._reported: list[TokenLogprob] = []
        self._num_shown = 0
        self._total_logprob = 0.0

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended it, which its engine does not know."""
        return self._reader.stopped

    @property
    def has_all_logprobs(self) -> bool:
        """Whether the log probabilities of all tokens so far have come, if they are to be reported."""
        return self._top is None or len(self._reported) >= self.num_tokens

    @property
    def mean_logprob(self) -> float:
        """By which the best of several answers are chosen."""
        return self._total_logprob / max(1, len(self._reported))

    def take(self, token_ids: Sequence[int], logprobs: Sequence[TokenLogprob] = ()) -> Delta:
        """Add tokens, and log probabilities of these or of earlier ones; nothing after the end."""
        if self.finish_reason is not None:
            return Delta([], [])
        start = self._reader.num_bytes
        self.num_tokens += len(token_ids)
        if self._top is not None or self._reader.answer_start is None:
            for token_id in token_ids:
                end = start + len(self._reader.data(token_id))
                self._tokens.append((start, end))
                start = end
        parts = list(self._reader.feed(token_ids))
        self._reported += logprobs
        self._total_logprob += sum(token.logprob for token in logprobs)
        return self._delta(parts)

    def end(self, reason: EndReason) -> Delta:
        """The last of it."""
        if self.finish_reason is not None:
            return Delta([], [])
        parts = list(self._reader.finish())
        delta = self._delta(parts, ended=True)
        start = self._reader.answer_start
        if start != 0:
            self.num_thinking_tokens = sum(start is None or end <= start for _, end in self._tokens)
        called = reason == "stop" and self.content.calls
        self.finish_reason = "tool_calls" if called else reason
        return delta

    def _delta(self, parts: list[Part], *, ended: bool = False) -> Delta:
        self.content.add(parts)
        new = self._new_logprobs(ended=ended) if self._top is not None else []
        self.logprobs += new
        return Delta(parts, new)

    def _new_logprobs(self, *, ended: bool) -> list[ShownToken]:
        """Those of the tokens of the text that has been passed on: not of its thinking, nor of calls."""
        new = []
        start_of_text, end_of_text = self._reader.answer_start, self._reader.text_end
        while self._num_shown < min(len(self._tokens), len(self._reported)):
            start, end = self._tokens[self._num_shown]
            if end > end_of_text and not (ended and start < end_of_text):
                break
            if end > start and start_of_text is not None and end > start_of_text:
                token = self._reported[self._num_shown]
                name, top = self._reader.name, token.top.raw[: self._top]
                shown = tuple((name(token_id), _finite(logprob)) for token_id, logprob in top)
                new.append(ShownToken(name(token.token_id), _finite(token.logprob), shown))
            self._num_shown += 1
        return new


def _finite(logprob: float) -> float:
    return logprob if math.isfinite(logprob) else _LEAST
