"""Lets the compiled loops look at the clock: they call back now and then, and stop where that raises."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from .limits import WorkMeter

LOOK = ctypes.CFUNCTYPE(ctypes.c_int32)
"""``Look`` of public.h."""


class _OfThread(threading.local):
    """What the loops of a thread look at, and what they saw."""

    meter: WorkMeter | None = None
    error: BaseException | None = None


_now = _OfThread()


def _look() -> int:
    try:
        if _now.meter is not None:
            _now.meter.look()
    except BaseException as error:  # an exception cannot pass through C; also KeyboardInterrupt
        _now.error = error
    return _now.error is not None


_CALLED = LOOK(_look)
_ADDRESS = ctypes.cast(_CALLED, ctypes.c_void_p).value or 0


@contextmanager
def looking(meter: WorkMeter) -> Iterator[int]:
    """The address of a function for compiled loops to call; what it raises is raised here, when they have stopped."""
    outer = _now.meter, _now.error  # of loops in which a signal's handler compiles too
    _now.meter, _now.error = meter, None
    try:
        yield _ADDRESS
        if _now.error is not None:
            raise _now.error
    finally:
        _now.meter, _now.error = outer
