"""Notifies caches when a value has grown: asking every value now and then takes longer than computing a mask."""

from __future__ import annotations

from collections.abc import Callable

_STEP = 2**16  # bytes: smaller changes are reported together


class Growth:
    """How many bytes a value holds beside those that it held at first.

    Attributes:
        nbytes: as reported last; at most a step more or less are held.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._watchers: list[Callable[[], None]] = []

    def watch(self, call: Callable[[], None]) -> None:
        """Have a function called after each step. Thread safe."""
        self._watchers.append(call)

    def update(self, nbytes: int) -> None:
        """Report how many bytes are held now; never called by two threads at once."""
        if not -_STEP < nbytes - self.nbytes < _STEP:
            self.nbytes = nbytes
            for call in self._watchers:
                call()
