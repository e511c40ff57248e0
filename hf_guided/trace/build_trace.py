"""Builds a trace from a recording: adds the tokens' text, and a description of the constraint."""

from __future__ import annotations

from ..constraints.values import Constraint
from ..vocabulary.tokens import Vocabulary
from .events import RowRecord
from .page import TokenText
from .trace import Trace

_MOST_CHARACTERS = 400  # characters of a constraint


def trace_of(record: RowRecord, vocabulary: Vocabulary, constraint: Constraint | None) -> Trace:
    """A trace of one row.

    Args:
        record: the recording.
        vocabulary: of its tokens.
        constraint: of the row; None for a free row.
    """
    ids = {token.token_id for token in record.tokens}
    for token in record.tokens:
        ids.update(alternative.token_id for alternative in (() if token.look is None else token.look.best))
    texts = {
        token_id: TokenText(
            vocabulary.token_bytes[token_id] if vocabulary.is_text(token_id) else None, vocabulary.token_text(token_id)
        )
        for token_id in ids
    }
    description = "anything" if constraint is None else str(constraint)
    if len(description) > _MOST_CHARACTERS:
        description = f"{description[: _MOST_CHARACTERS - 1]}…"
    return Trace(record, texts, description, vocabulary.padded_size)
