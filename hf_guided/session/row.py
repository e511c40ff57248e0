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

In a step of many rows, the engines of one constraint take it in one call, whose work the engine bounds. If such a call
raises, each of its rows is asked by itself, so that the error ends its row alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from enum import Enum
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..backends.base import Engine, Stepper
from ..backends.matcher import Matcher, Narrowed
from ..errors import BackendError, CompileLimitExceeded, HFGuidedError
from ..options import CALL_CPU_S

T = TypeVar("T")
Key: TypeAlias = tuple[Hashable, tuple[int, ...]]  # a mask's: the engine's key, and the row's stop tokens
_CLOCK_S = 0.5  # seconds that a reading of the CPU clock may be old
# Number of tokens. If more are left beyond those that the text needs to end, the masks of forced text are not checked
# against the limit: it could forbid only a token that ends the forced text and begins a part that needs all of them.
_FAR = 64
_readings = threading.local()  # ``last``: the wall time and the CPU time of a thread when both were read last


def _last_reading(now: float) -> tuple[float, float]:
    """The last reading of this thread's clocks; reading the CPU clock takes microseconds."""
    last: tuple[float, float] | None = getattr(_readings, "last", None)
    if last is None or now - last[0] > _CLOCK_S:
        last = _readings.last = now, time.thread_time()
    return last


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

    def __init__(self, matcher: Matcher | None):
        self._use(matcher)
        self.stop_token_ids = () if matcher is None else matcher.stop_token_ids  # none for a free row
        self.is_open = matcher is not None and not matcher.is_terminated()
        self.tail: list[int] = []
        self.failure: HFGuidedError | None = None  # what the engine raised, which ended this row
        self._lost = False
        self._taken: list[int] = []  # the tokens that the matcher has accepted
        self._dead_end = False

    def _use(self, matcher: Matcher | None) -> None:
        self.matcher = matcher
        # Stored rather than computed: they are read several times for each token.
        self.engine: Engine | None = None if matcher is None else matcher.engine
        self._stepper = None if matcher is None else matcher.stepper

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
        """Close the row: its engine has raised this, and must not be called again if ``lost`` (None: by the error)."""
        self.failure, self.is_open = error, False
        self._lost |= not isinstance(error, CompileLimitExceeded) if lost is None else lost

    def advance(self, token_id: int) -> bool:
        """Take one token; False if it took an open row out of its grammar, which closes the row."""
        matcher = self.matcher
        if matcher is None:
            return True
        if not self.is_open:
            self.tail.append(token_id)
            return True
        if self._asked(partial(matcher.accept_token, token_id), False, "one token"):
            self._taken.append(token_id)
            if token_id in matcher.stop_token_ids:
                self.is_open = False
            return True
        self._leave(token_id)
        return self.failure is not None

    def _leave(self, token_id: int) -> None:
        """Close an open row with a token that its engine does not take."""
        self.tail.append(token_id)
        self.is_open = False

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
        return self._asked(partial(self.matcher.validate_tokens, token_ids), 0, "some tokens", limit_ends=False)

    def fill(self, bitmask: Tensor, index: int, tokens_left: int | None = None) -> bool:
        """Write the allowed tokens into a row of a bitmask, (rows, words) int32 on CPU; without any, the row is closed.

        ``tokens_left`` is the rest of its token budget; see ``Matcher.fill_next_token_bitmask``.

        Returns:
            Whether the row is open, so that its bitmask row was written.
        """
        if self.matcher is None or not self.is_open:
            return False
        words = self._asked(partial(self.matcher.fill_row, bitmask, index, tokens_left), None, "one mask")
        # Three times as fast as any().
        self.is_open = self.is_open and words is not None and bool(np.count_nonzero(words))
        self._dead_end = not self.is_open
        return self.is_open

    def narrowed(
        self, tokens_left: int | None, words: NDArray[np.int32] | None = None, *, always: bool = False
    ) -> Narrowed | None:
        """See ``Matcher.narrowed``; None too if the row had ended before its last ``fill``."""
        ended_before = not self.is_open and (self.tail or not self._dead_end)
        if self.matcher is None or ended_before or self._lost:
            return None
        return self.matcher.narrowed(tokens_left, words, is_ended=not self.is_open, always=always)

    def is_near_limit(self, tokens_left: int | None) -> bool:
        """Whether a limit may narrow the masks of forced text from here on, so that they have to be made."""
        if tokens_left is not None and not self.can_finish_in(tokens_left - _FAR):
            return True
        return self.matcher is not None and self.is_open and self.matcher.thinking_is_limited(tokens_left)

    def mask_key(self, tokens_left: int | None = None) -> Key | None:
        """The key of the mask; None if its engine keeps no masks, or the row has ended, which ``fill`` reports."""
        if self.matcher is None or not self.is_open or not self.matcher.compiled.keeps_masks:
            return None
        key = self._asked(partial(self.matcher.mask_key, tokens_left), None, "one mask")
        return None if key is None or not self.is_open else (key, self.stop_token_ids)

    def jump_forward_bytes(self) -> bytes:
        """The text that the grammar forces next; empty if the row is not open, or its engine reaches its limit."""
        if self.matcher is None or not self.is_open:
            return b""
        # The next mask will reach the limit again, and end the row.
        return self._asked(self.matcher.jump_forward_bytes, b"", "forced text", limit_ends=False)

    def may_stop(self) -> bool:
        """Whether the row is open and its text complete."""
        return self.matcher is not None and self.is_open and self._asked(self.matcher.is_completed, False)

    def min_tokens_to_finish(self) -> int | None:
        """See ``Matcher.min_tokens_to_finish``; None for free rows too, and for rows whose engine has failed."""
        if self.matcher is None or self._lost:
            return None
        return self._asked(self.matcher.min_tokens_to_finish, None)

    def can_finish_in(self, tokens_left: int) -> bool | None:
        """See ``Matcher.can_finish_in``; None for free rows too, and for rows whose engine has failed."""
        if self.matcher is None or self._lost:
            return None
        return self._asked(partial(self.matcher.can_finish_in, tokens_left), None)

    def _asked(self, call: Callable[[], T], failed: T, what: str = "", *, limit_ends: bool = True) -> T:
        """Call the engine; if it raises, close the row, and return ``failed``.

        ``what`` names the result in the message of a call that has taken too long; empty if its time is not limited.
        ``limit_ends`` says whether CompileLimitExceeded closes the row too.
        """
        began = time.perf_counter()
        wall, cpu = _last_reading(began)
        try:
            value = call()
        except HFGuidedError as error:
            if limit_ends or not isinstance(error, CompileLimitExceeded):
                self.fail(error)
            return failed
        if not what or time.perf_counter() - began <= CALL_CPU_S or self.matcher is None:
            return value
        if (seconds := time.thread_time() - cpu - (began - wall)) > CALL_CPU_S:  # at most _CLOCK_S less than it was
            self.fail(
                CompileLimitExceeded(
                    f"{self.matcher.compiled.backend} took {seconds:.1f} s of CPU time for {what}, more than "
                    f"{CALL_CPU_S:g} s; make the constraint less ambiguous"
                )
            )
        return value

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
            self._use(self.matcher.compiled.matcher(self.matcher.stop_token_ids))
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
                twin._use(self.matcher.fork())
            except HFGuidedError as error:
                twin.fail(error, lost=True)
        return twin


def advance(rows: Sequence[Row], token_ids: Sequence[int]) -> list[int]:
    """Give each of some different rows one token, those of one constraint together; see ``Row.advance``.

    Returns the indices of the rows that have left their grammar, ascending.
    """
    refused: list[int] = []
    together: dict[Stepper, list[int]] = {}
    for i, (row, token_id) in enumerate(zip(rows, token_ids, strict=True)):
        if row._stepper is not None and row.is_open and token_id not in row.stop_token_ids:
            together.setdefault(row._stepper, []).append(i)
        elif not row.advance(token_id):
            refused.append(i)
    for stepper, numbers in together.items():
        try:
            accepted = stepper.accept([rows[i].engine for i in numbers], [token_ids[i] for i in numbers])
        except Exception:  # nothing has changed: each row meets its own error again, and ends by it
            refused += [i for i in numbers if not rows[i].advance(token_ids[i])]
            continue
        for i, is_accepted in zip(numbers, accepted, strict=True):
            row = rows[i]
            if is_accepted:
                assert row.matcher is not None
                row.matcher.took_one()
                row._taken.append(token_ids[i])
            else:
                row._leave(token_ids[i])
                refused.append(i)
    refused.sort()
    return refused


def mask_keys(rows: Sequence[Row], tokens_left: Sequence[int | None]) -> list[Key | None]:
    """The keys of the masks of rows, those of one constraint together; see ``Row.mask_key``."""
    keys: list[Key | None] = [None] * len(rows)
    together: dict[Stepper, list[int]] = {}
    for i, row in enumerate(rows):
        if row._stepper is not None and row.is_open:
            together.setdefault(row._stepper, []).append(i)
        else:
            keys[i] = row.mask_key(tokens_left[i])
    for stepper, numbers in together.items():
        try:
            engine_keys = stepper.mask_keys([rows[i].engine for i in numbers], [tokens_left[i] for i in numbers])
        except Exception:  # each row meets its own error again
            for i in numbers:
                keys[i] = rows[i].mask_key(tokens_left[i])
            continue
        for i, key in zip(numbers, engine_keys, strict=True):
            keys[i] = None if key is None else (key, rows[i].stop_token_ids)
    return keys
