"""Jump-forward: appends the text that the grammar forces, without a forward pass for each token."""

from __future__ import annotations

from ...session.session import Session
from ..drafts.forced_text import ForcedText
from .sequence_state import SequenceState
from .stopping import RowStops


class JumpForward:
    """Runs at the start of every row, and after every token chosen for it.

    Args:
        session: the constraints.
        stops: when a row ends.
        forced: finds forced text; None leaves it to sampling like all other text.
    """

    def __init__(self, session: Session, stops: RowStops, forced: ForcedText | None):
        self._session = session
        self._stops = stops
        self._forced = forced

    def __call__(self, sequence: SequenceState) -> None:
        """Append the forced text that comes next, and report all new tokens."""
        if self._forced is not None and not sequence.finished:
            left, stats = self._session.tokens_left(sequence.num_generated), self._session.stats
            forced = self._forced.advance(sequence.row, sequence.token_ids, left, loose=sequence.unfed > 0)
            if forced.taken_back:
                del sequence.token_ids[-forced.taken_back :]
                sequence.unfed -= forced.taken_back
            added = sequence.append(forced.token_ids, self._stops)
            stats.tokens += added - forced.taken_back
            stats.forced_tokens += added - forced.taken_back
            sequence.likely = forced.likely
        sequence.report()
