"""One row of the batch: its matcher, and the tokens that came after the matcher accepted no more.

    open ──stop token──► stopped
      │ ╲
      │  token the grammar forbids ──► closed   (left the grammar from outside: a dead beam, a forced token)
      └─ no token is allowed ────────► closed   (dead end: no token of the vocabulary fits, or the engine has reached
                                                 its limit)

A free row has no matcher and is never masked. Stopped and closed rows may still be given tokens (padding, a beam that
continues after its end); ``tail`` collects them, at no cost. ``rewind`` undoes tokens in reverse order.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ..backends.base import Matcher
from ..errors import CompileLimitExceeded


class RowState(str, Enum):
    """The state of a row."""

    FREE = "free"
    OPEN = "open"
    STOPPED = "stopped"
    CLOSED = "closed"


class Mark(NamedTuple):
    """A state to return to: how many tokens the row had taken, and why it had ended."""

    taken: int
    limit: CompileLimitExceeded | None
    dead_end: bool


class Row:
    """A row's position in its constraint.

    Args:
        matcher: at the start of the output (``prefix`` already accepted), or None for a free row. Owned by the row.
    """

    __slots__ = ("_dead_end", "is_open", "limit", "matcher", "tail")

    def __init__(self, matcher: Matcher | None):
        self.matcher = matcher
        # Stored rather than computed: it is read several times for each token.
        self.is_open = matcher is not None and not matcher.is_terminated()
        self.tail: list[int] = []
        self.limit: CompileLimitExceeded | None = None  # the engine's limit that ended this row
        self._dead_end = False

    @property
    def state(self) -> RowState:
        """Free, open, stopped or closed."""
        if self.is_open:
            return RowState.OPEN
        if self.matcher is None:
            return RowState.FREE
        return RowState.STOPPED if self.matcher.is_terminated() else RowState.CLOSED

    @property
    def ends_dead(self) -> bool:
        """Whether the row ended because the engine or the vocabulary could not continue it."""
        return self._dead_end or self.limit is not None

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
            if matcher.accept_token(token_id):
                if token_id in matcher.stop_token_ids:
                    self.is_open = False
                return True
        except CompileLimitExceeded as error:
            self.limit = error
        self.tail.append(token_id)
        self.is_open = False
        return self.limit is not None

    def takes(self, token_ids: Sequence[int]) -> bool:
        """Whether an open or free row could take all of these tokens; a row that has ended takes none."""
        return (self.is_open or self.matcher is None) and self.num_taken(token_ids) == len(token_ids)

    def num_taken(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens, from the first on, the row could take; none if it has ended."""
        if self.matcher is None:
            return len(token_ids)
        if not self.is_open:
            return 0
        try:
            return self.matcher.validate_tokens(token_ids)
        except CompileLimitExceeded:
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
            # Three times as fast as any().
            self.is_open = bool(np.count_nonzero(self.matcher.fill_row(bitmask, index, tokens_left)))
        except CompileLimitExceeded as error:
            self.limit, self.is_open = error, False
        self._dead_end = not self.is_open
        return self.is_open

    def jump_forward_bytes(self) -> bytes:
        """The text that the grammar forces next; empty if the row is not open, or its engine reaches its limit."""
        if self.matcher is None or not self.is_open:
            return b""
        try:
            return self.matcher.jump_forward_bytes()
        except CompileLimitExceeded:
            return b""  # the next mask will reach the limit again, and end the row

    def rewind(self, num_tokens: int) -> None:
        """Undo the last ``num_tokens`` tokens, also those after the row's end."""
        if self.matcher is None or num_tokens == 0:
            return
        self._dead_end, self.limit = False, None
        from_tail = min(num_tokens, len(self.tail))
        del self.tail[len(self.tail) - from_tail :]
        self.matcher.rollback(num_tokens - from_tail)
        self.is_open = not self.tail and not self.matcher.is_terminated()

    def mark(self) -> Mark:
        """The current state, for ``return_to``."""
        taken = 0 if self.matcher is None else self.matcher.num_accepted + len(self.tail)
        return Mark(taken, self.limit, self._dead_end)

    def return_to(self, mark: Mark) -> None:
        """Undo everything since the mark; unlike ``rewind``, a dead end that existed at the mark remains."""
        self.rewind(self.mark().taken - mark.taken)
        self.limit, self._dead_end = mark.limit, mark.dead_end
        self.is_open = self.matcher is not None and not (self.tail or self._dead_end or self.matcher.is_terminated())

    def fork(self) -> Row:
        """An independent copy."""
        twin = Row(None if self.matcher is None else self.matcher.fork())
        twin.tail, twin.limit, twin._dead_end = list(self.tail), self.limit, self._dead_end
        twin.is_open = self.is_open
        return twin
