"""Drafts from the text itself: what came the last time that the last few tokens stood there.

Good where the answer quotes the prompt, or repeats itself (Saxena 2023, "Prompt lookup decoding").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidArgument
from .base import Asked, Draft, Warp

_TRIES = 4  # matches looked at, where the grammar refuses what came behind them


class PromptLookup:
    """Proposes what follows the latest earlier occurrence of the longest n-gram that ends the text.

    Args:
        max_ngram: tokens of the longest n-gram, 1 or more.
        num_tokens: tokens drafted, at most.
    """

    def __init__(self, max_ngram: int = 3, num_tokens: int = 10):
        for name, value in ("max_ngram", max_ngram), ("num_tokens", num_tokens):
            if type(value) is not int or value < 1:
                raise InvalidArgument(f"{name}: expected an int of 1 or more, got {value!r}")
        self._max_ngram, self._num_tokens = max_ngram, num_tokens

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(one) for one in asked]

    def reset(self, warp: Warp | None = None) -> None:
        """Nothing is kept."""

    def _propose(self, asked: Asked) -> Draft:
        length = min(self._num_tokens, asked.limit)
        if length < 1:
            return Draft()
        ids = np.array(asked.token_ids, np.int64)
        for _, place in zip(range(_TRIES), self._matches(ids), strict=False):
            if tokens := asked.legal(ids[place : place + length].tolist()):
                return Draft(tokens)
        return Draft()

    def _matches(self, ids: NDArray[np.int64]) -> Iterator[int]:
        """Places behind earlier occurrences: of longer n-grams first, of equally long ones the latest first."""
        if len(ids) < 2:
            return
        # The places behind an occurrence of n tokens are among those behind the last n - 1 of them.
        behind = np.flatnonzero(ids[:-1] == ids[-1]) + 1
        by_length = [behind]
        for n in range(2, min(self._max_ngram, len(ids) - 1) + 1):
            behind = behind[behind >= n]
            behind = behind[ids[behind - n] == ids[-n]]
            by_length.append(behind)
        longer: NDArray[np.int64] = behind[:0]
        for places in reversed(by_length):
            yield from np.setdiff1d(places, longer, assume_unique=True)[::-1].tolist()
            longer = places
