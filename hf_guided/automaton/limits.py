"""The limits of one compile, counted while it reads and builds, and the turns of several.

Work is counted in steps: looking at one transition, one member of a set of states, or ``CELLS`` entries of an array.
Reading in Python is counted too (``count``). The same constraint takes the same steps on every machine, in every
process, independent of earlier compiles; so what is served depends on the constraint alone.

Compiles of all threads share an interpreter, and memory. So one is *short* for its first milliseconds; later it pauses
while short ones run, and lets other threads have the interpreter now and then. One that has run for longer, or holds
much memory, is *long*: few of these run at the same time, and the others wait. A compile that is not long never waits
for one that is, so no two wait for each other.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ..errors import BackendError, CompileLimitExceeded
from ..options import MOST_BYTES, MOST_READ, CompileLimits
from .after_fork import renew_in_child

# A state of the DFA is a set of states of the NFA: many of those sets share, few are small.
NFA_STATES = 4  # times max_states
SUBSET_MEMBERS = 64  # times max_states, all sets together
CELLS = 64  # entries of an array that numpy handles in the time of one step
SORTED = 8  # times as many, where the array is sorted or hashed
EDGES = 8  # edges of a graph that a plain loop follows in the time of one step
_STEPS_A_LOOK = 300  # between two looks at who else compiles: about a third of a millisecond
# Looks after which a compile is no longer short, and is long; time would count what is collected or waited for in it.
_SHORT_LOOKS, _LONG_LOOKS = 10, 300
_LONG_BYTES = 16 * 2**20  # bytes from which it is
_MOST_LONG = 2  # long compiles at the same time
_PAUSE_S = 0.005  # longest pause for short compiles between two slices, so that a compile ends nevertheless
_SLICE_S = 0.0005  # seconds that a compile that is not short runs before it lets other threads have the interpreter
_REST_S, _LONG_REST_S = 0.00005, 0.003  # seconds until it goes on; the longer ones while other threads need it
_BUSY_S = 0.0002  # seconds by which a rest is too long where another thread has the interpreter
_MOST_RESTS = 30  # long rests after the last sign of another thread

interpreter_ends = threading.Event()
"""Whether the interpreter ends: compiles on daemon threads give up then."""

LOOK = ctypes.CFUNCTYPE(ctypes.c_int32)
"""``Look`` of public.h."""


def no_memory() -> BackendError:
    """The error of compiled loops that found no memory; another time there may be enough, so no limit."""
    return BackendError("the native engine needs more memory than there is")


class _Turns:
    """Counts of this process's compiles that are short, are not, and are long."""

    def __init__(self) -> None:
        self.after_fork()
        renew_in_child(self)

    def after_fork(self) -> None:
        """In the child of a fork nothing compiles."""
        self.changed = threading.Condition()
        self.short = self.not_short = self.long = 0


_turns = _Turns()


class Compiling:
    """The reading, the memory and the turn of one compile, on one thread."""

    def __init__(self, when_not_short: Callable[[], None] | None = None) -> None:
        self._when_not_short = when_not_short
        self._read = self._next_look = self._nbytes = 0
        self._turns: _Turns | None = _turns
        self._is_short, self._is_long = True, False
        self._rested, self._rests = 0.0, 0  # when it has rested last, and how many long rests follow
        self._looks = 0
        with _turns.changed:
            _turns.short += 1

    def end(self) -> None:
        """Leave the turn to others."""
        if (turns := self._turns) is not None:
            self._turns = None
            with turns.changed:
                turns.long -= self._is_long
                turns.short -= self._is_short
                turns.not_short -= not self._is_short
                turns.changed.notify_all()

    def count(self, steps: int) -> None:
        """Count steps of reading; raises CompileLimitExceeded past ``MOST_READ``."""
        self._read += steps
        if self._read >= self._next_look:
            if self._read > MOST_READ:
                raise CompileLimitExceeded(
                    f"reading the constraint took more than {MOST_READ} steps of work; make it smaller: fewer values, "
                    "fewer alternatives, or fewer keywords that are combined with each other"
                )
            self._next_look = self._read + _STEPS_A_LOOK
            self.look()

    def hold(self, nbytes: int) -> None:
        """Count the bytes of arrays before they are made; raises CompileLimitExceeded past ``MOST_BYTES``."""
        self._nbytes += nbytes
        if self._nbytes > MOST_BYTES:
            raise CompileLimitExceeded(
                f"compiling needs more than {MOST_BYTES // 2**20} MiB of memory; make the constraint smaller"
            )
        if self._nbytes > _LONG_BYTES:
            self._be_long()

    def look(self) -> None:
        """Let others compile, where it is their turn; raises CompileLimitExceeded where the interpreter ends."""
        if interpreter_ends.is_set():
            raise CompileLimitExceeded("the interpreter ends; compile in a thread that it waits for")
        if not self._is_long:
            self._looks += 1
            if self._looks > _LONG_LOOKS:
                self._be_long()
            elif self._looks > _SHORT_LOOKS:
                self._be_no_longer_short()
        if not self._is_short:
            self._pause()

    def _pause(self) -> None:
        """Let others have the interpreter, which a thread that gives it up for a moment waits for 5 ms otherwise."""
        now = time.perf_counter()
        if (turns := self._turns) is not None and turns.short:
            with turns.changed:  # as long for each that pauses: all of them together take a tenth of the time at most
                turns.changed.wait_for(lambda: not turns.short, _PAUSE_S * turns.not_short)
        elif now - self._rested < _SLICE_S:
            return
        else:
            rest = _LONG_REST_S if self._rests else _REST_S
            time.sleep(rest)
            is_busy = time.perf_counter() - now > rest + _BUSY_S
            self._rests = _MOST_RESTS if is_busy else max(0, self._rests - 1)
        self._rested = time.perf_counter()

    def _be_no_longer_short(self) -> None:
        if self._is_short and (turns := self._turns) is not None:
            if self._when_not_short is not None:
                self._when_not_short()
            with turns.changed:
                turns.short -= 1
                turns.not_short += 1
                self._is_short = False
                turns.changed.notify_all()

    def _be_long(self) -> None:
        if self._is_long or (turns := self._turns) is None:
            return
        self._be_no_longer_short()
        with turns.changed:
            while not turns.changed.wait_for(lambda: turns.long < _MOST_LONG, _PAUSE_S):
                if interpreter_ends.is_set():
                    raise CompileLimitExceeded("the interpreter ends; compile in a thread that it waits for")
            turns.long += 1
            self._is_long = True


_current: ContextVar[Compiling | None] = ContextVar("compiling", default=None)


@contextmanager
def compiling(when_not_short: Callable[[], None] | None = None) -> Iterator[None]:
    """Count what this thread compiles; ``when_not_short`` is called once, where it takes milliseconds."""
    here = Compiling(when_not_short)
    token = _current.set(here)
    try:
        yield
    finally:
        _current.reset(token)
        here.end()


def count(steps: int = 1) -> None:
    """Count steps of reading, each of about a microsecond, before they are taken; outside of a compile, nothing."""
    if (here := _current.get()) is not None:
        here.count(steps)


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
        self._compiling = _current.get()

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return self._most_work - self._already - self.work

    @classmethod
    def of_steps(cls, most: int) -> WorkMeter:
        """A meter for a question that is answered or not by its steps alone."""
        meter = cls()
        meter._most_work = most
        return meter

    def part(self) -> WorkMeter:
        """A meter for a part that other compiles may have too: it counts alone, within the rest of this one.

        What the part takes does not depend on what was made before it; the caller spends it.
        """
        part = WorkMeter(self.limits)
        part._most_work, part.is_part = self._most_work, True
        part._already = self._already + self.work
        return part

    def spend(self, steps: int) -> None:
        """Count some steps; now and then, see whose turn it is."""
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
        """See whose turn it is, in loops whose steps are counted apart, as they are not known beforehand."""
        if self._compiling is not None:
            self._compiling.look()
        elif interpreter_ends.is_set():
            raise CompileLimitExceeded("the interpreter ends; compile in a thread that it waits for")

    def hold(self, nbytes: int) -> None:
        """Count the bytes of arrays, before they are made; see ``Compiling.hold``."""
        if self._compiling is not None:
            self._compiling.hold(nbytes)

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


# -- Compiled loops call back now and then, and stop where that raises.


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
