"""All strings of an automaton but some words, by the compiled loops of words.c."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from .compiled_minimal import Minimal, taken
from .core import Core
from .limits import WorkMeter
from .look import LOOK, looking

if TYPE_CHECKING:
    from .byte_dfa import ByteDfa


class _Given(ctypes.Structure):
    """``Given`` of words.c."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("table", "byte_class", "accepting")),
        *((name, ctypes.c_int64) for name in ("states", "classes", "start")),
        *((name, ctypes.c_void_p) for name in ("words", "ends")),
        *((name, ctypes.c_int64) for name in ("count", "max_work")),
        ("look", LOOK),
    )


def compiled_without_words(core: Core, whole: ByteDfa, words: Sequence[bytes], meter: WorkMeter) -> Minimal | None:
    """The minimal automaton of what is left, or None if that is nothing; see ``without_words``.

    Raises:
        CompileLimitExceeded: it takes too much work, or there is no memory for it.
    """
    table, byte_class = np.ascontiguousarray(whole.table, np.int32), np.ascontiguousarray(whole.byte_class, np.uint8)
    accepting = np.ascontiguousarray(whole.accepting)
    data, ends = array("B", b"".join(words)), array("q", accumulate(map(len, words)))
    counts = (ctypes.c_int64 * 4)()
    with looking(meter) as look:
        given = _Given(
            *(each.ctypes.data for each in (table, byte_class, accepting)), *table.shape, whole.start,
            *(each.buffer_info()[0] for each in (data, ends)), len(words), meter.left, look,
        )  # fmt: skip
        handle = core.without_words(ctypes.byref(given), counts)
    *sizes, work = counts
    left = None if not handle and not sizes[0] else taken(core, handle, sizes)
    meter.spend(work)  # may raise: what was made is freed by now
    return left
