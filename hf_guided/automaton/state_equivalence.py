"""States that are equivalent for a number of bytes: the same tokens fit, so a walk from one state serves the other.

Both states are followed in parallel: the pairs of different states that one byte leads to are compared next. Most pairs
of equivalent states soon reach one common state, or pairs that were compared before.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import ByteDfa

_REMEMBERED = 4  # walked states kept for each set of allowed next bytes, the latest ones
_LATE = 4  # bytes; states that differ only after more than these are similar, and comparing further ones is useless
_MOST_PAIRS = 200  # comparing more takes as long as a walk


class StateEquivalence:
    """States that were walked; thread safe.

    Args:
        dfa: the automaton.
        can_end: (states,) where tokens may lead.
    """

    def __init__(self, dfa: ByteDfa, can_end: NDArray[np.bool_]):
        self._table = dfa.table
        self._kind = np.where(can_end, 1, 2).astype(np.uint8)
        self._kind[0] = 0
        self._walked: dict[bytes, list[tuple[int, int]]] = {}  # by the allowed next bytes, the latest first
        self._lock = threading.Lock()

    def add(self, state: int, longest: int) -> None:
        """Record that a state was walked.

        Args:
            state: the walked state.
            longest: bytes of the longest token, or beginning of a token, that fits.
        """
        with self._lock:
            known = self._walked.setdefault(self._begins(state), [])
            known.insert(0, (state, longest))
            del known[_REMEMBERED:]

    def find(self, state: int) -> int | None:
        """A walked state in which the same tokens fit; None if there is none among the latest."""
        with self._lock:
            known = list(self._walked.get(self._begins(state), ()))
        for other, longest in known:
            # One byte more, so that longer tokens fit in neither state.
            agreed = self._agree(state, other, longest + 1)
            if agreed > longest:
                return other
            if agreed > _LATE:
                return None
        return None

    def _begins(self, state: int) -> bytes:
        return bytes(self._kind[self._table[state]])

    def _agree(self, state: int, other: int, most: int) -> int:
        """The number of bytes for which the two states are equivalent, at most ``most``."""
        table, kind, states = self._table, self._kind, len(self._table)
        ones, others = np.array([state]), np.array([other])
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
