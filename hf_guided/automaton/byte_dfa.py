"""A deterministic automaton over bytes as one dense table: minimal, so every state can reach the end.

State 0 is dead: it leads to itself and never ends. A language that has no string at all starts there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core import CORE, address
from .limits import EDGES, SORTED, WorkMeter, looking, no_memory

Counts = ctypes.c_int64 * 3
"""The numbers that ``minimal_of`` of tables.h writes."""


@dataclass(frozen=True, eq=False)
class ByteDfa:
    """A language of byte strings; immutable, shared by threads."""

    table: NDArray[Any] = field(repr=False)  # (states, classes) uint16 or uint32, the state after each class of bytes
    byte_class: NDArray[np.uint8] = field(repr=False)  # (256,) uint8, the class of each byte
    accepting: NDArray[np.bool_] = field(repr=False)  # (states,) whether the string so far is in the language
    start: int

    @property
    def states(self) -> int:
        """The number of states, the dead one included."""
        return len(self.table)

    @property
    def nbytes(self) -> int:
        """Bytes of memory the arrays take."""
        return self.table.nbytes + self.byte_class.nbytes + self.accepting.nbytes

    def advance(self, state: int, data: bytes) -> int:
        """The state after these bytes."""
        for byte in data:
            state = int(self.table[state, self.byte_class[byte]])
        return state

    def accepts(self, data: bytes) -> bool:
        """Whether the string is in the language."""
        return bool(self.accepting[self.advance(self.start, data)])


NOTHING = ByteDfa(np.zeros((1, 1), np.uint16), np.zeros(256, np.uint8), np.zeros(1, np.bool_), 0)


def finished(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """The minimal automaton of a table (states, classes) in which every state but 0, the dead one, reaches the end.

    Its states are in the order of the first ones of their kind. ``byte_class`` is (256,), ``accepting`` (states,) bool.
    """
    if not start:
        return NOTHING
    meter.spend_cells((SORTED + 1) * table.size)
    table, byte_class = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(byte_class, np.uint8)
    accepting, counts = np.ascontiguousarray(accepting), Counts()
    with looking(meter) as look:
        handle = CORE.minimal_begin(
            table.ctypes.data, *table.shape, accepting.ctypes.data, byte_class.ctypes.data, start, look, counts
        )
    return minimal_dfa(handle, counts)


def minimal_dfa(handle: int | None, counts: Iterable[int]) -> ByteDfa:
    """The automaton that ``minimal_of`` of tables.h returned as ``handle``, with ``counts``; the handle is freed."""
    if not handle:
        raise no_memory()
    states, columns, start = counts
    is_narrow = states <= 1 << 16
    try:
        table = np.empty((states, columns), np.uint16 if is_narrow else np.uint32)
        byte_class, accepting = np.empty(256, np.uint8), np.empty(states, np.bool_)
        narrow, wide = (address(table), None) if is_narrow else (None, address(table))
        CORE.minimal_write(handle, narrow, wide, address(accepting), address(byte_class))
    finally:
        CORE.minimal_end(handle)
    return ByteDfa(table, byte_class, accepting, start)


def trimmed(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """The automaton of ``finished``, but states that cannot reach the end may be among the given ones."""
    live = productive(table, accepting, meter)
    if np.count_nonzero(live) < len(table) - 1:  # most often all do, and to copy them takes as long as all of the above
        kept = np.concatenate(([0], np.flatnonzero(live)))
        number = np.zeros(len(table), np.int64)
        number[kept] = np.arange(len(kept))
        table, accepting, start = number[table[kept]], accepting[kept], int(number[start])
    return finished(table, byte_class, accepting, start, meter)


def productive(table: NDArray[Any], accepting: NDArray[np.bool_], meter: WorkMeter | None = None) -> NDArray[np.bool_]:
    """(states,) from which the end can be reached; not the dead state."""
    table, accepting = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(accepting)
    live = np.empty(len(table), np.bool_)
    moves = CORE.productive(table.ctypes.data, *table.shape, accepting.ctypes.data, live.ctypes.data)
    if moves < 0:
        raise no_memory()
    if meter is not None:
        meter.spend(len(table) + moves // EDGES)
    return live
