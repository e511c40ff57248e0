"""All strings of an automaton but some words: the names of an object's other members are any but those declared."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from .byte_dfa import ByteDfa
from .core import CORE, address, record
from .fragments import Fragment
from .limits import WorkMeter, no_memory


def without_words(whole: ByteDfa, words: Sequence[bytes], meter: WorkMeter) -> Fragment | None:
    """What is left, with a state for each prefix of a word: to have fewer takes longer than they do.

    Args:
        whole: has strings.
        words: those left out; others than its strings do no harm.
        meter: counts the work.

    Returns:
        None if nothing is left.

    Raises:
        CompileLimitExceeded: it takes too much work, or there is no memory for it.
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
