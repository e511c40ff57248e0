"""Two languages in one: what is in both, in either, or in the first alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import NOTHING, ByteDfa, finished, trimmed
from .core import CORE, record
from .limits import CELLS, EDGES, SORTED, WorkMeter, no_memory
from .look import looking

_CELLS_AT_ONCE = 1 << 18  # entries of a product's table made before they are counted

# (bytes of the first, bytes of the second) -> (of the result); on the flags "accepts" of two states
Combine = Callable[[NDArray[np.bool_], NDArray[np.bool_]], NDArray[np.bool_]]


class _Kind(NamedTuple):
    """A combination of two languages.

    Args:
        combine: false where both flags are: otherwise the result would accept endless byte strings.
        needs: whether nothing is in it that is not in the first, and that is not in the second.
    """

    combine: Combine
    needs: tuple[bool, bool]


_BOTH = _Kind(np.logical_and, (True, True))
_FIRST_ALONE = _Kind(lambda ours, theirs: ours & ~theirs, (True, False))


def intersection(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in both."""
    return _product(first, second, _BOTH, meter)


def difference(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """What is in the first, and not in the second."""
    return _product(first, second, _FIRST_ALONE, meter)


def _product(first: ByteDfa, second: ByteDfa, kind: _Kind, meter: WorkMeter) -> ByteDfa:
    has_none = not first.start, not second.start
    if all(has_none) or any(needed and none for needed, none in zip(kind.needs, has_none, strict=True)):
        return NOTHING
    both = first.byte_class.astype(np.int64) * 256 + second.byte_class
    codes, byte_class = np.unique(both, return_inverse=True)
    table, pairs = _pairs(first, second, (codes // 256, codes % 256), kind.needs, meter)
    accepting = kind.combine(first.accepting[pairs // second.states], second.accepting[pairs % second.states])
    return trimmed(table, byte_class.reshape(-1), accepting, min(1, len(pairs) - 1), meter)


def _pairs(
    first: ByteDfa,
    second: ByteDfa,
    classes: tuple[NDArray[np.int64], NDArray[np.int64]],
    needs: tuple[bool, bool],
    meter: WorkMeter,
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The pairs of states that are reached, and where they lead.

    Args:
        first: an automaton that has strings, or the other one has.
        second: likewise.
        classes: (classes,) for each class of the product the one of the first automaton, and that of the second.
        needs: whether a pair is dead where the first state is, and where the second is.
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
            *needs, max(1, _CELLS_AT_ONCE // len(columns[0])),
            meter.limits.max_states, meter.left, CELLS // SORTED, EDGES, look,
        )  # fmt: skip
        handle = CORE.product_begin(place, counts.ctypes.data)
        if not handle:
            raise no_memory()
        try:
            work, pairs, status = counts.tolist()
            if status == -1:
                raise no_memory()
            meter.spend(work)
            meter.check_states(pairs)
            table, numbered = np.empty((pairs, len(columns[0])), np.int32), np.empty(pairs, np.int64)
            if not status:  # else it was stopped, and ``looking`` raises
                CORE.product_write(handle, table.ctypes.data, numbered.ctypes.data)
        finally:
            CORE.product_end(handle)
    return table, numbered


@lru_cache(maxsize=1)
def utf8() -> ByteDfa:
    """All valid UTF-8 texts; Unicode 15, table 3-7."""
    text, tail_1, tail_2, tail_3, after_e0, after_ed, after_f0, after_f4 = range(1, 9)
    steps = (
        *((text, 0x00, 0x7F, text), (text, 0xC2, 0xDF, tail_1), (text, 0xE0, 0xE0, after_e0)),
        *((text, 0xE1, 0xEF, tail_2), (text, 0xED, 0xED, after_ed), (text, 0xF0, 0xF0, after_f0)),
        *((text, 0xF1, 0xF3, tail_3), (text, 0xF4, 0xF4, after_f4)),
        *((tail_1, 0x80, 0xBF, text), (tail_2, 0x80, 0xBF, tail_1), (tail_3, 0x80, 0xBF, tail_2)),
        *((after_e0, 0xA0, 0xBF, tail_1), (after_ed, 0x80, 0x9F, tail_1)),
        *((after_f0, 0x90, 0xBF, tail_2), (after_f4, 0x80, 0x8F, tail_2)),
    )
    table = np.zeros((9, 256), np.int64)
    for source, low, high, target in steps:  # 0xED after its neighbours
        table[source, low : high + 1] = target
    accepting = np.zeros(9, np.bool_)
    accepting[text] = True
    return finished(table, np.arange(256), accepting, text, WorkMeter())
