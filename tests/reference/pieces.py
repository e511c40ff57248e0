"""The edges of the pieces of an NFA, in Python: part of the oracle for subsets.c."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hf_guided.automaton.fragments import EXIT, FIRST, Fragment, Literal

Edge = tuple[int, int, int]  # first byte, last byte, target
Piece = Fragment | Literal
_remembered = lru_cache(maxsize=1 << 14)


class Inside(NamedTuple):
    """What can be reached inside a piece.

    Args:
        states: reached without passing a border.
        borders: where the piece may be left: the exit, and states that may be ends but continue.
    """

    states: tuple[int, ...]
    borders: tuple[int, ...]


@_remembered
def ends(piece: Piece) -> frozenset[int]:
    """The states other than the exit in which it may end."""
    return frozenset() if isinstance(piece, Literal) else frozenset(piece.is_end.nonzero()[0].tolist())


@_remembered
def first(piece: Piece) -> tuple[Edge, ...]:
    """The edges from the start, in order."""
    if isinstance(piece, Literal):
        return ((piece.data[0], piece.data[0], FIRST if len(piece.data) > 1 else EXIT),)
    return _runs(piece.start, piece.bounds)


@_remembered
def edges(piece: Piece, state: int) -> tuple[Edge, ...]:
    """The edges from a state, in order."""
    if isinstance(piece, Literal):
        byte = piece.data[state - 1]
        return ((byte, byte, state + 1 if state < len(piece.data) else EXIT),)
    return _runs(piece.table[state], piece.bounds)


@_remembered
def first_bytes(piece: Piece) -> int:
    """The bytes of the edges from the start, as bits of a number."""
    return _bits(first(piece))


@_remembered
def end_bytes(piece: Piece) -> int:
    """The bytes of the edges from states in which it may end, as bits of a number."""
    return _bits(edge for state in ends(piece) for edge in edges(piece, state))


@_remembered
def inside(piece: Piece, state: int, through_ends: bool) -> Inside:
    """What is reached from a state, itself the first.

    Args:
        piece: the piece.
        state: not the exit.
        through_ends: whether states that may be ends are like others; they are borders otherwise.
    """
    if isinstance(piece, Literal):
        return Inside(tuple(range(state, len(piece.data) + 1)), (EXIT,))
    seen, states = {state}, [state]
    borders: list[int] = []
    for reached_state in states:  # grows meanwhile
        for target in dict.fromkeys(piece.table[reached_state].tolist()):
            if target and target not in seen:
                seen.add(target)
                is_border = target == EXIT or (target in ends(piece) and not through_ends)
                (borders if is_border else states).append(target)
    return Inside(tuple(states), tuple(borders))


def _runs(row: NDArray[np.int32], bounds: NDArray[np.int64]) -> tuple[Edge, ...]:
    """The edges of a row; neighbours with the same target are joined."""
    runs: list[Edge] = []
    before = 0
    for low, high, target in zip(bounds[:-1].tolist(), bounds[1:].tolist(), row.tolist(), strict=True):
        if target and target == before:
            runs[-1] = runs[-1][0], high - 1, target
        elif target:
            runs.append((low, high - 1, target))
        before = target
    return tuple(runs)


def _bits(edges: Iterable[Edge]) -> int:
    """The bytes of edges, as bits of a number."""
    bits = 0
    for low, high, _ in edges:
        bits |= (2 << high) - (1 << low)
    return bits
