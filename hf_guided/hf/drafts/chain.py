"""Sources asked in turn."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Asked, Draft, DraftSource, Warp


class Several:
    """Gives each row the draft of the first source that has one for it.

    Args:
        sources: in the order they are asked; the surest, or the cheapest, first.
    """

    def __init__(self, sources: Sequence[DraftSource]):
        self._sources = tuple(sources)

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See ``DraftSource.propose``. A source is asked only for the rows that still have nothing."""
        drafts = [Draft()] * len(asked)
        for source in self._sources:
            empty = [i for i, draft in enumerate(drafts) if not draft.tokens]
            if not empty:
                break
            for i, draft in zip(empty, source.propose([asked[i] for i in empty]), strict=True):
                drafts[i] = draft
        return drafts

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        for source in self._sources:
            source.reset(warp)
