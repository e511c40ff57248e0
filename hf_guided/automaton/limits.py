"""How large an automaton may grow and how long it may take; asked again and again while one is built."""

from __future__ import annotations

import time
from dataclasses import dataclass

from ..errors import CompileLimitExceeded

# A state of the DFA stands for a set of states of the NFA: many of those sets share, few are small.
NFA_STATES = 4  # times max_states
SUBSET_MEMBERS = 64  # times max_states, all sets together


@dataclass(frozen=True)
class Limits:
    """Bounds on one compile.

    Args:
        max_states: of the byte automaton, before and after it is made minimal.
        seconds: of the compiling thread's own time, so that a busy machine takes the constraints that an idle one does.
    """

    max_states: int = 50_000
    seconds: float = 2.0


class Clock:
    """Limits that have begun to count, for one thread: no loop runs longer than a tenth of a second without asking."""

    def __init__(self, limits: Limits | None = None):
        self.limits = Limits() if limits is None else limits
        self._end = time.thread_time() + self.limits.seconds

    @property
    def expired(self) -> bool:
        """Whether the time is up."""
        return time.thread_time() > self._end

    def check(self, states: int = 0, allowed: int | None = None) -> None:
        """Give up if the time is up, or if there are too many states.

        Args:
            states: how many there are.
            allowed: how many there may be; None means ``max_states``.

        Raises:
            CompileLimitExceeded: says which limit.
        """
        allowed = self.limits.max_states if allowed is None else allowed
        if states > allowed:
            raise CompileLimitExceeded(
                f"the automaton grew past {allowed} states; bound its repetitions more tightly, or use llguidance"
            )
        if self.expired:
            raise CompileLimitExceeded(
                f"the automaton was not ready in {self.limits.seconds:g} s of its thread's time; make the constraint "
                "smaller, or use llguidance"
            )
