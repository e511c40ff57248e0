"""Lets the compiled loops look at the clock: they call back now and then, and stop where that raises."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .limits import WorkMeter

LOOK = ctypes.CFUNCTYPE(ctypes.c_int32)  # ``Look`` of public.h


@contextmanager
def looking(meter: WorkMeter) -> Iterator[Any]:
    """A function for compiled loops to call; what it raises is raised here, when they have stopped."""
    errors: list[BaseException] = []

    def look() -> int:
        try:
            meter.look()
        except BaseException as error:  # an exception cannot pass through C; also KeyboardInterrupt
            errors.append(error)
        return len(errors)

    yield LOOK(look)
    if errors:
        raise errors.pop()
