"""Pieces that are kept for other constraints: the same strings, numbers and white space appear in every schema."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import NamedTuple

from ..regex import Node
from .fragments import Fragment

_MAX_STATES = 30_000  # of all pieces together
_LARGEST = 3_000  # of one of them


class CachedPiece(NamedTuple):
    """A language as a piece.

    Args:
        fragment: None if it has no string.
        work: the steps that it took to make it.
    """

    fragment: Fragment | None
    work: int

    @property
    def cost(self) -> int:
        """States, and something for the entry."""
        return 8 + (0 if self.fragment is None else self.fragment.states)


class PieceCache:
    """Bounded; those that were used last stay. Thread safe."""

    def __init__(self) -> None:
        self._pieces: OrderedDict[Node, CachedPiece] = OrderedDict()
        self._states = 0
        self._lock = threading.Lock()

    def get(self, node: Node) -> CachedPiece | None:
        """The piece of a language, if it is kept."""
        with self._lock:
            kept = self._pieces.get(node)
            if kept is not None:
                self._pieces.move_to_end(node)
            return kept

    def put(self, node: Node, piece: CachedPiece) -> None:
        """Keep a piece, unless it is too large."""
        with self._lock:
            if node not in self._pieces and piece.cost <= _LARGEST:
                self._pieces[node] = piece
                self._states += piece.cost
                while self._states > _MAX_STATES:
                    self._states -= self._pieces.popitem(last=False)[1].cost
