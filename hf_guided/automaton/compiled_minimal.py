"""The minimal automaton of a table, by the compiled loops of minimize.c."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CompileLimitExceeded
from .core import Core
from .limits import WorkMeter
from .look import looking


def compiled_minimal(
    core: Core, table: NDArray[Any], accepting: NDArray[np.bool_], start: int, meter: WorkMeter
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.bool_], int]:
    """The minimal automaton; its states are in the order of the first ones of their kind.

    Args:
        core: the compiled loops; other threads run meanwhile.
        table: (states, classes), where each class of bytes leads; state 0 is the dead one.
        accepting: (states,).
        start: where it begins.
        meter: looks at the clock.

    Returns:
        The columns of its table that are different, which of them each column of the table is, its accepting states,
        and its start.

    Raises:
        CompileLimitExceeded: there is no memory for it, or the compile's CPU time is used up.
    """
    table = np.ascontiguousarray(table, np.int32)
    accepting = np.ascontiguousarray(accepting)
    states, classes = table.shape
    number, kept = np.empty((2, states), np.int32)
    with looking(meter) as look:
        left = core.minimize(
            table.ctypes.data, states, classes, accepting.ctypes.data, number.ctypes.data, kept.ctypes.data, look
        )
    if left < 0:  # no memory; where it was stopped, ``looking`` has raised
        raise CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
    merged, (which, *scratch) = np.empty((left, classes), np.int32), np.empty((3, classes), np.int64)
    columns = core.merge_columns(
        table.ctypes.data, classes, number.ctypes.data, kept.ctypes.data, left, merged.ctypes.data, which.ctypes.data,
        *(array.ctypes.data for array in scratch),
    )  # fmt: skip
    return merged[:, :columns], which, accepting[kept[:left]], int(number[start])
