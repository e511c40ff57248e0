"""Appends what the grammar leaves no choice about, and shows it."""

from __future__ import annotations

from typing import Any

from ..forced import ForcedText
from ..session import Session
from .line import Line
from .stopping import RowStops


class Jumps:
    """What is done to a row behind every token that was chosen for it, and at its start.

    Args:
        session: the constraints.
        stops: when a row ends.
        forced: finds forced text; None samples it like all other text.
        streamer: gets every token of a single row; or None.
    """

    def __init__(self, session: Session, stops: RowStops, forced: ForcedText | None, streamer: Any):
        self._session = session
        self._stops = stops
        self._forced = forced
        self._streamer = streamer

    def __call__(self, line: Line) -> None:
        """Append the forced text that comes next, and hand the streamer what it does not have yet."""
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
        if self._streamer is not None:
            line.stream(self._streamer)
