"""What one finished row gives back: its text, its value, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal

from ..backends.base import CompiledConstraint
from ..vocabulary.bitmask import allocate_bitmask
from ..vocabulary.tokens import Vocabulary
from .logprobs import TokenLogprob
from .reasoning import Gate, Opening
from .reasoning_gate import gated
from .requests import row_after_prefix
from .result_html import result_html
from .result_types import T
from .stats import SessionStats

if TYPE_CHECKING:
    from ..trace.trace import Trace

FinishReason = Literal["stop", "length", "dead_end"]


@dataclass(frozen=True)
class GuidedResult(Generic[T]):
    """One output row; its type argument is the type of a finished row's value.

    Args:
        text: what was generated, without stop and special tokens; behind the ``prefix``, if the prompt held one, and
            without the thinking.
        value: the text as a value of the constraint (model instance, dict, match, str ...); None if the row did not
            finish, or ``error`` says why it could not be read. A free row's value is its text.
        token_ids: generated tokens up to and with the stop token.
        finish_reason: "stop": ended by a stop token, so the text is in the language; "length": cut by a limit;
            "dead_end": left the language, because no token went on, the engine reached a limit, or something forced a
            token from outside.
        error: why a finished text could not be turned into a value (a validator stricter than the schema), or what the
            engine gave up with in a dead end; None where there is nothing to say.
        stats: what the generate() call that made this row spent on guidance; shared by the rows of the call.
        thinking: what came in front of the answer, without its markers; None where nothing was to be thought.
        logprobs: with ``logprobs``, an entry for each of ``token_ids``: how likely the token was.
        trace: how the row came to be, to look into, with ``trace=True``; a notebook shows it, ``save`` writes a page.
    """

    text: str
    value: T | None
    token_ids: list[int]
    finish_reason: FinishReason
    error: str | None = None
    stats: SessionStats | None = field(default=None, repr=False, compare=False)
    thinking: str | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False, compare=False)
    logprobs: list[TokenLogprob] | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        return result_html(
            text=self.text,
            thinking=self.thinking,
            value=self.value,
            error=self.error,
            finish_reason=self.finish_reason,
            tokens=len(self.token_ids),
            forwards=self.stats.forwards if self.stats is not None else 0,
        )


class RowReader:
    """Reads one row of output by replaying it, so that the verdict does not depend on how it was generated.

    Tokens may come a few at a time, while the row is being written. Not to be shared by threads.

    Args:
        vocabulary: of the tokenizer that wrote the tokens.
        constraint: what the caller asked for, whose ``parse`` makes the value; None for a free row.
        compiled: the same, compiled; None for a free row.
        prefix: bytes of the answer that stood in the prompt.
        stop_token_ids: tokens that end the row; None means the vocabulary's.
        pad_token_id: what stands behind a row that was cut while others went on.
        stats: attached to the result.
        gate: what stood in front of the answer, if the row thought first.
        opening: what of that the prompt held already.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        *,
        constraint: Any = None,
        compiled: CompiledConstraint | None = None,
        prefix: bytes = b"",
        stop_token_ids: Sequence[int] | None = None,
        pad_token_id: int | None = None,
        stats: SessionStats | None = None,
        gate: Gate | None = None,
        opening: Opening = Opening.ALL,
    ):
        if compiled is not None:
            compiled = compiled if gate is None else gated(compiled, gate, opening)
            vocabulary = compiled.vocabulary
        self.constraint = constraint
        self.prefix = prefix
        self.gate = gate
        self.opening = opening
        self._vocabulary = vocabulary
        self._stops = set(vocabulary.stop_token_ids if stop_token_ids is None else stop_token_ids)
        self._pad_token_id = pad_token_id
        self._stats = stats
        self._row = row_after_prefix(compiled, prefix, stop_token_ids)
        self._taken: list[int] = []
        self._refused: list[int] = []  # what came behind the end of a row that was not stopped
        self.stopped = False

    @property
    def num_taken(self) -> int:
        """How many tokens the output has."""
        return len(self._taken)

    def take(self, token_ids: Sequence[int]) -> bytes:
        """Go on by some tokens.

        Returns:
            What they add to the output; nothing comes behind its end.
        """
        before = len(self._taken)
        for token_id in token_ids:
            if self.stopped:
                break
            if self._refused or not self._row.advance(token_id) or self._row.limit:
                self._refused.append(token_id)
                continue
            self._taken.append(token_id)
            self.stopped = token_id in self._stops
        return self._vocabulary.decode_bytes(self._written(before))

    def _written(self, first: int = 0) -> list[int]:
        # A stop token given per call may be text otherwise, such as a line end.
        return self._taken[first : len(self._taken) - self.stopped]

    def read(self, token_ids: Sequence[int]) -> GuidedResult:
        """The result behind these tokens, with or without padding at the end."""
        self.take(token_ids)
        return self.result()

    def result(self) -> GuidedResult:
        """How it ended; behind the last tokens there are."""
        limit, reason = self._row.limit, self._reason()
        limit = limit or self._row.limit  # nothing was refused for it: no mask could be made for the next token
        data, thinking = self.prefix + self._vocabulary.decode_bytes(self._written()), None
        if self.gate is not None:
            thinking, data = self.gate.split(data, self.opening)
        text = data.decode(errors="replace")
        value, error = (text if self.constraint is None else None), None if limit is None else str(limit)
        if reason == "stop" and self.constraint is not None:
            try:
                value = self.constraint.parse(text)
            except Exception as exception:  # a caller's own validator may raise anything; the other rows are still good
                error = f"{type(exception).__name__}: {exception}"
        thought = None if thinking is None else thinking.decode(errors="replace")
        return GuidedResult(text, value, self._taken, reason, error, self._stats, thought)

    def _reason(self) -> FinishReason:
        if self.stopped:
            return "stop"
        if not self._refused:
            return "length"
        padded = all(token_id == self._pad_token_id for token_id in self._refused)
        # Padding behind a row that could go on: it was cut by a criterion that is not ours.
        self._row.rewind(1)
        could_go_on = self._row.fill(allocate_bitmask(1, self._vocabulary.padded_size), 0)
        return "length" if padded and could_go_on else "dead_end"
