"""One row of the batch: its matcher, and the tokens that came after the matcher accepted no more.

    open ──stop token──► stopped
      │ ╲
      │  token the grammar forbids ──► closed   (left the grammar from outside: a dead beam, a forced token)
      └─ no token is allowed ────────► closed   (dead end: no token of the vocabulary fits, or the engine has failed)

A free row has no matcher and is never masked. Stopped and closed rows may still be given tokens (padding, a beam that
continues after its end); ``tail`` collects them, at no cost. ``rewind`` undoes tokens in reverse order.

An engine that raises closes its row, and no other: no exception of an engine leaves this class. After
CompileLimitExceeded the engine can still be rolled back; after any other error its state is unknown, so that its
matcher is *lost*: it is not called again, and a row that is rewound makes a new one, which takes the same tokens.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from torch import Tensor

from ..backends.base import Engine
from ..backends.matcher import Matcher
from ..errors import BackendError, CompileLimitExceeded, HFGuidedError
from ..options import CALL_CPU_S

T = TypeVar("T")


_CLOCK_S = 0.5  # how old a reading of the CPU clock may be


class _Clock:
    """A reading of this thread's CPU clock, which takes microseconds, and of the wall clock, which takes none."""

    def __init__(self, wall: float):
        self.wall, self._cpu = wall, time.thread_time()

    def cpu_since(self, began: float) -> float:
        """Seconds of CPU time since this time of the wall clock; at most ``_CLOCK_S`` less than it was."""
        return time.thread_time() - self._cpu - (began - self.wall)


_of_thread = threading.local()


def _clock_of_thread(now: float) -> _Clock:
    clock: _Clock | None = getattr(_of_thread, "clock", None)
    if clock is None or now - clock.wall > _CLOCK_S:
        clock = _of_thread.clock = _Clock(now)
    return clock


class RowState(str, Enum):
    """The state of a row."""

    FREE = "free"
    OPEN = "open"
    STOPPED = "stopped"
    CLOSED = "closed"


class Mark(NamedTuple):
    """A state to return to: how many tokens the row had taken, and why it had ended."""

    taken: int
    failure: HFGuidedError | None
    dead_end: bool


class Row:
    """A row's position in its constraint.

    Args:
        matcher: at the start of the output (``prefix`` already accepted), or None for a free row. Owned by the row.
    """

    __slots__ = ("_dead_end", "_lost", "_taken", "failure", "is_open", "matcher", "stepper", "stop_token_ids", "tail")

    def __init__(self, matcher: Matcher | None):
        self.matcher = matcher
        # Stored rather than computed: they are read several times for each token.
        self.stepper = None if matcher is None else matcher.stepper
        self.stop_token_ids = () if matcher is None else matcher.stop_token_ids  # that end it; none for a free row
        self.is_open = matcher is not None and not matcher.is_terminated()
        self.tail: list[int] = []
        self.failure: HFGuidedError | None = None  # what the engine raised, which ended this row
        self._lost = False
        self._taken: list[int] = []  # the tokens that the matcher has accepted
        self._dead_end = False

    @property
    def engine(self) -> Engine:
        """The engine of a row that is not free; read only."""
        assert self.matcher is not None, "a free row has no engine"
        return self.matcher.engine

    @property
    def state(self) -> RowState:
        """Free, open, stopped or closed."""
        if self.is_open:
            return RowState.OPEN
        if self.matcher is None:
            return RowState.FREE
        return RowState.STOPPED if self.matcher.is_terminated() else RowState.CLOSED

    @property
    def dead_end(self) -> str | None:
        """Why the engine or the vocabulary could not continue the row; None if that is not why it has ended."""
        if self.failure is not None:
            return str(self.failure)
        return "no token of this vocabulary continues the text" if self._dead_end else None

    def fail(self, error: HFGuidedError, *, lost: bool | None = None) -> None:
        """Close the row, because its engine has raised this.

        Args:
            error: what it has raised.
            lost: whether the engine must not be called again; None decides by the error.
        """
        self.failure, self.is_open = error, False
        self._lost |= not isinstance(error, CompileLimitExceeded) if lost is None else lost

    def advance(self, token_id: int) -> bool:
        """Take one token.

        Returns:
            False if this token took an open row out of its grammar, which closes the row.
        """
        matcher = self.matcher
        if matcher is None:
            return True
        if not self.is_open:
            self.tail.append(token_id)
            return True
        try:
            if self._timed(partial(matcher.accept_token, token_id), "one token"):
                self._taken.append(token_id)
                if token_id in matcher.stop_token_ids:
                    self.is_open = False
                return True
        except HFGuidedError as error:
            self.fail(error)
        self.leave(token_id)
        return self.failure is not None

    def leave(self, token_id: int) -> None:
        """Close an open row with a token that its engine does not take."""
        self.tail.append(token_id)
        self.is_open = False

    def took(self, token_id: int) -> None:
        """Note a text token that the engine of an open row has taken already."""
        assert self.matcher is not None, "a free row has no engine"
        self.matcher.took_one()
        self._taken.append(token_id)

    def takes(self, token_ids: Sequence[int]) -> bool:
        """Whether an open or free row could take all of these tokens; a lost row does, any other ended row does not."""
        taken = (self.is_open or self.matcher is None) and self.num_taken(token_ids) == len(token_ids)
        return taken or self._lost

    def num_taken(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens, from the first on, the row could take; none if it has ended."""
        if self.matcher is None:
            return len(token_ids)
        if not self.is_open:
            return 0
        try:
            return self._timed(partial(self.matcher.validate_tokens, token_ids), "some tokens")
        except CompileLimitExceeded:
            return 0
        except HFGuidedError as error:
            self.fail(error)
            return 0

    def fill(self, bitmask: Tensor, index: int, tokens_left: int | None = None) -> bool:
        """Write the allowed tokens into ``bitmask[index]``; an open row without any is closed.

        Args:
            bitmask: (rows, words) int32 on CPU.
            index: the row of the bitmask to write.
            tokens_left: the rest of the row's token budget, or None; see ``Matcher.fill_next_token_bitmask``.

        Returns:
            Whether the row is open, so that its bitmask row was written.
        """
        if self.matcher is None or not self.is_open:
            return False
        try:
            words = self._timed(partial(self.matcher.fill_row, bitmask, index, tokens_left), "one mask")
            # Three times as fast as any().
            self.is_open = self.is_open and bool(np.count_nonzero(words))
        except HFGuidedError as error:
            self.fail(error)
        self._dead_end = not self.is_open
        return self.is_open

    def mask_key(self, tokens_left: int | None = None) -> Hashable | None:
        """See ``Matcher.mask_key``; None too if the row has ended, which ``fill`` reports."""
        if self.matcher is None or not self.is_open:
            return None
        try:
            key = self._timed(partial(self.matcher.mask_key, tokens_left), "one mask")
            return key if self.is_open else None
        except HFGuidedError as error:
            self.fail(error)
            return None

    def jump_forward_bytes(self) -> bytes:
        """The text that the grammar forces next; empty if the row is not open, or its engine reaches its limit."""
        if self.matcher is None or not self.is_open:
            return b""
        try:
            return self._timed(self.matcher.jump_forward_bytes, "forced text")
        except CompileLimitExceeded:
            return b""  # the next mask will reach the limit again, and end the row
        except HFGuidedError as error:
            self.fail(error)
            return b""

    def _timed(self, call: Callable[[], T], what: str) -> T:
        """What a call of the engine returns; the row is closed if the call has taken too long."""
        began = time.perf_counter()
        clock = _clock_of_thread(began)
        value = call()
        if time.perf_counter() - began <= CALL_CPU_S or self.matcher is None:
            return value
        if (seconds := clock.cpu_since(began)) > CALL_CPU_S:
            self.fail(
                CompileLimitExceeded(
                    f"{self.matcher.compiled.backend} took {seconds:.1f} s of CPU time for {what}, more than "
                    f"{CALL_CPU_S:g} s; make the constraint less ambiguous"
                )
            )
        return value

    def may_stop(self) -> bool:
        """Whether the row is open and its text complete."""
        if self.matcher is None or not self.is_open:
            return False
        try:
            return self.matcher.is_completed()
        except HFGuidedError as error:
            self.fail(error)
            return False

    def min_tokens_to_finish(self) -> int | None:
        """See ``Matcher.min_tokens_to_finish``; None for free rows too, and for rows whose engine has failed."""
        if self.matcher is None or self._lost:
            return None
        try:
            return self.matcher.min_tokens_to_finish()
        except HFGuidedError as error:
            self.fail(error)
            return None

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``Matcher.can_finish_in``; None for free rows too, and for rows whose engine has failed."""
        if self.matcher is None or self._lost:
            return None
        try:
            return self.matcher.can_finish_in(tokens_left)
        except HFGuidedError as error:
            self.fail(error)
            return None

    def rewind(self, num_tokens: int) -> None:
        """Undo the last ``num_tokens`` tokens, also those after the row's end."""
        if self.matcher is None or num_tokens == 0:
            return
        from_tail = min(num_tokens, len(self.tail))
        del self.tail[len(self.tail) - from_tail :]
        if self.tail:
            return  # still after its end, and ended by what it was ended by
        self._dead_end, self.failure = False, None
        back = num_tokens - from_tail
        del self._taken[len(self._taken) - back :]
        try:
            if not self._lost:
                self.matcher.rollback(back)
        except HFGuidedError:
            self._lost = True
        self._recover()
        self.is_open = not (self._lost or self.matcher.is_terminated())

    def _recover(self) -> None:
        """Replace a lost matcher by a new one that has taken the same tokens."""
        if self.matcher is None or not self._lost:
            return
        try:
            self.matcher = self.matcher.compiled.matcher(self.matcher.stop_token_ids)
            self._lost = False
            if not all(map(self.matcher.accept_token, self._taken)):
                name = self.matcher.compiled.backend
                raise BackendError(f"the engine {name} failed: it refuses tokens that it has accepted before")
        except HFGuidedError as error:
            self.fail(error, lost=True)

    def mark(self) -> Mark:
        """The current state, for ``return_to``."""
        return Mark(len(self._taken) + len(self.tail), self.failure, self._dead_end)

    def return_to(self, mark: Mark) -> None:
        """Undo everything since the mark; unlike ``rewind``, a dead end that existed at the mark remains."""
        self.rewind(self.mark().taken - mark.taken)
        if mark.failure is None:
            self._recover()
            if self._lost:
                return  # a new engine has failed too
        self.failure, self._dead_end = mark.failure, mark.dead_end
        ended = self.tail or self._dead_end or self.failure is not None
        self.is_open = self.matcher is not None and not (ended or self.matcher.is_terminated())

    def fork(self) -> Row:
        """An independent copy."""
        twin = Row(self.matcher)
        twin.tail, twin._taken, twin.is_open = list(self.tail), list(self._taken), self.is_open
        twin.failure, twin._lost, twin._dead_end = self.failure, self._lost, self._dead_end
        if self.matcher is not None and not self._lost:
            try:
                twin.matcher = self.matcher.fork()
            except HFGuidedError as error:
                twin.fail(error, lost=True)
        return twin
