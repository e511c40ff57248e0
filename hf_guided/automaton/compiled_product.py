"""The product of two automata, and what reaches the end of a table, by the compiled loops of product.c."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CompileLimitExceeded
from .core import Core, record
from .limits import CELLS, EDGES, SORTED, WorkMeter
from .look import looking

if TYPE_CHECKING:
    from .byte_dfa import ByteDfa


def compiled_pairs(
    core: Core,
    first: ByteDfa,
    second: ByteDfa,
    classes: tuple[NDArray[np.int64], NDArray[np.int64]],
    needs: tuple[bool, bool],
    batch: int,
    meter: WorkMeter,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The pairs of states that are reached, and where they lead.

    Args:
        core: the compiled loops; other threads run meanwhile.
        first: an automaton that has strings, or the other one has.
        second: likewise.
        classes: (classes,) for each class of the product the one of the first automaton, and that of the second.
        needs: whether a pair is dead where the first state is, and where the second is.
        batch: pairs that numpy handles at once, for the count of work.
        meter: counts the work.

    Returns:
        (pairs, classes) table; and (pairs,) first state times the states of the second, plus second state.

    Raises:
        CompileLimitExceeded: it is too large, or there is no memory for it.
    """
    tables = [np.ascontiguousarray(dfa.table, np.int32) for dfa in (first, second)]
    columns = [np.ascontiguousarray(column, np.int64) for column in classes]
    counts = np.zeros(3, np.int64)
    with looking(meter) as look:
        struct, place = record(  # the fields of ``Automata`` of product.c
            *(table.ctypes.data for table in tables), *(column.ctypes.data for column in columns),
            *(table.shape[1] for table in tables), len(columns[0]), second.states,
            first.start * second.states + second.start,
            *needs, batch, meter.limits.max_states, meter.left, CELLS // SORTED, EDGES, look,
        )  # fmt: skip
        handle = core.product_begin(place, counts.ctypes.data)
        if not handle:
            raise _no_memory()
        try:
            work, pairs, status = counts.tolist()
            if status == -1:
                raise _no_memory()
            meter.spend(work)
            meter.check_states(pairs)
            table, numbered = np.empty((pairs, len(columns[0])), np.int32), np.empty(pairs, np.int64)
            if not status:  # else it was stopped, and ``looking`` raises
                core.product_write(handle, table.ctypes.data, numbered.ctypes.data)
        finally:
            core.product_end(handle)
    return table, numbered


def compiled_living(
    core: Core, table: NDArray[Any], accepting: NDArray[np.bool_], meter: WorkMeter
) -> NDArray[np.bool_]:
    """(states,) which states of a table (states, classes) reach one that accepts, themselves counted."""
    table, accepting = np.ascontiguousarray(table, np.int32), np.ascontiguousarray(accepting)
    living = np.empty(len(table), np.bool_)
    moves = core.living(table.ctypes.data, *table.shape, accepting.ctypes.data, living.ctypes.data)
    if moves < 0:
        raise _no_memory()
    meter.spend(len(table) + moves // EDGES)
    return living


def _no_memory() -> CompileLimitExceeded:
    return CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
