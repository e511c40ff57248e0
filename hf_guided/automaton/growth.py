"""Tells the caches of a value that it has grown: to ask each of hundreds now and then takes longer than a mask."""

from __future__ import annotations

from collections.abc import Callable

_STEP = 2**16  # bytes: smaller changes are told together


class Growth:
    """How many bytes a value holds beside those that it held at first, and who is told when that changes.

    Attributes:
        nbytes: held now, or at most a step more or less.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._watchers: list[Callable[[], None]] = []

    def watch(self, call: Callable[[], None]) -> None:
        """Have a function called after each step. Thread safe."""
        self._watchers.append(call)

    def now(self, nbytes: int) -> None:
        """So many bytes are held now; never called by two threads at once."""
        if not -_STEP < nbytes - self.nbytes < _STEP:
            self.nbytes = nbytes
            for call in self._watchers:
                call()
