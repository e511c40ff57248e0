"""The interface of a source of drafts, and how long its drafts should be.

The model verifies draft tokens in one forward pass (verify.py), so a wrong draft costs a little time and changes
nothing. A source proposes only legal tokens: the row's grammar accepts every one of them, and none follows a stop
token.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from ...session.row import Row

# (token ids before each position, scores (positions, vocab) float32) -> new scores (temperature, top-k ...).
Warp: TypeAlias = Callable[[Sequence[Sequence[int]], Tensor], Tensor]


@dataclass(frozen=True)
class DraftRequest:
    """A request for a draft for one row."""

    index: int  # the row's number in the batch, the same through a whole generate() call
    row: Row  # its state in the grammar; read only: a source that advances it forks it first
    token_ids: Sequence[int]  # prompt and output so far, without padding; never written
    prompt_length: int
    limit: int  # the maximum number of draft tokens
    stop_token_ids: Sequence[int]
    prefix: bytes = b""  # beginning of the answer that the prompt already contains; the row has read it
    padded_size: int = sys.maxsize  # width of the model's logits; a prompt may hold tokens beyond it, such as images

    def legal(self, token_ids: Sequence[int]) -> list[int]:
        """The tokens up to the limit, up to and including a stop token, and before one that cannot be written."""
        wanted = list(takewhile(lambda token_id: token_id < self.padded_size, token_ids[: max(self.limit, 0)]))
        stop = next((i + 1 for i, token_id in enumerate(wanted) if token_id in self.stop_token_ids), len(wanted))
        return wanted[: self.row.num_taken(wanted[:stop])]


@dataclass(frozen=True, eq=False)
class Draft:
    """Tokens that may come next."""

    tokens: Sequence[int] = ()
    # The distribution that each was sampled from, (tokens, vocab) float32 on the drafting model's device; None if the
    # source is certain.
    probabilities: Tensor | None = None


@runtime_checkable
class DraftSource(Protocol):
    """Proposes tokens for the rows of a batch; serves one generate() call at a time."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """A draft for each row; an empty one if the source has none.

        Args:
            requests: any rows of the batch, each at most once; earlier drafts may have been accepted in part, and other
                tokens may have followed.
        """
        ...

    def reset(self, warp: Warp | None = None) -> None:
        """Start a new generate() call: row numbers now mean other rows.

        Args:
            warp: changes masked scores before tokens are sampled; None if the most likely tokens are taken.
        """
        ...


class DraftLength:
    """Adapts to each row: doubles after a fully correct draft, otherwise moves halfway to the correct length."""

    START, LEAST, MOST = 5, 1, 16  # tokens of a row's first draft, of its shortest, from which it recovers, and longest

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    def wanted(self, index: int) -> int:
        """Tokens to draft for this row now."""
        return self._lengths.get(index, self.START)

    def observe(self, index: int, drafted: int, accepted: int) -> None:
        """Take the number of a row's draft tokens that were accepted.

        A correct draft that was shorter than wanted says nothing about longer ones.
        """
        length = self.wanted(index)
        if accepted < drafted:
            self._lengths[index] = max(self.LEAST, (min(drafted, length) + accepted) // 2)
        elif drafted >= length:
            self._lengths[index] = min(self.MOST, 2 * length)
