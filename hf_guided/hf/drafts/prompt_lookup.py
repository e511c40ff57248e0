"""Drafts from the text itself: the tokens that followed an earlier occurrence of the last few tokens.

Works well if the answer quotes the prompt, or repeats itself (Saxena 2023, "Prompt lookup decoding").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidArgument
from .base import Draft, DraftRequest, Warp

_TRIES = 4  # matches tried while the grammar refuses the tokens after them


class PromptLookup:
    """Proposes the tokens after the latest earlier occurrence of the longest n-gram that ends the text.

    Args:
        max_ngram: tokens of the longest n-gram, 1 or more.
        num_tokens: the maximum number of draft tokens.
    """

    def __init__(self, max_ngram: int = 3, num_tokens: int = 10):
        for name, value in ("max_ngram", max_ngram), ("num_tokens", num_tokens):
            if type(value) is not int or value < 1:
                raise InvalidArgument(f"{name}: expected an int of 1 or more, got {value!r}")
        self._max_ngram, self._num_tokens = max_ngram, num_tokens

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See ``DraftSource.propose``."""
        return [self._propose(request) for request in requests]

    def reset(self, warp: Warp | None = None) -> None:
        """There is no state to reset."""

    def _propose(self, request: DraftRequest) -> Draft:
        length = min(self._num_tokens, request.limit)
        if length < 1:
            return Draft()
        ids = np.array(request.token_ids, np.int64)
        for _, end in zip(range(_TRIES), self._matches(ids), strict=False):
            if tokens := request.legal(ids[end : end + length].tolist()):
                return Draft(tokens)
        return Draft()

    def _matches(self, ids: NDArray[np.int64]) -> Iterator[int]:
        """Positions after earlier occurrences: longer n-grams first, for equal lengths the latest first."""
        if len(ids) < 2:
            return
        # The positions after an occurrence of n tokens are among those after the last n - 1 of them.
        ends = np.flatnonzero(ids[:-1] == ids[-1]) + 1
        by_length = [ends]
        for n in range(2, min(self._max_ngram, len(ids) - 1) + 1):
            ends = ends[ends >= n]
            ends = ends[ids[ends - n] == ids[-n]]
            by_length.append(ends)
        longer: NDArray[np.int64] = ends[:0]
        for ends in reversed(by_length):
            yield from np.setdiff1d(ends, longer, assume_unique=True)[::-1].tolist()
            longer = ends
