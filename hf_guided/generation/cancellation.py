"""Ends a running call from another thread, at its next token.

The call looks at the flag wherever a token has been chosen: loops of ours through a listener, transformers' own loops
through a logits processor. ``hg.agenerate`` leaves the flag in a context variable, where the plan of the call that it
makes finds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from threading import Event

from torch import Tensor
from transformers import LogitsProcessor

from ..hf.decode.streamers import TokenListener


class Cancelled(BaseException):
    """Nobody wants the answer any more. Not an Exception, so that no handler on the way takes it for an error."""


class Cancellation(Event):
    """A flag that any thread may set."""

    def check(self) -> None:
        """Raise ``Cancelled`` if the flag is set."""
        if self.is_set():
            raise Cancelled


_next: ContextVar[Cancellation | None] = ContextVar("hf_guided_cancellation", default=None)


def hand_over(cancellation: Cancellation) -> None:
    """Let the next ``hg.generate`` call of this context be ended by it."""
    _next.set(cancellation)


def take() -> Cancellation | None:
    """What was handed over, for the call that takes it alone: not for calls that its callbacks make."""
    cancellation = _next.get()
    _next.set(None)
    return cancellation


class CancelledListener(TokenListener):
    """Checks the flag at the tokens of our own loops."""

    def __init__(self, cancellation: Cancellation):
        self._cancellation = cancellation

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        """See ``TokenListener``."""
        self._cancellation.check()


class CancelledProcessor(LogitsProcessor):  # type: ignore[misc]  # transformers is untyped here
    """Checks the flag in transformers' own loops, beam search included; leaves the scores as they are."""

    def __init__(self, cancellation: Cancellation):
        self._cancellation = cancellation

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), unchanged."""
        self._cancellation.check()
        return scores
