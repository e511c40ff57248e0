"""Appends what the grammar leaves no choice about, and shows it."""

from __future__ import annotations

from ...session.session import Session
from ..drafts.forced_text import ForcedText
from .sequence_state import Line
from .stopping import RowStops


class Jumps:
    """What is done to a row behind every token that was chosen for it, and at its start.

    Args:
        session: the constraints.
        stops: when a row ends.
        forced: finds forced text; None samples it like all other text.
    """

    def __init__(self, session: Session, stops: RowStops, forced: ForcedText | None):
        self._session = session
        self._stops = stops
        self._forced = forced

    def __call__(self, line: Line) -> None:
        """Append the forced text that comes next, and tell of all that is new."""
        if self._forced is not None and not line.over:
            left, stats = self._session.tokens_left(line.num_generated), self._session.stats
            forced = self._forced.advance(line.row, line.token_ids, left, loose=line.unfed > 0)
            if forced.taken_back:
                del line.token_ids[-forced.taken_back :]
                line.unfed -= forced.taken_back
            added = line.append(forced.token_ids, self._stops)
            stats.tokens += added - forced.taken_back
            stats.forced_tokens += added - forced.taken_back
            line.likely = forced.likely
        line.tell()
