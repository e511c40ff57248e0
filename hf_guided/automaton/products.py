"""Two languages in one: what is in both, or in the first alone; and a language without some words."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .byte_dfa import NOTHING, ByteDfa, trimmed
from .core import CORE, address, record
from .fragments import Fragment
from .limits import CELLS, EDGES, SORTED, WorkMeter, looking, no_memory

_CELLS_AT_ONCE = 1 << 18  # entries of a product's table made before they are counted


def intersection(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """The strings that are in both."""
    return _product(first, second, meter, is_difference=False) if second.start else NOTHING


def difference(first: ByteDfa, second: ByteDfa, meter: WorkMeter) -> ByteDfa:
    """The strings that are in the first, and not in the second."""
    return _product(first, second, meter, is_difference=True)


def _product(first: ByteDfa, second: ByteDfa, meter: WorkMeter, *, is_difference: bool) -> ByteDfa:
    if not first.start:
        return NOTHING
    both = first.byte_class.astype(np.int64) * 256 + second.byte_class
    codes, byte_class = np.unique(both, return_inverse=True)
    start = first.start, second.start
    table, *pairs = pairs_of(
        first.table, second.table, np.divmod(codes, 256), start, meter, needs_second=not is_difference
    )
    ours, theirs = first.accepting[pairs[0]], second.accepting[pairs[1]]
    return trimmed(table, byte_class.reshape(-1), ours & (theirs != is_difference), 1, meter)


def pairs_of(
    first: NDArray[Any],
    second: NDArray[Any],
    columns: tuple[NDArray[np.int64], NDArray[np.int64]],
    start: tuple[int, int],
    meter: WorkMeter,
    *,
    needs_second: bool = True,
) -> tuple[NDArray[np.int32], NDArray[np.int64], NDArray[np.int64]]:
    """The pairs of states of two tables (states, classes) that are reached together, and where they lead.

    For each class of the product, ``columns`` (n,) has the class of each table. The first pair is ``start``, not two
    dead states. A pair is dead where its first state is, and with ``needs_second`` where its second is. The result is
    (pairs, n) where each class leads, pair 0 dead and pair 1 the start; (pairs,) the first state of each; and (pairs,)
    the second.
    """
    tables: list[NDArray[Any]] = [np.ascontiguousarray(table, np.int32) for table in (first, second)]
    classes: list[NDArray[Any]] = [np.ascontiguousarray(column, np.int64) for column in columns]
    counts, size = np.zeros(3, np.int64), len(classes[0])
    with looking(meter) as look:
        struct, place = record(  # the fields of ``Automata`` of product.c
            *(each.ctypes.data for each in (*tables, *classes)), *(table.shape[1] for table in tables), size,
            len(second), start[0] * len(second) + start[1], needs_second, max(1, _CELLS_AT_ONCE // size),
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
            table, numbered = np.empty((pairs, size), np.int32), np.empty(pairs, np.int64)
            if not status:  # else it was stopped, and ``looking`` raises
                CORE.product_write(handle, table.ctypes.data, numbered.ctypes.data)
        finally:
            CORE.product_end(handle)
    return table, *np.divmod(numbered, len(second))


def without_words(whole: ByteDfa, words: Sequence[bytes], meter: WorkMeter) -> Fragment | None:
    """The strings of an automaton but some words, as the names of an object's other members are; None if none is left.

    The automaton has strings. There is a state for each prefix of a word: to have fewer takes longer than they do.
    Words that are none of its strings do no harm.
    """
    table, byte_class = np.ascontiguousarray(whole.table, np.int32), np.ascontiguousarray(whole.byte_class, np.uint8)
    accepting = np.ascontiguousarray(whole.accepting)
    data, ends = array("B", b"".join(words)), array("q", accumulate(map(len, words)))
    struct, place = record(  # the fields of ``Given`` of words.c
        *(each.ctypes.data for each in (table, byte_class, accepting)), *table.shape, whole.start,
        *(each.buffer_info()[0] for each in (data, ends)), len(words), meter.left,
    )  # fmt: skip
    counts = (ctypes.c_int64 * 4)()
    handle = CORE.without_words(place, counts)
    states, segments, is_nullable, work = counts
    try:
        meter.spend(work)
        if not handle:
            if states:
                raise no_memory()
            return None
        left, bounds = np.empty((states, segments), np.int32), np.empty(segments + 1, np.int64)
        start, is_end = np.empty(segments, np.int32), np.empty(states, np.uint8)
        CORE.piece_write(handle, *map(address, (left, bounds, start, is_end)))
    finally:
        if handle:
            CORE.piece_end(handle)
    return Fragment(left, bounds, start, is_end, bool(is_nullable))
