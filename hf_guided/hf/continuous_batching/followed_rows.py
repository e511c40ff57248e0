"""The rows of a manager's requests: made with a request's first token, and deleted with its state.

Rows belong to request states: a request that has lost its cache returns with a new state, and a new row takes all of
its output. The rows of requests that have ended or were cancelled are deleted together with their states, because the
manager reports neither.

Thread: the manager's generation thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...constraints.values import Constraint
from ...session.row import Row
from .compat import new_tokens


@dataclass(frozen=True)
class RequestConstraint:
    """The constraint of a request; one of its keyword arguments, which are copied for forks and sent between processes.

    Args:
        constraint: of its text.
        backend: "auto", or the name of a backend.
        prefix: the beginning of the answer that its prompt already contains.
        stop_token_ids: tokens that end it.
        max_new_tokens: its text closes within this many tokens; None sets no limit.
        row: at the start of its output, for this process; forked, never advanced.
    """

    constraint: Constraint
    backend: str
    prefix: str | None
    stop_token_ids: tuple[int, ...]
    max_new_tokens: int | None
    row: Row | None = field(default=None, compare=False, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> RequestConstraint:
        return self  # it is immutable, so forks share the compiled constraint

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the row: compiled grammars stay in their process, and another one compiles its own.
        return RequestConstraint, (self.constraint, self.backend, self.prefix, self.stop_token_ids, self.max_new_tokens)


@dataclass
class FollowedRow:
    """A request state, its row, and how much of its output the row has taken."""

    state: weakref.ref[Any]
    row: Row
    taken: int = 0

    def take(self, *token_ids: int) -> None:
        """Advance the row by the next tokens of the output."""
        for token_id in token_ids:
            self.row.advance(token_id)
        self.taken += len(token_ids)


class FollowedRows:
    """Rows by the id of their request.

    Args:
        begin: makes the row of a request that has none, because another process has added it.
    """

    def __init__(self, begin: Callable[[RequestConstraint], Row]):
        self._begin = begin
        self._rows: dict[str, FollowedRow] = {}

    def __iter__(self) -> Any:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def up_to_date(self, state: Any, request: RequestConstraint) -> FollowedRow:
        """The row of a request, after the output that its state has; may raise any error if it makes a row."""
        followed = self._rows.get(state.request_id)
        if followed is None or followed.state() is not state:
            row = self._begin(request) if request.row is None else request.row.fork()
            followed = self._rows[state.request_id] = FollowedRow(self._watched(state), row)
        followed.take(*new_tokens(state, followed.taken))
        return followed

    def forget(self, request_id: str) -> None:
        """Delete the row of a request: its next one begins anew."""
        self._rows.pop(request_id, None)

    def _watched(self, state: Any) -> weakref.ref[Any]:
        """A weak reference to the state that deletes its row together with it."""
        request_id = state.request_id

        def gone(reference: weakref.ref[Any]) -> None:
            # The id may belong to a new state by now.
            if request_id in self._rows and self._rows[request_id].state is reference:
                self.forget(request_id)

        return weakref.ref(state, gone)
