"""Ends a running call from another thread, at its next token.

The call checks a flag after each chosen token: our own loops through a listener, transformers' loops through a logits
processor. ``hg.agenerate`` puts the flag into a context variable, from which the plan of its call takes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from threading import Event

from torch import Tensor
from transformers import LogitsProcessor

from ..hf.listening import TokenListener


class Cancelled(BaseException):
    """The caller no longer wants the answer. Not an Exception, so that no handler takes it for an error."""


class Cancellation(Event):
    """A flag that any thread may set."""

    def check(self) -> None:
        """Raise ``Cancelled`` if the flag is set."""
        if self.is_set():
            raise Cancelled


_next: ContextVar[Cancellation | None] = ContextVar("hf_guided_cancellation", default=None)


def hand_over(cancellation: Cancellation) -> None:
    """Give the flag to the next ``hg.generate`` call of this context."""
    _next.set(cancellation)


def take() -> Cancellation | None:
    """The flag for this call, removed from the context, so that calls made by its callbacks do not get it."""
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
    """Checks the flag in transformers' own loops, beam search included; returns the scores unchanged."""

    def __init__(self, cancellation: Cancellation):
        self._cancellation = cancellation

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (rows, vocab), unchanged."""
        self._cancellation.check()
        return scores
