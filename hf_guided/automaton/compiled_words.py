"""All strings of an automaton but some words, by the compiled loops of words.c."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from ..errors import CompileLimitExceeded
from .byte_dfa import ByteDfa
from .core import Core, address, record
from .fragments import Fragment
from .limits import WorkMeter


def compiled_without_words(core: Core, whole: ByteDfa, words: Sequence[bytes], meter: WorkMeter) -> Fragment | None:
    """What is left, or None if that is nothing; see ``without_words``.

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
    handle = core.without_words(place, counts)
    states, segments, is_nullable, work = counts
    try:
        meter.spend(work)
        if not handle:
            if states:
                raise CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")
            return None
        left, bounds = np.empty((states, segments), np.int32), np.empty(segments + 1, np.int64)
        start, is_end = np.empty(segments, np.int32), np.empty(states, np.uint8)
        core.piece_write(handle, *map(address, (left, bounds, start, is_end)))
    finally:
        if handle:
            core.piece_end(handle)
    return Fragment(left, bounds, start, is_end, bool(is_nullable))
