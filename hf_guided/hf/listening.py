"""Listeners: objects that get tokens while they are generated.

A listener gets only final tokens: those of confirmed drafts, none of rejected drafts, none of a step that is undone.
Our own loops call it directly (decode/sequences.py); transformers' loops call a streamer, which can wrap a listener.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from ..session.logprobs import TokenLogprob


class TokenListener(ABC):
    """Gets the output tokens of every row. An exception of a listener ends the call."""

    @abstractmethod
    def on_tokens(self, row: int, token_ids: Sequence[int]) -> bool | None:
        """Take tokens of a row: at least one, each once and in order; called on the thread that generates.

        Returns:
            True ends the row here: it gets no more tokens, and other rows continue. In transformers' own loops the row
            is only reported no further.
        """

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> None:  # noqa: B027  # most have no use for it
        """Take the log probabilities of a row's next tokens; only our own loops call it.

        For forced text it is called one forward pass after ``on_tokens``; otherwise on the same terms.
        """


class StreamerListener(TokenListener):
    """Passes the tokens of the only row to a streamer of transformers."""

    def __init__(self, streamer: Any):
        self._streamer = streamer

    def on_tokens(self, row: int, token_ids: Sequence[int]) -> None:
        """See ``TokenListener``."""
        self._streamer.put(torch.tensor(token_ids, device="cpu"))


class RowStreamer(BaseStreamer):  # type: ignore[misc]  # transformers is untyped here
    """Passes the tokens of all rows of transformers' own loops to a listener, up to their stop tokens."""

    def __init__(self, listener: TokenListener, stop_token_ids: Iterable[int]):
        self._listener = listener
        self._stops = frozenset(stop_token_ids)
        self._open: list[bool] | None = None

    def put(self, value: Tensor) -> None:
        """Take the prompts, (rows, length); then one token of each row, (rows,), or several of one row, (1, tokens)."""
        if self._open is None:
            self._open = [True] * len(value)
            return
        for row, token_ids in enumerate(value.reshape(len(self._open), -1).tolist()):
            if self._open[row]:
                ended = self._listener.on_tokens(row, token_ids)
                self._open[row] = not ended and self._stops.isdisjoint(token_ids)

    def end(self) -> None:
        """The call is about to return."""
