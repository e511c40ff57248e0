"""The minimal automaton of a table, by the compiled loops of minimize.c."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import CompileLimitExceeded
from .core import Core, address
from .limits import WorkMeter
from .look import looking

Counts = ctypes.c_int64 * 3
"""What ``minimal_of`` of tables.h writes."""


class Minimal(NamedTuple):
    """What a ``ByteDfa`` has."""

    table: NDArray[Any]
    byte_class: NDArray[np.uint8]
    accepting: NDArray[np.bool_]
    start: int


def compiled_minimal(
    core: Core,
    table: NDArray[Any],
    byte_class: NDArray[Any],
    accepting: NDArray[np.bool_],
    start: int,
    meter: WorkMeter,
) -> Minimal:
    """The minimal automaton; its states are in the order of the first ones of their kind.

    Args:
        core: the compiled loops; other threads run meanwhile.
        table: (states, classes), where each class of bytes leads; state 0 is the dead one.
        byte_class: (256,) the class of each byte.
        accepting: (states,).
        start: where it begins.
        meter: looks at the clock.

    Raises:
        CompileLimitExceeded: there is no memory for it, or the compile's CPU time is used up.
    """
    table = np.ascontiguousarray(table, np.int32)
    byte_class, accepting = np.ascontiguousarray(byte_class, np.uint8), np.ascontiguousarray(accepting)
    counts = Counts()
    with looking(meter) as look:
        handle = core.minimal_begin(
            table.ctypes.data, *table.shape, accepting.ctypes.data, byte_class.ctypes.data, start, look, counts
        )
    return taken(core, handle, counts)


def taken(core: Core, handle: int | None, counts: Iterable[int]) -> Minimal:
    """What ``minimal_of`` of tables.h has made, which is freed.

    Args:
        core: the compiled loops.
        handle: what it returned; where it was stopped, ``looking`` has raised.
        counts: what it wrote.

    Raises:
        CompileLimitExceeded: there was no memory for it.
    """
    if not handle:
        raise CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
    states, columns, start = counts
    is_narrow = states <= 1 << 16
    try:
        table = np.empty((states, columns), np.uint16 if is_narrow else np.uint32)
        byte_class, accepting = np.empty(256, np.uint8), np.empty(states, np.bool_)
        narrow, wide = (address(table), None) if is_narrow else (None, address(table))
        core.minimal_write(handle, narrow, wide, address(accepting), address(byte_class))
    finally:
        core.minimal_end(handle)
    return Minimal(table, byte_class, accepting, start)
