"""Builds a trace from a recording: adds the tokens' text, and the constraint's automaton with the output's path."""

from __future__ import annotations

from collections.abc import Callable

from ..backends.base import CompiledConstraint
from ..constraints.values import Constraint
from ..errors import HFGuidedError
from ..vocabulary.tokens import Vocabulary
from .events import RowRecord
from .graph import Graph, TooLarge, graph_of
from .page import TokenText
from .trace import Trace

_MOST_CHARACTERS = 400  # characters of a constraint


def trace_of(
    record: RowRecord,
    vocabulary: Vocabulary,
    constraint: Constraint | None,
    *,
    automaton: Callable[[], CompiledConstraint],
    prefix: bytes = b"",
    thinks: bool = False,
) -> Trace:
    """A trace of one row.

    Args:
        record: the recording.
        vocabulary: of its tokens.
        constraint: of the row; None for a free row.
        automaton: compiles it for the native engine.
        prefix: bytes of the answer that the prompt contained.
        thinks: whether the row thinks first.
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
    graph, why_not = None, ""
    if constraint is None:
        why_not = "the answer has no constraint"
    elif thinks:
        why_not = "the answer begins with thinking, which is not part of the constraint"
    else:
        try:
            graph = _graph(automaton(), record, texts, prefix)
        except (HFGuidedError, TooLarge) as error:
            why_not = str(error).rstrip(".")
    description = "anything" if constraint is None else str(constraint)
    if len(description) > _MOST_CHARACTERS:
        description = f"{description[: _MOST_CHARACTERS - 1]}…"
    return Trace(record, texts, description, vocabulary.padded_size, graph, why_not)


def _graph(compiled: CompiledConstraint, record: RowRecord, texts: dict[int, TokenText], prefix: bytes) -> Graph:
    from ..backends.automaton import AutomatonEngine  # slow to import, and rarely needed

    engine = compiled.new_engine()
    assert isinstance(engine, AutomatonEngine)
    return graph_of(engine.language.walk.dfa, [texts[token.token_id].data for token in record.tokens], prefix)
