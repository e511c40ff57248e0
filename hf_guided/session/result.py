"""The result of one row: its text, its value, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, Literal

from ..errors import cause
from ..vocabulary.bitmask import allocate_bitmask
from ..vocabulary.tokens import Vocabulary
from .logprobs import TokenLogprob
from .options import SessionOptions
from .reasoning import Opening, Space, Splitter
from .reasoning_gate import gate_constraint, space_before, thinking_was_cut
from .requests import Request, row_after_prefix
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
        text: the generated text without stop and special tokens; after the ``prefix``, if the prompt contained one, and
            without the thinking.
        value: the text as a value of the constraint (model instance, dict, match, str ...); None if the row did not
            finish, or if ``error`` says why the text could not be read. A free row's value is its text.
        token_ids: generated tokens up to and including the stop token.
        finish_reason: "stop": a stop token ended the row, so the text satisfies the constraint; "length": a limit cut
            it; "dead_end": the row left the constraint, because no token could follow, because other processors forbade
            all allowed tokens, because the engine failed or reached a limit, or because other code forced a token.
        error: why a finished text could not be turned into a value (a validator stricter than the schema), or what
            caused a dead end; None otherwise.
        stats: time and work that the generate() call spent on guidance; shared by the rows of the call.
        thinking: the text before the answer, without its markers; None if the row did not think.
        logprobs: with ``logprobs``, an entry for each of ``token_ids``: how likely the token was.
        trace: how the row was generated, with ``trace=True``; a notebook displays it, ``save`` writes a page.
        shortened: whether the token limit changed the answer. Near the limit, only tokens after which the text can
            still end are allowed. A greedy answer is shortened if this forbade the most probable token that the format
            allows at one of its steps; a sampled one if these steps left less than half of the probability. The step at
            which a row reached a dead end counts too: other processors may have forbidden all that the limit left
            there. An answer that was only cut ("length") is not shortened: it has all that was written. None where it
            is not known: for beams, loops of other code, results that were read from tokens alone (``Guide.read``), and
            processes that hold a part of a model without choosing its tokens; ``shortened is not False`` finds these
            too.
        limit_log_mass: natural logarithm of the probability that the limits left: at each step at which the token limit
            or that of the thinking forbade tokens, the share of all that the format allows there, at temperature 1;
            summed over the steps. 0.0 if they forbade nothing; minus infinity at a dead end that the limit caused; None
            where ``shortened`` is None.
        thinking_cut: whether the thinking had to end: it had used its ``max_tokens``, or its share of the token limit,
            so that the end marker was all that was allowed. ``shortened`` does not count it; ``limit_log_mass`` does.
        log_mass: with ``log_mass=True``, the natural logarithm of the probability that the format alone left: at each
            step, the stop token's too, that of all tokens that the format allows, at temperature 1, from the scores
            that the mask is applied to (after penalties, before temperature, top-k ...); summed over the steps. Forced
            tokens count by the masks at their places. 0.0 for a free row; None where ``shortened`` is None.
    """

    text: str
    value: T | None
    token_ids: list[int] = field(repr=False)
    finish_reason: FinishReason
    error: str | None = None
    stats: SessionStats | None = field(default=None, repr=False, compare=False)
    thinking: str | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False, compare=False)
    logprobs: list[TokenLogprob] | None = field(default=None, repr=False, compare=False)
    shortened: bool | None = None
    limit_log_mass: float | None = field(default=None, repr=False, compare=False)
    thinking_cut: bool = False
    log_mass: float | None = field(default=None, repr=False, compare=False)

    def _repr_html_(self) -> str:
        return result_html(self)


def with_dead_end(result: GuidedResult[T], reason: str | None) -> GuidedResult[T]:
    """The result of a row that the session had to end for this reason, which its tokens need not show."""
    if reason is None or result.finish_reason == "stop":
        return result
    return replace(result, finish_reason="dead_end", error=reason)


class RowReader:
    """Reads one row of output by replaying it, so that the result does not depend on how it was generated.

    Tokens may be passed a few at a time, while the row is being generated. Not thread safe.

    Args:
        vocabulary: of the tokenizer that made the tokens.
        request: of the row; waits for its constraint. A row without a compiled constraint does not think.
        options: of the row's session.
        pad_token_id: padding after a row that was cut while other rows continued.
        stats: attached to the result.
        prompt: the tokens before the row, whose end may have begun the thinking, or ended it.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        request: Request,
        options: SessionOptions,
        *,
        pad_token_id: int | None = None,
        stats: SessionStats | None = None,
        prompt: Sequence[int] = (),
    ):
        compiled = None if request.compiled is None else request.compiled.result()
        self.constraint, self.prefix = request.constraint, request.prefix
        self._gate = gate = None if compiled is None else request.gate
        self.opening = Opening.ALL if gate is None else gate.opening(prompt)
        self._space = (
            Space() if gate is None or self.opening is Opening.ALL else space_before(self.constraint, compiled, gate)
        )
        if compiled is not None:
            compiled = gate_constraint(compiled, gate, self.opening)
            vocabulary = compiled.vocabulary
        self._vocabulary = vocabulary
        stops = options.stop_token_ids
        self._stops = set(vocabulary.stop_token_ids if stops is None else stops)
        self._pad_token_id = pad_token_id
        self._stats = stats
        self._max_new_tokens = options.max_new_tokens
        self._row = row_after_prefix(compiled, request.prefix, stops)
        self._taken: list[int] = []
        self._refused: list[int] = []  # tokens after the end of a row that was not stopped
        self.stopped = False

    @property
    def num_taken(self) -> int:
        """How many tokens the output has."""
        return len(self._taken)

    def take(self, token_ids: Sequence[int]) -> bytes:
        """Append tokens; returns the bytes that they add to the output, none after its end."""
        before = len(self._taken)
        for token_id in token_ids:
            if self.stopped:
                break
            if self._refused or not self._row.advance(token_id) or self._row.failure:
                self._refused.append(token_id)
                continue
            self._taken.append(token_id)
            self.stopped = token_id in self._stops
        return self._vocabulary.decode_bytes(self._written(before))

    def _written(self, first: int = 0) -> list[int]:
        # A stop token of this call may be text in the vocabulary, such as a line end.
        return self._taken[first : len(self._taken) - self.stopped]

    def splitter(self) -> Splitter:
        """Separates the thinking from the answer in the bytes of the row."""
        if self._gate is None:
            return Splitter(b"", b"", self._space, over=True)
        return self._gate.splitter(self.opening, self._space)

    def read(self, token_ids: Sequence[int]) -> GuidedResult:
        """The result after these tokens; padding at the end is ignored."""
        self.take(token_ids)
        return self.result()

    def result(self) -> GuidedResult:
        """The result after all tokens so far."""
        reason, error = self._end()
        splitter = self.splitter()
        thinking, data = splitter.take(self.prefix + self._vocabulary.decode_bytes(self._written()))
        thinking += splitter.rest()
        text = data.decode(errors="replace")
        value = text if self.constraint is None else None
        if reason == "stop" and self.constraint is not None:
            try:
                value = self.constraint.parse(text)
            except Exception as exception:  # a caller's validator may raise any error; other rows stay valid
                error = cause(exception)
        thought = None if self.opening is Opening.ALL else thinking.decode(errors="replace")
        is_cut = thinking_was_cut(self._row.engine, self._max_new_tokens)
        return GuidedResult(text, value, self._taken, reason, error, self._stats, thought, thinking_cut=is_cut)

    def _end(self) -> tuple[FinishReason, str | None]:
        """How the row ended, and the cause of a dead end, as far as the tokens show it."""
        if self.stopped:
            return "stop", None
        if not self._refused:
            return "length", None
        if self._row.failure is not None:
            return "dead_end", self._row.dead_end
        before = self._row.fork()  # the first refused token
        before.rewind(1)
        could_continue = before.fill(allocate_bitmask(1, self._vocabulary.padded_size), 0)
        if could_continue and all(token_id == self._pad_token_id for token_id in self._refused):
            return "length", None  # a criterion of generate() cut a row that could continue
        if before.dead_end:
            return "dead_end", before.dead_end
        if self._refused[0] in self._stops:
            return "dead_end", "the row was stopped here, though its constraint could continue"
        name = self._vocabulary.token_text(self._refused[0])
        return "dead_end", f"other code forced the token {name} ({self._refused[0]}), which is not allowed here"
