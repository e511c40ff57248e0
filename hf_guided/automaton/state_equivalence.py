"""Which states go on alike for some bytes: then the same tokens fit, and a walk from one serves the other.

Both are followed side by side: pairs of states that lead into different states become the next pairs. Most pairs that
go on alike soon meet in one state, or in pairs that were there before.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa

_REMEMBERED = 4  # states that begin alike; the last ones walked
_LATE = 4  # bytes; states that part later are of one kind, and so is the next one that was walked
_MOST_PAIRS = 200  # comparing more takes as long as a walk


class Alike:
    """States that were walked; thread safe.

    Args:
        dfa: the language.
        can_end: (states,) where tokens may lead.
    """

    def __init__(self, dfa: ByteDfa, can_end: NDArray[np.bool_]):
        self._table = dfa.table
        self._kind = np.where(can_end, 1, 2).astype(np.uint8)
        self._kind[0] = 0
        self._walked: dict[bytes, list[tuple[int, int]]] = {}  # by what their next byte may be, the last one first
        self._lock = threading.Lock()

    def add(self, state: int, longest: int) -> None:
        """A state was walked.

        Args:
            state: which.
            longest: tokens, or their beginnings, that fit have so many bytes.
        """
        with self._lock:
            known = self._walked.setdefault(self._begins(state), [])
            known.insert(0, (state, longest))
            del known[_REMEMBERED:]

    def find(self, state: int) -> int | None:
        """A state that was walked in which the same tokens fit; None if there is none among the last."""
        with self._lock:
            known = list(self._walked.get(self._begins(state), ()))
        for other, longest in known:
            # One byte more, so that what is longer fits in neither.
            agreed = self._agree(state, other, longest + 1)
            if agreed > longest:
                return other
            if agreed > _LATE:
                return None
        return None

    def _begins(self, state: int) -> bytes:
        return bytes(self._kind[self._table[state]])

    def _agree(self, one: int, other: int, most: int) -> int:
        """So many bytes lead both to states of one kind, whichever they are; no more than ``most``."""
        table, kind, states = self._table, self._kind, len(self._table)
        ones, others = np.array([one]), np.array([other])
        seen: set[int] = set()
        for steps in range(most):
            ours, theirs = table[ones], table[others]
            different = ours != theirs
            ours, theirs = ours[different], theirs[different]
            if (kind[ours] != kind[theirs]).any():
                return steps
            pairs = set((ours.astype(np.int64) * states + theirs).tolist()) - seen
            if not pairs:
                return most
            seen |= pairs
            if len(seen) > _MOST_PAIRS:
                return steps
            ones, others = np.divmod(np.fromiter(pairs, np.int64, len(pairs)), states)
        return most
