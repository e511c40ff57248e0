"""A deterministic automaton over bytes as one dense table: minimal or nearly so, and every state can reach the end.

State 0 is dead: it leads to itself and never ends. A language that has no string at all starts there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .core import CORE, address
from .limits import EDGES, SORTED, WorkMeter, no_memory
from .look import looking

Counts = ctypes.c_int64 * 3
"""The numbers that ``minimal_of`` of tables.h writes."""

_FEW_TWINS = 8  # states with the same row as another; where there are more, whole parts may be there twice


@dataclass(frozen=True, eq=False)
class ByteDfa:
    """A language of byte strings; immutable, shared by threads.

    Args:
        table: (states, classes) uint16 or uint32, where a class of bytes leads.
        byte_class: (256,) uint8, the class of each byte.
        accepting: (states,) whether the string so far is in the language.
        start: the state at the beginning.
    """

    table: NDArray[Any] = field(repr=False)
    byte_class: NDArray[np.uint8] = field(repr=False)
    accepting: NDArray[np.bool_] = field(repr=False)
    start: int

    @property
    def states(self) -> int:
        """How many, the dead one included."""
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

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """(classes,) how many bytes each class has."""
        return np.bincount(self.byte_class, minlength=self.table.shape[1])

    @cached_property
    def forced(self) -> NDArray[np.int16]:
        """(states,) the one byte that every continuation begins with; -1 where there is a choice, or may be an end."""
        live = self.table != 0
        only = (live @ self.class_sizes == 1) & ~self.accepting
        byte_of = np.zeros(self.table.shape[1], np.int16)
        byte_of[self.byte_class] = np.arange(256)
        return np.where(only, byte_of[live.argmax(1)], -1).astype(np.int16)

    def edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """All moves between live states: (edges,) source, class, target."""
        sources, classes = np.nonzero(self.table)
        return sources, classes, self.table[sources, classes].astype(np.int64)


NOTHING = ByteDfa(np.zeros((1, 1), np.uint16), np.zeros(256, np.uint8), np.zeros(1, np.bool_), 0)


def finished(
    table: NDArray[Any],
    byte_class: NDArray[Any],
    accepting: NDArray[np.bool_],
    start: int,
    meter: WorkMeter,
    *,
    minimal: bool = True,
) -> ByteDfa:
    """The automaton of a table in which every state but 0 is reached from the start and reaches the end.

    Args:
        table: (states, classes); row 0 is the dead state's.
        byte_class: (256,) the class of each byte.
        accepting: (states,) bool.
        start: where it begins.
        meter: counts the work.
        minimal: False if it need not be made minimal where no two states have the same row, as it mostly is then.
    """
    if not start:
        return NOTHING
    if not minimal:
        for _ in range(_FEW_TWINS):
            meter.spend_cells(2 * table.size)
            same_as = _same_as(table, accepting)
            kept = np.flatnonzero(same_as == np.arange(len(table)))
            if len(kept) == len(table):
                return _made(table, byte_class, accepting, start)
            if len(table) - len(kept) > _FEW_TWINS:
                break
            number = np.searchsorted(kept, same_as)
            table, accepting, start = number[table[kept]], accepting[kept], int(number[start])
    meter.spend_cells((SORTED + 1) * table.size)
    return minimized(table, byte_class, accepting, start, meter)


def minimized(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """The minimal automaton of a table, see ``finished``; its states are in the order of the first ones of their kind.

    Args:
        table: (states, classes), where each class of bytes leads; state 0 is the dead one.
        byte_class: (256,) the class of each byte.
        accepting: (states,) bool.
        start: where it begins; not 0.
        meter: looks at the clock.

    Raises:
        CompileLimitExceeded: there is no memory for it, or the compile's CPU time is used up.
    """
    table, byte_class = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(byte_class, np.uint8)
    accepting, counts = np.ascontiguousarray(accepting), Counts()
    with looking(meter) as look:
        handle = CORE.minimal_begin(
            table.ctypes.data, *table.shape, accepting.ctypes.data, byte_class.ctypes.data, start, look, counts
        )
    return minimal_dfa(handle, counts)


def minimal_dfa(handle: int | None, counts: Iterable[int]) -> ByteDfa:
    """The automaton that ``minimal_of`` of tables.h has made, which is freed.

    Args:
        handle: what it returned; where it was stopped, ``looking`` has raised.
        counts: what it wrote.

    Raises:
        CompileLimitExceeded: there was no memory for it.
    """
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


def _made(table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int) -> ByteDfa:
    """The automaton of a finished table; only its columns are merged."""
    columns, which = _without_twins(table)
    width: type[Any] = np.uint16 if len(columns) <= 1 << 16 else np.uint32
    return ByteDfa(
        table=np.ascontiguousarray(columns, width),
        byte_class=which[byte_class].astype(np.uint8),
        accepting=accepting,
        start=start,
    )


def _same_as(table: NDArray[Any], accepting: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(states,) the first state that has the same row, and ends or does not end alike.

    By a random hash, and then compared: states that collide stay as they are.
    """
    factors = np.random.default_rng(0).integers(0, 1 << 64, table.shape[1] + 1, np.uint64)
    hashes = table.astype(np.uint64) @ factors[:-1] + accepting * factors[-1]
    _, first, which = np.unique(hashes, return_index=True, return_inverse=True)
    same_as: NDArray[np.int64] = first[which.reshape(-1)]
    twins = np.flatnonzero(same_as != np.arange(len(table)))
    others = same_as[twins]
    equal = (table[twins] == table[others]).all(1) & (accepting[twins] == accepting[others])
    same_as[twins] = np.where(equal, others, twins)
    return same_as


def _without_twins(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct columns, and for each column which of them it is."""
    seen: dict[bytes, int] = {}
    columns = np.ascontiguousarray(table.T)
    which = np.array([seen.setdefault(column.tobytes(), len(seen)) for column in columns])
    first = np.array([int(np.argmax(which == i)) for i in range(len(seen))])
    return table[:, first], which


def backwards(
    sources: NDArray[Any], targets: NDArray[Any], states: int, ends: list[int], meter: WorkMeter
) -> NDArray[np.bool_]:
    """(states,) from where one of the ends can be reached along edges; the ends themselves too."""
    meter.spend(states + len(sources) // EDGES)
    order = np.argsort(targets, kind="stable")
    starts = np.searchsorted(targets[order], np.arange(states + 1)).tolist()
    before = sources[order].tolist()
    alive = bytearray(states)
    for state in ends:
        alive[state] = 1
    todo = list(ends)
    while todo:
        state = todo.pop()
        for source in before[starts[state] : starts[state + 1]]:
            if not alive[source]:
                alive[source] = 1
                todo.append(source)
    return np.frombuffer(alive, np.bool_)


def trimmed(
    table: NDArray[Any], byte_class: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> ByteDfa:
    """As ``finished``, but states that cannot reach the end may be among them."""
    table, accepting = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(accepting)
    live = np.empty(len(table), np.bool_)  # which states reach the end
    moves = CORE.living(table.ctypes.data, *table.shape, accepting.ctypes.data, live.ctypes.data)
    if moves < 0:
        raise no_memory()
    meter.spend(len(table) + moves // EDGES)
    if np.count_nonzero(live) < len(table) - 1:  # most often all do, and to copy them takes as long as all of the above
        kept = np.concatenate(([0], np.flatnonzero(live)))
        number = np.zeros(len(table), np.int64)
        number[kept] = np.arange(len(kept))
        number[~live] = 0
        table, accepting, start = number[table[kept]], accepting[kept], int(number[start])
    return finished(table, byte_class, accepting, start, meter)
