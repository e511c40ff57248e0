"""How large an automaton may grow and how much work it may take, counted while it is built.

Work is counted in steps: looking at one transition, one member of a set of states, or ``CELLS`` entries of an array.
The same constraint takes the same steps on every machine, in every process, independent of earlier compiles; so what is
served depends on the constraint alone. The CPU time of the whole compile, ``CompilerOptions.cpu_s``, is a safety net.
"""

from __future__ import annotations

import ctypes
import math
import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import CompileLimitExceeded
from ..options import CompileLimits, CompilerOptions

# A state of the DFA is a set of states of the NFA: many of those sets share, few are small.
NFA_STATES = 4  # times max_states
SUBSET_MEMBERS = 64  # times max_states, all sets together
CELLS = 64  # entries of an array that numpy handles in the time of one step
SORTED = 8  # times as many, where the array is sorted or hashed
EDGES = 8  # edges of a graph that a plain loop follows in the time of one step
_STEPS_A_LOOK = 10_000  # between two looks at the clock: about ten milliseconds

interpreter_ends = threading.Event()
"""Whether the interpreter ends: compiles on daemon threads give up then."""

LOOK = ctypes.CFUNCTYPE(ctypes.c_int32)
"""``Look`` of public.h."""


def no_memory() -> CompileLimitExceeded:
    """The error of compiled loops that found no memory."""
    return CompileLimitExceeded("the automaton needs more memory than there is; make the constraint smaller")


class MovesToWorker(Exception):
    """An engine has seen that a constraint may take long: the compile begins again in the worker process."""


class Allowance:
    """The CPU time and memory of one compile on its thread and, if it can move there, in the worker process."""

    def __init__(self, options: CompilerOptions, can_move: bool = False):
        self._can_move = can_move
        self.cpu_s, self.memory_bytes = options.cpu_s, options.memory_bytes
        self._end = math.inf if self.cpu_s is None else time.thread_time() + self.cpu_s

    @property
    def left_s(self) -> float | None:
        """Seconds of CPU time that are left; only on the thread that compiles."""
        return None if self.cpu_s is None else self._end - time.thread_time()

    def spend(self, seconds: float) -> None:
        """Count CPU time that another process took."""
        self._end -= seconds

    def move(self) -> None:
        """Raise ``MovesToWorker``, where the compile can continue there."""
        if self._can_move:
            raise MovesToWorker

    def check(self, engine: str) -> None:
        """Raise CompileLimitExceeded if no CPU time is left."""
        if self.cpu_s is not None and time.thread_time() > self._end:
            raise CompileLimitExceeded(
                f"{engine} was not ready in {self.cpu_s:g} s of CPU time; make the constraint smaller, or raise "
                "CompilerOptions.cpu_s"
            )


_allowance: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def allowance() -> Allowance | None:
    """The allowance of the compile that runs on this thread; None outside of a compile."""
    return _allowance.get()


@contextmanager
def limited(options: CompilerOptions, *, can_move: bool = False) -> Iterator[Allowance]:
    """Limit what this thread compiles; see ``Allowance``."""
    allowed = Allowance(options, can_move)
    token = _allowance.set(allowed)
    try:
        yield allowed
    finally:
        _allowance.reset(token)


class WorkMeter:
    """Counts the work of one compile, on one thread, and raises CompileLimitExceeded at its limits."""

    def __init__(self, limits: CompileLimits | None = None):
        self.limits = CompileLimits() if limits is None else limits
        self._most_work = self.limits.max_work
        self.work = 0
        self.is_part = False
        self.made: dict[Hashable, Any] = {}  # parts that this compile has: made once, counted once
        self._already = 0  # spent around this part
        self._next_look = 0
        self._allowance = allowance()

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return self._most_work - self._already - self.work

    @classmethod
    def of_steps(cls, most: int) -> WorkMeter:
        """A meter for a question that is answered or not by its steps alone, whatever the clock says."""
        meter = cls()
        meter._most_work, meter._allowance = most, None
        return meter

    def part(self) -> WorkMeter:
        """A meter for a part that other compiles may have too: it counts alone, within the rest of this one.

        What the part takes does not depend on what was made before it; the caller spends it.
        """
        part = WorkMeter(self.limits)
        part._most_work, part.is_part = self._most_work, True
        part._already, part._allowance = self._already + self.work, self._allowance
        return part

    def spend(self, steps: int) -> None:
        """Count some steps; the clock is looked at too, now and then."""
        self.work += steps
        if self.work < self._next_look:
            return
        if self._already + self.work > self._most_work:
            raise CompileLimitExceeded(
                f"the automaton took more than {self._most_work} steps of work; bound the constraint's "
                "repetitions more tightly, or choose another backend"
            )
        self._next_look = min(self.work + _STEPS_A_LOOK, self._most_work - self._already + 1)
        self.look()

    def look(self) -> None:
        """Look at the clock, where it is not known beforehand how many steps a loop takes; they are counted apart."""
        if interpreter_ends.is_set():
            raise CompileLimitExceeded("the interpreter ends; compile in a thread that it waits for")
        if self._allowance is not None:
            self._allowance.check("the automaton")

    def spend_cells(self, cells: int) -> None:
        """Count the work of numpy on an array with ``cells`` entries; see ``spend``."""
        self.spend(1 + cells // CELLS)

    def check_states(self, states: int, allowed: int | None = None) -> None:
        """Raise CompileLimitExceeded if there are more states than allowed; None means ``max_states``."""
        allowed = self.limits.max_states if allowed is None else allowed
        if states > allowed:
            raise CompileLimitExceeded(
                f"the automaton grew past {allowed} states; bound its repetitions more tightly, or choose another "
                "backend"
            )


# -- The clock of compiled loops: they call back now and then, and stop where that raises.


class _OfThread(threading.local):
    """The meter that the loops of a thread look at, and the error that they saw."""

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
    outer = _now.meter, _now.error  # the state of outer loops, in which a signal's handler compiles too
    _now.meter, _now.error = meter, None
    try:
        yield _ADDRESS
        if _now.error is not None:
            raise _now.error
    finally:
        _now.meter, _now.error = outer
