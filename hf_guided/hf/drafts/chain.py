"""A chain of sources of drafts."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Draft, DraftRequest, DraftSource, Warp


class DraftChain:
    """Gives each row the draft of the first source that has one for it.

    Args:
        sources: in the order of the calls: the most reliable, or the cheapest, first.
    """

    def __init__(self, sources: Sequence[DraftSource]):
        self._sources = tuple(sources)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``. Each source is called only for the rows that have no draft yet."""
        drafts = [Draft()] * len(requests)
        for source in self._sources:
            empty = [i for i, draft in enumerate(drafts) if not draft.tokens]
            if not empty:
                break
            for i, draft in zip(empty, source.propose([requests[i] for i in empty]), strict=True):
                drafts[i] = draft
        return drafts

    def reset(self, warp: Warp | None = None) -> None:
        """See ``DraftSource.reset``."""
        for source in self._sources:
            source.reset(warp)
