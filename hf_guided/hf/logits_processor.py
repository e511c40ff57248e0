"""The plain seam: a LogitsProcessor for ``model.generate(logits_processor=[...])``, any generation mode."""

from __future__ import annotations

import torch
from transformers import LogitsProcessor

from ..session import Session, SessionStats


class GuidedLogitsProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every row inside its constraint. Made by ``Guide.logits_processor``.

    One processor serves any number of generate() calls, one after another. How it tells a new prompt from a
    continuation stands in tracker.py; ``reset()`` always begins a new one. Not to be shared by generate() calls that
    run at the same time.
    """

    def __init__(self, session: Session):
        self._session = session

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Mask one step; see ``Session.mask`` for shapes, devices and errors."""
        return self._session.mask(input_ids, scores)

    def reset(self) -> None:
        """Begin anew: the next call is a new prompt whatever its tokens are."""
        self._session.reset()

    @property
    def stats(self) -> SessionStats:
        """What this processor has done so far."""
        return self._session.stats
