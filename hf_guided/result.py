"""What one finished row gives back: its text, its value, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from .backends.base import CompiledConstraint
from .backends.gated import gated
from .bitmask import allocate_bitmask
from .reasoning import Gate, Opening
from .requests import row_after_prefix
from .stats import SessionStats
from .vocabulary import Vocabulary

if TYPE_CHECKING:
    from .display.trace import Trace

FinishReason = Literal["stop", "length", "dead_end"]


@dataclass(frozen=True)
class GuidedResult:
    """One output row.

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
        trace: how the row came to be, to look into, with ``trace=True``; a notebook shows it, ``save`` writes a page.
    """

    text: str
    value: Any
    token_ids: list[int]
    finish_reason: FinishReason
    error: str | None = None
    stats: SessionStats | None = field(default=None, repr=False, compare=False)
    thinking: str | None = field(default=None, repr=False)
    trace: Trace | None = field(default=None, repr=False, compare=False)


def read_output(
    vocabulary: Vocabulary,
    token_ids: Sequence[int],
    *,
    constraint: Any = None,
    compiled: CompiledConstraint | None = None,
    prefix: bytes = b"",
    stop_token_ids: Sequence[int] | None = None,
    pad_token_id: int | None = None,
    stats: SessionStats | None = None,
    gate: Gate | None = None,
    opening: Opening = Opening.ALL,
) -> GuidedResult:
    """Read one row of output back by replaying it, so that the verdict does not depend on how it was generated.

    Args:
        vocabulary: of the tokenizer that wrote the tokens.
        token_ids: the row behind the prompt, with or without padding at the end.
        constraint: what the caller asked for, whose ``parse`` makes the value; None for a free row.
        compiled: the same, compiled; None for a free row.
        prefix: bytes of the answer that stood in the prompt.
        stop_token_ids: tokens that end the row; None means the vocabulary's.
        pad_token_id: what stands behind a row that was cut while others went on.
        stats: attached to the result.
        gate: what stood in front of the answer, if the row thought first.
        opening: what of that the prompt held already.
    """
    if gate is not None and compiled is not None:
        compiled, vocabulary = gated(compiled, gate, opening), gate.vocabulary
    stops = set(vocabulary.stop_token_ids if stop_token_ids is None else stop_token_ids)
    reason: FinishReason = "length"
    taken: list[int] = []
    row = row_after_prefix(compiled, prefix, stop_token_ids)
    limit = row.limit
    for place, token_id in enumerate(token_ids):
        if not row.advance(token_id) or row.limit:
            limit = row.limit
            padded = all(other == pad_token_id for other in token_ids[place:])
            row.rewind(1)
            # Padding behind a row that could go on: it was cut by a criterion that is not ours.
            could_go_on = row.fill(allocate_bitmask(1, vocabulary.padded_size), 0)
            limit = limit or row.limit  # nothing was refused for it: no mask could be made for the next token
            reason = "length" if padded and could_go_on else "dead_end"
            break
        taken.append(token_id)
        if token_id in stops:
            reason = "stop"
            break
    # A stop token given per call may be text otherwise, such as a line end.
    written = taken[:-1] if reason == "stop" else taken
    data, thinking = prefix + vocabulary.decode_bytes(written), None
    if gate is not None:
        thinking, data = gate.split(data, opening)
    text = data.decode(errors="replace")
    value, error = (text if constraint is None else None), None if limit is None else str(limit)
    if reason == "stop" and constraint is not None:
        try:
            value = constraint.parse(text)
        except Exception as exception:  # a caller's own validator may raise anything; the other rows are still good
            error = f"{type(exception).__name__}: {exception}"
    thought = None if thinking is None else thinking.decode(errors="replace")
    return GuidedResult(text, value, taken, reason, error, stats, thought)
