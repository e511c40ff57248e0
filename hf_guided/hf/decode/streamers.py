"""Listeners: objects that get tokens while they are generated.

A listener gets final tokens only: those of confirmed drafts, none of rejected ones, none of a step that is undone.
Our own loops call it directly (sequence_state.py); transformers' loops call a streamer, which can wrap a listener.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.generation.streamers import BaseStreamer

from ...session.logprobs import TokenLogprob


class RowListener(ABC):
    """Hears of the output of every row. What it raises ends the call."""

    @abstractmethod
    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        """Take tokens of a row, at least one, each once and in order; called on the thread that generates."""

    def on_logprobs(self, row: int, entries: Sequence[TokenLogprob]) -> None:  # noqa: B027  # most have no use for it
        """Take the log probabilities of a row's next tokens, where loops of ours record them.

        Those of forced text come one forward pass after its tokens; otherwise as ``hear``.
        """


class OneRowListener(RowListener):
    """Tells a streamer of transformers about the only row there is."""

    def __init__(self, streamer: Any):
        self._streamer = streamer

    def hear(self, row: int, token_ids: Sequence[int]) -> None:
        """See ``RowListener``."""
        self._streamer.put(torch.tensor(token_ids))


class RowStreamer(BaseStreamer):  # type: ignore[misc]  # transformers is untyped here
    """What transformers' own loops take for a streamer; tells a listener of all rows, up to their stop tokens.

    Args:
        listener: to be told.
        stop_token_ids: what ends a row; behind one comes padding.
    """

    def __init__(self, listener: RowListener, stop_token_ids: Iterable[int]):
        self._listener = listener
        self._stops = frozenset(stop_token_ids)
        self._open: list[bool] | None = None

    def put(self, value: Tensor) -> None:
        """The prompts, (rows, length); then a token of each row, (rows,), or several of the only one, (1, tokens)."""
        if self._open is None:
            self._open = [True] * len(value)
            return
        for row, token_ids in enumerate(value.reshape(len(self._open), -1).tolist()):
            if self._open[row]:
                self._listener.hear(row, token_ids)
                self._open[row] = self._stops.isdisjoint(token_ids)

    def end(self) -> None:
        """Nothing more comes; the call returns."""
