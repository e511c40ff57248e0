"""The plain seam: a LogitsProcessor for ``model.generate(logits_processor=[...])``, any generation mode.

generate() calls a processor when the forward pass has been started, and stopping criteria before that. So a criterion
that stops nothing is the place where the next masks can be begun: that is what a processor's ``companion`` is.
"""

from __future__ import annotations

import inspect

import torch
from transformers import LogitsProcessor, StoppingCriteria

from ..session.session import Session
from ..session.stats import SessionStats
from ..trace.recorder import Recorder


class MaskCompanion(StoppingCriteria):  # type: ignore[misc]  # transformers is untyped here
    """Shows the session the tokens that were just chosen; never stops anything. A processor's ``companion``."""

    def __init__(self, session: Session):
        self._session = session

    def __call__(self, input_ids: torch.LongTensor, scores: object, **kwargs: object) -> torch.Tensor:
        """Begin on the next masks; see ``Session.foresee``.

        Returns:
            (rows,) bool on the device of ``input_ids``: False everywhere.
        """
        self._session.foresee(input_ids)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


class GuidedLogitsProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Keeps every row inside its constraint. Made by ``Guide.logits_processor``.

    One processor serves any number of generate() calls, one after another. How it tells a new prompt from a
    continuation stands in tracker.py; ``reset()`` always begins a new one. Not to be shared by generate() calls that
    run at the same time.
    """

    def __init__(self, session: Session):
        self._session = session
        self._companion = MaskCompanion(session)

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.Tensor:
        """Mask one step; see ``Session.mask`` for shapes, devices and errors."""
        return self._session.mask(input_ids, scores)

    # generate() looks at the signature before every call; one that is kept costs it a third.
    __call__.__signature__ = inspect.signature(__call__)  # type: ignore[attr-defined]

    def reset(self) -> None:
        """Begin anew: the next call is a new prompt whatever its tokens are."""
        self._session.reset()

    @property
    def companion(self) -> MaskCompanion:
        """A stopping criterion that has the masks filled while the forward pass runs; without it, they are behind it.

        ``generate(logits_processor=[processor], stopping_criteria=[processor.companion])``. It stops nothing.
        """
        return self._companion

    @property
    def recorder(self) -> Recorder | None:
        """What writes down what is done; None without ``trace=True``. ``Guide.trace`` reads it."""
        return self._session.recorder

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        """Tokens that end a row."""
        return self._session.stop_token_ids

    @property
    def stats(self) -> SessionStats:
        """What this processor has done so far."""
        return self._session.stats
